// The settings panel and the question dialog.

import { byId, h, toast } from './dom.js';
import { SAMPLING, remember, remembered } from './settings.js';

/** Asks a question; true if the person agrees. */
export function confirm(title, text, verb) {
    const dialog = byId('confirm');
    byId('confirm-title').textContent = title;
    byId('confirm-text').textContent = text;
    byId('confirm-yes').textContent = verb;
    dialog.returnValue = '';
    dialog.showModal();
    return new Promise((resolve) => {
        dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
    });
}

export class Panel {
    constructor(chat, { connect, chooseTheme }) {
        this.chat = chat;
        this.connect = connect;
        this.dialog = byId('settings');
        this.fields = new Map();
        this.buildSampling();
        byId('open-settings').addEventListener('click', () => this.open());
        // A click beside the panel closes it: the backdrop belongs to the dialog element itself.
        this.dialog.addEventListener('click', (event) => { if (event.target === this.dialog) this.dialog.close(); });
        byId('system').addEventListener('change', (event) => chat.changeSettings({ system: event.target.value }));
        byId('api-key').addEventListener('change', (event) => {
            remember('key', event.target.value.trim());
            this.connect();
        });
        // Enter in the field is a change and no page load.
        byId('key-form').addEventListener('submit', (event) => event.preventDefault());
        for (const choice of this.dialog.querySelectorAll('input[name=theme]')) {
            choice.addEventListener('change', () => chooseTheme(choice.value));
        }
        for (const choice of this.dialog.querySelectorAll('input[name=thinking]')) {
            choice.addEventListener('change', () => chat.changeSettings({ thinking: choice.value }));
        }
        byId('reset-sampling').addEventListener('click', () => chat.changeSettings({ sampling: {} }));
        byId('export').addEventListener('click', () => this.export());
        byId('import').addEventListener('click', () => byId('import-file').click());
        byId('import-file').addEventListener('change', (event) => this.import(event.target));
        chat.addEventListener('settings', () => this.refresh());
    }

    buildSampling() {
        for (const { name, label, min, max, step, hint } of SAMPLING) {
            const field = h('input', { type: 'number', id: `sampling-${name}`, min: String(min), max: String(max), step: 'any', inputmode: step < 1 ? 'decimal' : 'numeric', placeholder: 'default', 'aria-describedby': `hint-${name}` });
            field.addEventListener('change', () => this.changeNumber(name, field, step >= 1));
            this.fields.set(name, field);
            byId('sampling').append(h('div', { class: 'field' }, h('label', { for: field.id }, label), field, h('small', { id: `hint-${name}` }, hint)));
        }
    }

    changeNumber(name, field, whole) {
        const sampling = { ...this.chat.settings.sampling };
        const given = field.value === '' ? NaN : Number(field.value);
        if (Number.isNaN(given)) delete sampling[name];
        else {
            const bounded = Math.min(Math.max(given, Number(field.min)), Number(field.max));
            sampling[name] = whole ? Math.round(bounded) : bounded;
        }
        this.chat.changeSettings({ sampling });
    }

    open(field = null) {
        this.refresh();
        this.dialog.showModal();
        if (field) byId(field).focus();
    }

    refresh() {
        const { settings } = this.chat;
        // Somebody may be typing in the field that has the focus.
        const show = (field, value) => { if (field !== document.activeElement) field.value = value; };
        show(byId('system'), settings.system);
        show(byId('api-key'), remembered('key'));
        for (const [name, field] of this.fields) show(field, settings.sampling[name] ?? '');
        const theme = remembered('theme') || 'auto';
        for (const choice of this.dialog.querySelectorAll('input[name=theme]')) choice.checked = choice.value === theme;
        for (const choice of this.dialog.querySelectorAll('input[name=thinking]')) choice.checked = choice.value === settings.thinking;
    }

    async export() {
        const file = new Blob([await this.chat.exportAll()], { type: 'application/json' });
        const link = h('a', { href: URL.createObjectURL(file), download: `forge-chat-${new Date().toISOString().slice(0, 10)}.json` });
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }

    async import(input) {
        const [file] = input.files;
        if (!file) return;
        try {
            const added = await this.chat.import(await file.text());
            toast(added === 1 ? '1 conversation imported' : `${added} conversations imported`);
        } catch (error) {
            toast(error.message);
        }
        // The same file may be chosen again.
        input.value = '';
    }
}
