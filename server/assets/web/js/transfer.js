// Conversations to and from JSON files. What a file holds is checked field by field.

import { checkedSettings } from './settings.js';
import { ROOT, newId } from './tree.js';

const FORMAT = 'forge-chat';
const STATUSES = ['done', 'stopped', 'error'];

/** The text of a file with these conversations, `[{ conversation, messages }]`. */
export function toFile(entries) {
    const conversations = entries.map(({ conversation, messages }) => ({ ...conversation, messages }));
    return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
}

/** The conversations of such a file. Throws an error for people if it is something else. */
export function fromFile(text) {
    let file;
    try {
        file = JSON.parse(text);
    } catch {
        throw new Error('This file is no JSON.');
    }
    if (file?.format !== FORMAT || file.version !== 1 || !Array.isArray(file.conversations)) {
        throw new Error('This file holds no conversations of forge.');
    }
    return file.conversations.map(checkedEntry);
}

function string(value, name) {
    if (typeof value !== 'string') throw new Error(`A conversation in this file has no ${name}.`);
    return value;
}

function time(value) {
    return Number.isFinite(value) ? value : Date.now();
}

function checkedEntry(entry) {
    const id = string(entry?.id, 'id');
    if (!Array.isArray(entry.messages)) throw new Error('A conversation in this file has no messages.');
    // New ids: a file must not overwrite messages of another conversation by naming theirs.
    const ids = new Map([[ROOT, ROOT]]);
    for (const message of entry.messages) ids.set(string(message?.id, 'message id'), newId());
    const messages = entry.messages.map((message) => ({
        ...checkedMessage(message), id: ids.get(message.id), parent: ids.get(message.parent) ?? ROOT, conversation: id,
    }));
    const selected = {};
    for (const [parent, child] of Object.entries(entry.selected ?? {})) {
        if (ids.has(parent) && ids.has(child)) selected[ids.get(parent)] = ids.get(child);
    }
    const conversation = {
        id,
        title: string(entry.title, 'title'),
        created: time(entry.created),
        updated: time(entry.updated),
        settings: checkedSettings(entry.settings),
        selected,
    };
    return { conversation, messages };
}

function checkedMessage(message) {
    const number = (value) => (Number.isFinite(value) ? value : null);
    const stats = message.stats ?? {};
    return {
        role: message.role === 'user' ? 'user' : 'assistant',
        content: string(message.content, 'message text'),
        reasoning: typeof message.reasoning === 'string' ? message.reasoning : '',
        created: time(message.created),
        status: STATUSES.includes(message.status) ? message.status : 'stopped',
        error: message.error ? { message: String(message.error.message), status: 0, retryAfter: null } : null,
        model: typeof message.model === 'string' ? message.model : '',
        finish: typeof message.finish === 'string' ? message.finish : '',
        stats: {
            prompt: number(stats.prompt), cached: number(stats.cached), completion: number(stats.completion) ?? 0,
            first: number(stats.first), seconds: number(stats.seconds) ?? 0, thought: number(stats.thought), exact: stats.exact === true,
        },
    };
}
