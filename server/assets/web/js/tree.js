// A conversation is a tree: an edited message or a repeated answer is a sibling of the old one, and the
// conversation remembers which sibling is shown. These functions know no page and no database.

/** Parent of the first messages. */
export const ROOT = 'root';

/** A random name. `crypto.randomUUID` is missing on plain-HTTP origins, where a LAN server lives. */
export function newId() {
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The messages under `parent`, oldest first. */
export function childrenOf(messages, parent) {
    return [...messages.values()]
        .filter((message) => message.parent === parent)
        .sort((one, other) => one.created - other.created);
}

/** The messages that are shown, from the first to the last. */
export function pathOf(conversation, messages) {
    const byParent = new Map();
    for (const message of messages.values()) {
        if (!byParent.has(message.parent)) byParent.set(message.parent, []);
        byParent.get(message.parent).push(message);
    }
    const path = [];
    for (let parent = ROOT; ;) {
        const children = byParent.get(parent);
        // A file may hold a loop: a path is never longer than there are messages.
        if (!children || path.length >= messages.size) return path;
        const chosen = conversation.selected[parent];
        const newest = children.reduce((one, other) => (other.created >= one.created ? other : one));
        const message = children.find((child) => child.id === chosen) ?? newest;
        path.push(message);
        parent = message.id;
    }
}

/** Which of its siblings a message is, and how many there are. */
export function versionOf(messages, message) {
    const all = childrenOf(messages, message.parent);
    return { index: all.findIndex((other) => other.id === message.id), all };
}

/** What the server is asked: the system prompt and the path before the answer. */
export function requestMessages(system, path) {
    const request = system.trim() ? [{ role: 'system', content: system }] : [];
    for (const message of path) {
        if (message.role === 'user') request.push({ role: 'user', content: message.content });
        else if (message.content || message.reasoning) {
            // The reasoning goes back as it came, so that the server finds the same prefix in its cache.
            const reasoning = message.reasoning ? { reasoning_content: message.reasoning } : {};
            request.push({ role: 'assistant', content: message.content, ...reasoning });
        }
    }
    return request;
}
