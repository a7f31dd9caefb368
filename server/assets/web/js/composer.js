// The field at the bottom: writes a message, stops an answer.

import { byId } from './dom.js';
import { icon } from './icons.js';

const THINKING = { auto: 'Thinking: auto', on: 'Thinking: on', off: 'Thinking: off' };
const NEXT = { auto: 'on', on: 'off', off: 'auto' };

export class Composer {
    constructor(chat, editLast) {
        this.chat = chat;
        this.editLast = editLast;
        this.area = byId('prompt');
        this.button = byId('send');
        this.thinking = byId('thinking');
        /** Unsent text by conversation, so that looking elsewhere loses nothing. */
        this.drafts = new Map();
        this.shown = null;
        byId('composer').addEventListener('submit', (event) => {
            event.preventDefault();
            if (chat.generation) chat.stop();
            else this.send();
        });
        this.area.addEventListener('keydown', (event) => this.key(event));
        this.area.addEventListener('input', () => this.fit());
        this.thinking.addEventListener('click', () => chat.changeSettings({ thinking: NEXT[chat.settings.thinking] }));
        chat.addEventListener('open', () => this.opened());
        chat.addEventListener('path', () => this.refresh());
        chat.addEventListener('settings', () => this.refresh());
        this.refresh();
    }

    key(event) {
        if (event.isComposing) return;
        if (event.key === 'ArrowUp' && this.area.value === '') {
            event.preventDefault();
            this.editLast();
        }
        // A phone's keyboard has no Shift+Enter: there Enter breaks the line and the button sends.
        const touch = matchMedia('(pointer: coarse)').matches;
        const wanted = event.ctrlKey || event.metaKey || (!event.shiftKey && !touch);
        if (event.key === 'Enter' && wanted) {
            event.preventDefault();
            if (!this.chat.generation) this.send();
        }
    }

    send() {
        const text = this.area.value.trim();
        if (!text) return;
        this.set('');
        this.focus();
        this.chat.send(text);
    }

    /** Puts `text` into the field. */
    set(text) {
        this.area.value = text;
        this.fit();
    }

    focus() {
        // On a phone the focus would open the keyboard over the answer.
        if (!matchMedia('(pointer: coarse)').matches) this.area.focus({ preventScroll: true });
    }

    opened() {
        const id = this.chat.current?.id ?? null;
        if (id !== this.shown) {
            this.drafts.set(this.shown, this.area.value);
            this.set(this.drafts.get(id) ?? '');
            this.shown = id;
        }
        this.refresh();
        this.focus();
    }

    fit() {
        this.area.style.height = 'auto';
        this.area.style.height = `${Math.min(this.area.scrollHeight, 260)}px`;
        this.refresh();
    }

    refresh() {
        const running = this.chat.generation !== null;
        if (running !== this.running) {
            this.button.replaceChildren(icon(running ? 'stop' : 'send', 20));
            this.button.setAttribute('aria-label', running ? 'Stop' : 'Send');
            this.button.title = running ? 'Stop (Esc)' : 'Send (Enter)';
            this.button.classList.toggle('running', running);
            this.running = running;
        }
        this.button.disabled = !running && this.area.value.trim() === '';
        const { thinking } = this.chat.settings;
        this.thinking.lastElementChild.textContent = THINKING[thinking];
        this.thinking.dataset.state = thinking;
    }
}
