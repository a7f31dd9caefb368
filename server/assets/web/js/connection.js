// The server's state beside the logo, and the list of models.

import { health, models } from './api.js';
import { byId, h } from './dom.js';

/** How soon a server that did not answer is asked again, in milliseconds. */
const RETRY_EVERY = 3000;

const WORDS = {
    connecting: 'Connecting…', ready: 'Connected', loading: 'Loading the model…', unreachable: 'Server not reachable', locked: 'API key needed',
};

export class Connection {
    constructor(chat, key) {
        this.chat = chat;
        this.key = key;
        this.names = [];
        this.select = byId('model');
        this.select.addEventListener('change', () => chat.changeSettings({ model: this.select.value }));
        chat.addEventListener('settings', () => this.drawModels());
        // An answer that failed may mean that the server is gone, or that it offers other models now.
        chat.addEventListener('path', (event) => { if (event.detail?.finished?.status === 'error') this.connect(); });
    }

    show(state) {
        byId('connection').dataset.state = state;
        byId('connection').lastElementChild.textContent = WORDS[state];
    }

    /** Asks the server for its models, again and again until it answers. */
    async connect() {
        clearTimeout(this.timer);
        try {
            this.names = await models(this.key());
            this.show('ready');
            this.choose();
            return;
        } catch (error) {
            if (error.status === 401 || error.status === 403) {
                this.show('locked');
                return;
            }
        }
        const state = await health();
        this.show(state === 'ready' ? 'loading' : state);
        this.timer = setTimeout(() => this.connect(), RETRY_EVERY);
    }

    /** A new conversation starts with a model that is there. */
    choose() {
        const { model } = this.chat.settings;
        if (this.names.length && !this.names.includes(model) && !this.chat.current) this.chat.changeSettings({ model: this.names[0] });
        this.drawModels();
    }

    drawModels() {
        const { model } = this.chat.settings;
        const options = this.names.map((name) => h('option', { value: name }, name));
        if (!this.names.includes(model)) {
            const label = model ? (this.names.length ? `${model} (not here)` : model) : 'No model';
            options.unshift(h('option', { value: model }, label));
        }
        this.select.replaceChildren(...options);
        this.select.value = model;
    }
}
