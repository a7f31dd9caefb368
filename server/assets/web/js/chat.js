// The state of the page and everything that a person can do to it. Views listen to its events:
// `list` (the conversations), `open` (another one is shown), `path` (its messages), `message` (one of
// them grew), `settings`.

import { Generation } from './generation.js';
import { titleOf } from './format.js';
import { lastSettings, remember, remembered, requestFields } from './settings.js';
import { ROOT, newId, pathOf, requestMessages, versionOf } from './tree.js';
import { fromFile, toFile } from './transfer.js';

export class Chat extends EventTarget {
    constructor(store) {
        super();
        this.store = store;
        this.conversations = new Map();
        /** The shown conversation; null for a new one that has no message yet. */
        this.current = null;
        this.messages = new Map();
        /** Settings of the new conversation. */
        this.draft = lastSettings();
        /** Running answers by message id. They go on when another conversation is shown. */
        this.running = new Map();
        // Other tabs of the same browser share the database.
        this.tabs = new BroadcastChannel('forge-chat');
        this.tabs.onmessage = () => this.loadList();
    }

    tell(type, detail = null) {
        this.dispatchEvent(new CustomEvent(type, { detail }));
    }

    listChanged() {
        this.tell('list');
        this.tabs.postMessage('list');
    }

    async loadList() {
        const all = await this.store.conversations();
        // The shown conversation and those being written keep their object, which others hold.
        this.conversations = new Map(all.map((one) => [one.id, this.conversations.get(one.id) ?? one]));
        for (const one of all) Object.assign(this.conversations.get(one.id), { title: one.title, updated: one.updated });
        this.tell('list');
    }

    get settings() {
        return this.current?.settings ?? this.draft;
    }

    async changeSettings(change) {
        Object.assign(this.settings, change);
        this.draft = structuredClone(this.settings);
        remember('settings', JSON.stringify(this.draft));
        this.tell('settings');
        if (this.current) await this.store.putConversation(this.current);
    }

    get path() {
        return this.current ? pathOf(this.current, this.messages) : [];
    }

    /** The answer that is being written in the shown conversation. */
    get generation() {
        const last = this.path.at(-1);
        return (last && this.running.get(last.id)) ?? null;
    }

    isRunning(conversation) {
        return [...this.running.values()].some((one) => one.message.conversation === conversation);
    }

    /** Shows a conversation, or an empty one for an id that is not there. */
    async open(id) {
        const conversation = this.conversations.get(id) ?? null;
        this.opening = conversation;
        const stored = conversation ? await this.store.messages(id) : [];
        // Another one was chosen meanwhile.
        if (this.opening !== conversation) return;
        this.current = conversation;
        this.messages = new Map(stored.map((message) => [message.id, this.running.get(message.id)?.message ?? message]));
        for (const message of this.messages.values()) {
            // The page that wrote this answer was closed.
            if (message.status === 'streaming' && !this.running.has(message.id)) message.status = 'stopped';
        }
        this.tell('open');
        this.tell('settings');
    }

    async send(text) {
        if (this.generation || !text.trim()) return;
        await this.ensureConversation(text);
        const parent = this.path.at(-1)?.id ?? ROOT;
        await this.answer(await this.addUser(text, parent));
    }

    async ensureConversation(text) {
        if (this.current) return;
        const now = Date.now();
        this.current = { id: newId(), title: titleOf(text), created: now, updated: now, settings: structuredClone(this.draft), selected: {} };
        this.messages = new Map();
        this.conversations.set(this.current.id, this.current);
        await this.store.putConversation(this.current);
        this.tell('open');
    }

    /** Puts a changed copy of a message beside it and answers that; an answer being written ends. */
    async edit(message, text) {
        if (!text.trim()) return;
        this.stop();
        await this.answer(await this.addUser(text, message.parent));
    }

    /** Answers again; the old answer stays as another version. */
    async regenerate(message) {
        this.stop();
        await this.answer(this.messages.get(message.parent) ?? { id: ROOT });
    }

    /** Shows the version before (-1) or after (+1). */
    async flip(message, step) {
        const { index, all } = versionOf(this.messages, message);
        const other = all[index + step];
        if (!other) return;
        this.current.selected[message.parent] = other.id;
        await this.store.putConversation(this.current);
        this.tell('path', { keepScroll: true });
    }

    stop() {
        this.generation?.stop();
    }

    async addUser(text, parent) {
        const message = this.newMessage('user', parent);
        Object.assign(message, { content: text, status: 'done' });
        await this.add(message);
        return message;
    }

    newMessage(role, parent) {
        const stats = { prompt: null, cached: null, completion: 0, first: null, seconds: 0, thought: null, exact: false };
        // Two messages of one millisecond keep their order.
        this.clock = Math.max(Date.now(), (this.clock ?? 0) + 1);
        return {
            id: newId(), conversation: this.current.id, parent, role, content: '', reasoning: '', created: this.clock,
            status: 'streaming', error: null, model: '', finish: '', stats,
        };
    }

    async add(message) {
        this.messages.set(message.id, message);
        this.current.selected[message.parent] = message.id;
        this.current.updated = Date.now();
        await Promise.all([this.store.putMessage(message), this.store.putConversation(this.current)]);
        this.listChanged();
    }

    async answer(question) {
        const conversation = this.current;
        const message = this.newMessage('assistant', question.id);
        const generation = new Generation(message, {
            save: (one) => (this.conversations.has(conversation.id) ? this.store.putMessage(one) : null),
            changed: () => this.tell('message', message),
        });
        this.running.set(message.id, generation);
        await this.add(message);
        const messages = requestMessages(conversation.settings.system, this.path.slice(0, -1));
        this.tell('path');
        try {
            await generation.run({ ...requestFields(conversation.settings), messages }, remembered('key'));
        } finally {
            this.running.delete(message.id);
        }
        if (this.current === conversation) this.tell('path', { keepScroll: true, finished: message });
        this.listChanged();
    }

    async rename(id, title) {
        const conversation = this.conversations.get(id);
        if (!conversation || !title.trim()) return;
        conversation.title = title.trim();
        await this.store.putConversation(conversation);
        this.listChanged();
    }

    async remove(id) {
        for (const one of this.running.values()) if (one.message.conversation === id) one.stop();
        this.conversations.delete(id);
        await this.store.deleteConversation(id);
        this.listChanged();
        if (this.current?.id === id) await this.open(null);
    }

    /** The conversations in which `words` occur; `isStale` ends a search nobody waits for. */
    async search(words, isStale) {
        const wanted = words.toLowerCase();
        const found = new Set();
        for (const conversation of this.conversations.values()) {
            if (isStale()) return found;
            if (conversation.title.toLowerCase().includes(wanted)) found.add(conversation.id);
            else {
                const messages = await this.store.messages(conversation.id);
                if (messages.some((message) => message.content.toLowerCase().includes(wanted))) found.add(conversation.id);
            }
        }
        return found;
    }

    async exportAll() {
        const entries = [];
        for (const conversation of this.conversations.values()) {
            entries.push({ conversation, messages: await this.store.messages(conversation.id) });
        }
        return toFile(entries);
    }

    /** Adds a file's conversations; those that are here stay as they are. */
    async import(text) {
        const entries = fromFile(text).filter(({ conversation }) => !this.conversations.has(conversation.id));
        for (const { conversation, messages } of entries) await this.store.putAll(conversation, messages);
        await this.loadList();
        this.listChanged();
        return entries.length;
    }
}
