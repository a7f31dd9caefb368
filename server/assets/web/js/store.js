// Conversations in this browser's IndexedDB. A message is a record of its own, so that saving a growing
// answer does not write the whole conversation again.

const NAME = 'forge-chat';

function settled(request) {
    return new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });
}

function upgrade(database) {
    database.createObjectStore('conversations', { keyPath: 'id' });
    database.createObjectStore('messages', { keyPath: 'id' }).createIndex('conversation', 'conversation');
}

/** The store of this browser, or one that forgets if the browser keeps nothing. */
export async function openStore() {
    try {
        const request = indexedDB.open(NAME, 1);
        request.onupgradeneeded = () => upgrade(request.result);
        return new BrowserStore(await settled(request));
    } catch {
        return new MemoryStore();
    }
}

class BrowserStore {
    constructor(database) {
        this.database = database;
        this.lasting = true;
    }

    records(name, mode = 'readonly') {
        return this.database.transaction(name, mode).objectStore(name);
    }

    conversations() {
        return settled(this.records('conversations').getAll());
    }

    messages(conversation) {
        return settled(this.records('messages').index('conversation').getAll(conversation));
    }

    putConversation(conversation) {
        return settled(this.records('conversations', 'readwrite').put(conversation));
    }

    putMessage(message) {
        return settled(this.records('messages', 'readwrite').put(message));
    }

    /** Adds a conversation with its messages, all or nothing. */
    putAll(conversation, messages) {
        const transaction = this.database.transaction(['conversations', 'messages'], 'readwrite');
        transaction.objectStore('conversations').put(conversation);
        const records = transaction.objectStore('messages');
        for (const message of messages) records.put(message);
        return new Promise((resolve, reject) => {
            transaction.oncomplete = resolve;
            transaction.onerror = transaction.onabort = () => reject(transaction.error);
        });
    }

    deleteConversation(id) {
        const transaction = this.database.transaction(['conversations', 'messages'], 'readwrite');
        transaction.objectStore('conversations').delete(id);
        const records = transaction.objectStore('messages');
        const keys = records.index('conversation').getAllKeys(id);
        keys.onsuccess = () => keys.result.forEach((key) => records.delete(key));
        return new Promise((resolve, reject) => {
            transaction.oncomplete = resolve;
            transaction.onerror = transaction.onabort = () => reject(transaction.error);
        });
    }
}

class MemoryStore {
    constructor() {
        this.lasting = false;
        this.kept = new Map();
        this.texts = new Map();
    }

    async conversations() {
        return [...this.kept.values()];
    }

    async messages(conversation) {
        return [...this.texts.values()].filter((message) => message.conversation === conversation);
    }

    async putConversation(conversation) {
        this.kept.set(conversation.id, structuredClone(conversation));
    }

    async putMessage(message) {
        this.texts.set(message.id, structuredClone(message));
    }

    async putAll(conversation, messages) {
        await this.putConversation(conversation);
        for (const message of messages) await this.putMessage(message);
    }

    async deleteConversation(id) {
        this.kept.delete(id);
        for (const [key, message] of this.texts) if (message.conversation === id) this.texts.delete(key);
    }
}
