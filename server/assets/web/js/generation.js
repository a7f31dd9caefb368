// One answer while it is being written: reads the stream into the message and measures it.

import { ApiError, streamChat } from './api.js';

/** How often a growing answer is saved, in milliseconds: a reload loses no more than that. */
const SAVE_EVERY = 1000;

/** The server tells how far it has read the prompt in a comment: `prefill 4096/20000`. */
const PREFILL = /^prefill (\d+)\/(\d+)$/;

export class Generation {
    /** `save` stores the message, `changed` shows it. */
    constructor(message, { save, changed }) {
        this.message = message;
        this.save = save;
        this.changed = changed;
        this.controller = new AbortController();
        this.started = performance.now();
        /** What is known before the first token. */
        this.waiting = { opened: false, sign: this.started, read: 0, total: 0 };
        this.firstAt = 0;
        this.lastAt = 0;
        this.savedAt = this.started;
    }

    /** Ends the answer where it is. */
    stop() {
        this.controller.abort();
    }

    /** Runs until the answer is complete, stopped or failed; throws only if it cannot be saved. */
    async run(body, key) {
        const { message } = this;
        // A long wait shows its seconds, so the page is refreshed without news, too.
        const clock = setInterval(this.changed, 1000);
        try {
            for await (const event of streamChat(body, { key, signal: this.controller.signal })) this.take(event);
            message.status = 'done';
        } catch (error) {
            this.fail(error);
        }
        clearInterval(clock);
        this.measure();
        await this.save(message);
        this.changed();
    }

    fail(error) {
        const { message } = this;
        if (error.name === 'AbortError') {
            message.status = 'stopped';
            return;
        }
        message.status = 'error';
        const known = error instanceof ApiError;
        message.error = { message: known ? error.message : `The page failed: ${error.message}`, status: error.status ?? 0, retryAfter: error.retryAfter ?? null };
    }

    take(event) {
        this.waiting.sign = performance.now();
        if (event.opened) this.waiting.opened = true;
        const prefill = PREFILL.exec(event.comment ?? '');
        if (prefill) [this.waiting.read, this.waiting.total] = [Number(prefill[1]), Number(prefill[2])];
        if (event.chunk) this.takeChunk(event.chunk);
        if (!event.comment) this.changed();
    }

    takeChunk(chunk) {
        const { message } = this;
        const choice = chunk.choices?.[0];
        const content = choice?.delta?.content ?? '';
        const reasoning = choice?.delta?.reasoning_content ?? '';
        if (content || reasoning) this.count(content);
        message.content += content;
        message.reasoning += reasoning;
        if (chunk.model) message.model = chunk.model;
        if (choice?.finish_reason) message.finish = choice.finish_reason;
        if (chunk.usage) {
            message.stats.prompt = chunk.usage.prompt_tokens ?? null;
            message.stats.completion = chunk.usage.completion_tokens ?? message.stats.completion;
            message.stats.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? null;
            message.stats.exact = true;
        }
        this.measure();
        if (performance.now() - this.savedAt > SAVE_EVERY) {
            this.savedAt = performance.now();
            this.save(message);
        }
    }

    count(content) {
        const { stats } = this.message;
        this.lastAt = performance.now();
        if (!this.firstAt) {
            this.firstAt = this.lastAt;
            stats.first = (this.firstAt - this.started) / 1000;
        }
        if (content && !this.message.content && this.message.reasoning) {
            stats.thought = (this.lastAt - this.firstAt) / 1000;
        }
        // Until the usage arrives a part counts as a token, which it is for most servers.
        if (!stats.exact) stats.completion += 1;
    }

    measure() {
        this.message.stats.seconds = (this.lastAt - this.firstAt) / 1000;
    }
}
