// One message on the page: its text, its reasoning, what happened to it, and what can be done with it.

import { copyText, h } from './dom.js';
import { count, duration, rate } from './format.js';
import { icon } from './icons.js';
import { MarkdownView } from './markdown/view.js';
import { WaitingView } from './waiting.js';

/** A line of text and an average character, for the height of a message that was never laid out. */
const LINE_HEIGHT = 26;
const LINE_LENGTH = 84;

function button(name, label, action) {
    return h('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick: action }, icon(name, 16));
}

/** Shows a message; `actions` are what its buttons do, each called with the message. */
export class MessageView {
    constructor(message, actions) {
        this.message = message;
        this.actions = actions;
        this.drawn = false;
        this.body = h('div', { class: 'body' });
        this.notice = h('div', { class: 'notice' });
        this.footer = h('footer');
        const user = message.role === 'user';
        this.element = h('article', { class: `message ${message.role}`, 'aria-label': user ? 'You' : 'Answer' }, this.body, this.notice, this.footer);
        this.element.view = this;
        const lines = message.content.split('\n').reduce((sum, line) => sum + Math.ceil((line.length + 1) / LINE_LENGTH), 0);
        this.element.style.containIntrinsicSize = `auto none auto ${lines * LINE_HEIGHT + 60}px`;
        // Until it comes near the screen a message is plain text: cheap, and found by the browser's search.
        if (!user) this.body.append(h('div', { class: 'markdown undrawn' }, message.content));
    }

    /** Shows the message in full, if it is not yet. */
    draw() {
        if (this.drawn) return;
        this.drawn = true;
        this.body.replaceChildren();
        if (this.message.role === 'user') this.body.append(h('div', { class: 'bubble' }, this.message.content));
        else {
            this.content = h('div', { class: 'markdown' });
            this.markdown = new MarkdownView(this.content);
            this.body.append(this.content);
        }
    }

    /** Brings what is shown up to date. `version` is `{ index, all }`; `generation` a running one. */
    update({ version, generation, last }) {
        this.element.classList.toggle('last', last);
        this.version = version;
        this.last = last;
        this.drawFooter(generation);
        if (this.drawn || generation) this.grow(generation);
    }

    /** Shows what has arrived since. */
    grow(generation) {
        this.draw();
        if (this.message.role === 'user') return;
        const { message } = this;
        const open = generation !== null;
        this.growReasoning(open);
        this.markdown.update(message.content, open);
        this.content.classList.toggle('writing', open && message.content !== '');
        const waits = open && !message.content && !message.reasoning;
        if (waits) {
            this.waiting ??= new WaitingView(this.body);
            this.waiting.update(generation);
        } else if (this.waiting) {
            this.waiting.remove();
            this.waiting = null;
        }
        if (open) this.showStats(generation);
        this.element.setAttribute('aria-busy', String(open));
    }

    growReasoning(open) {
        const { message } = this;
        if (!message.reasoning) return;
        if (!this.reasoning) {
            this.reasoningTitle = h('span', { class: 'reasoning-title' });
            this.reasoningText = h('div', { class: 'markdown reasoning-text' });
            this.reasoningMarkdown = new MarkdownView(this.reasoningText);
            const summary = h('summary', {}, icon('bulb', 16), this.reasoningTitle, icon('chevron', 16));
            this.reasoning = h('details', { class: 'reasoning' }, summary, this.reasoningText);
            // It is open while the model thinks, until a person decides otherwise.
            summary.addEventListener('click', () => { this.reasoningTouched = true; });
            this.reasoning.addEventListener('toggle', () => this.showReasoning());
            this.body.prepend(this.reasoning);
        }
        const thinking = open && !message.content;
        const { thought, seconds } = message.stats;
        const time = thought ?? (message.content ? null : seconds);
        this.reasoningTitle.textContent = thinking ? 'Thinking…' : time ? `Thought for ${duration(time)}` : 'Thoughts';
        this.reasoning.classList.toggle('thinking', thinking);
        if (!this.reasoningTouched) this.reasoning.open = thinking;
        this.reasoningOpen = thinking;
        this.showReasoning();
    }

    showReasoning() {
        if (this.reasoning.open) this.reasoningMarkdown.update(this.message.reasoning, this.reasoningOpen);
    }

    drawFooter(generation) {
        const { message, actions, version } = this;
        const user = message.role === 'user';
        this.stats = h('span', { class: 'stats' });
        const items = [];
        if (version.all.length > 1) items.push(this.versions());
        if (!generation) {
            items.push(this.copyButton());
            items.push(user
                ? button('edit', 'Edit message', () => this.edit())
                : button('retry', 'Answer again', () => actions.regenerate(message)));
        }
        this.footer.replaceChildren(...items, this.stats);
        this.notice.replaceChildren(...this.notices(generation));
        if (!user) this.showStats(generation);
    }

    versions() {
        const { index, all } = this.version;
        const back = button('left', 'Version before', () => this.actions.flip(this.message, -1));
        const next = button('right', 'Next version', () => this.actions.flip(this.message, 1));
        back.disabled = index === 0;
        next.disabled = index === all.length - 1;
        const label = h('span', { 'aria-label': `Version ${index + 1} of ${all.length}` }, `${index + 1} / ${all.length}`);
        return h('span', { class: 'versions' }, back, label, next);
    }

    copyButton() {
        const copy = button('copy', 'Copy message', async () => {
            if (!await copyText(this.message.content)) return;
            copy.replaceChildren(icon('check', 16));
            setTimeout(() => copy.replaceChildren(icon('copy', 16)), 1400);
        });
        return copy;
    }

    notices(generation) {
        const { message } = this;
        if (generation || message.role === 'user') return [];
        if (message.status === 'error') {
            const wait = message.error.retryAfter ? ` It asks to wait ${duration(message.error.retryAfter)}.` : '';
            const again = h('button', { type: 'button', class: 'button', onclick: () => this.actions.regenerate(message) }, icon('retry', 15), 'Try again');
            const key = h('button', { type: 'button', class: 'button', onclick: () => this.actions.enterKey() }, 'Enter API key');
            return [h('div', { class: 'error', role: 'alert' }, icon('warning', 18),
                h('p', {}, message.error.message + wait), message.error.status === 401 ? key : null, again)];
        }
        if (message.status === 'stopped') return [h('p', { class: 'quiet' }, 'Stopped')];
        if (message.finish === 'length') return [h('p', { class: 'quiet' }, 'Ended at the token limit')];
        return [];
    }

    showStats(generation) {
        const { stats, model } = this.message;
        const parts = [];
        if (stats.completion) parts.push([`${stats.exact ? '' : '≈ '}${count(stats.completion)} tokens`, 'Tokens of the answer, with its reasoning']);
        const speed = rate(stats);
        if (speed) parts.push([speed, 'Tokens per second after the first']);
        if (!generation && stats.first !== null) parts.push([`first after ${duration(stats.first)}`, 'Time to the first token']);
        if (!generation && stats.prompt) {
            const share = stats.cached === null ? '' : `, ${Math.round((100 * stats.cached) / stats.prompt)}% cached`;
            parts.push([`prompt ${count(stats.prompt)}${share}`, 'Tokens of the prompt, and the share that was not computed again']);
        }
        if (!generation && model) parts.push([model, 'The model that answered']);
        this.stats.replaceChildren(...parts.map(([text, title]) => h('span', { title }, text)));
    }

    /** Turns a question into a field, to ask it differently. */
    edit() {
        if (this.editor) return;
        const { message } = this;
        const area = h('textarea', { 'aria-label': 'Edit message', rows: '1' });
        area.value = message.content;
        const fit = () => {
            area.style.height = 'auto';
            area.style.height = `${Math.min(area.scrollHeight, 400)}px`;
        };
        const close = () => {
            this.editor.remove();
            this.editor = null;
            this.element.classList.remove('editing');
            this.actions.focus();
        };
        const send = () => {
            const text = area.value;
            if (!text.trim()) return;
            close();
            this.actions.edit(message, text);
        };
        area.addEventListener('input', fit);
        area.addEventListener('keydown', (event) => {
            if (event.key === 'Escape') close();
            else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) send();
            else return;
            event.preventDefault();
            event.stopPropagation();
        });
        const cancel = h('button', { type: 'button', class: 'button', onclick: close }, 'Cancel');
        const submit = h('button', { type: 'button', class: 'button primary', onclick: send }, 'Send');
        this.editor = h('div', { class: 'editor' }, area, h('div', { class: 'editor-buttons' }, cancel, submit));
        this.element.classList.add('editing');
        this.element.prepend(this.editor);
        fit();
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    }
}
