// The list of conversations: open, find, rename, delete.

import { byId, h, toast } from './dom.js';
import { ageGroup } from './format.js';
import { icon } from './icons.js';

/** Typing pauses this long, in milliseconds, before texts are searched. */
const SEARCH_DELAY = 150;

export class Sidebar {
    constructor(chat, { open, confirm }) {
        this.chat = chat;
        this.openConversation = open;
        this.confirm = confirm;
        this.list = byId('conversations');
        this.field = byId('search');
        /** Ids that the search found; null shows all. */
        this.found = null;
        this.query = 0;
        this.field.addEventListener('input', () => this.search());
        this.field.addEventListener('keydown', (event) => {
            if (event.key !== 'Escape' || !this.field.value) return;
            event.stopPropagation();
            this.field.value = '';
            this.search();
        });
        for (const event of ['list', 'open']) chat.addEventListener(event, () => this.draw());
        chat.addEventListener('path', () => this.draw());
    }

    search() {
        const query = ++this.query;
        const words = this.field.value.trim();
        clearTimeout(this.timer);
        if (!words) {
            this.found = null;
            this.draw();
            return;
        }
        this.timer = setTimeout(async () => {
            const found = await this.chat.search(words, () => query !== this.query);
            if (query !== this.query) return;
            this.found = found;
            this.draw();
        }, SEARCH_DELAY);
    }

    draw() {
        // A rename in progress is not torn away by news from elsewhere.
        if (this.list.querySelector('input')) return;
        const shown = [...this.chat.conversations.values()]
            .filter((one) => this.found === null || this.found.has(one.id))
            .sort((one, other) => other.updated - one.updated);
        const focused = this.list.contains(document.activeElement) ? document.activeElement.closest('li')?.dataset.id : null;
        const children = [];
        let group = '';
        for (const conversation of shown) {
            const age = ageGroup(conversation.updated);
            if (age !== group) children.push(h('li', { class: 'group', role: 'presentation' }, age));
            group = age;
            children.push(this.row(conversation));
        }
        if (!shown.length) {
            children.push(h('li', { class: 'none' }, this.found === null ? 'Conversations will appear here.' : 'Nothing found.'));
        }
        this.list.replaceChildren(...children);
        if (focused) this.list.querySelector(`li[data-id="${CSS.escape(focused)}"] .open`)?.focus();
    }

    row(conversation) {
        const current = this.chat.current?.id === conversation.id;
        const open = h('button', {
            type: 'button', class: 'open', title: conversation.title, 'aria-current': current ? 'page' : null,
            onclick: () => this.openConversation(conversation.id),
            ondblclick: () => this.rename(conversation),
        }, conversation.title);
        const rename = h('button', {
            type: 'button', class: 'icon-button', 'aria-label': `Rename ${conversation.title}`, title: 'Rename', onclick: () => this.rename(conversation),
        }, icon('edit', 15));
        const remove = h('button', {
            type: 'button', class: 'icon-button', 'aria-label': `Delete ${conversation.title}`, title: 'Delete', onclick: () => this.remove(conversation),
        }, icon('trash', 15));
        const running = this.chat.isRunning(conversation.id);
        return h('li', { class: `conversation ${current ? 'current' : ''} ${running ? 'running' : ''}`, 'data-id': conversation.id }, open, rename, remove);
    }

    rename(conversation) {
        const row = this.list.querySelector(`li[data-id="${CSS.escape(conversation.id)}"]`);
        const field = h('input', { class: 'rename', 'aria-label': 'New title', maxlength: '200' });
        field.value = conversation.title;
        let done = false;
        const finish = (keep) => {
            if (done) return;
            done = true;
            field.remove();
            if (keep) this.chat.rename(conversation.id, field.value);
            this.draw();
        };
        field.addEventListener('keydown', (event) => {
            if (event.key !== 'Enter' && event.key !== 'Escape') return;
            event.stopPropagation();
            finish(event.key === 'Enter');
        });
        field.addEventListener('blur', () => finish(true));
        row.replaceChildren(field);
        field.select();
    }

    async remove(conversation) {
        if (!await this.confirm(`Delete “${conversation.title}”?`, 'It cannot be brought back.', 'Delete')) return;
        await this.chat.remove(conversation.id);
        toast('Conversation deleted');
    }
}
