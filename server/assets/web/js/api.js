// The OpenAI-compatible interface of the server that served this page.

import { EventParser } from './sse.js';

/** What the server or the network said instead of an answer. */
export class ApiError extends Error {
    constructor(message, { status = 0, retryAfter = null } = {}) {
        super(message);
        this.status = status;
        this.retryAfter = retryAfter;
    }
}

function headers(key) {
    return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(path, options) {
    try {
        return await fetch(path, { cache: 'no-store', credentials: 'omit', ...options });
    } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new ApiError('The server cannot be reached. Is forge still running?');
    }
}

async function failure(response) {
    let message = '';
    try {
        const body = await response.json();
        message = body?.error?.message ?? (typeof body?.error === 'string' ? body.error : '');
    } catch {
        // Not every proxy answers in JSON: the status says enough.
    }
    const retryAfter = Number(response.headers.get('Retry-After')) || null;
    const fallback = `The server answered with status ${response.status}.`;
    return new ApiError(message || fallback, { status: response.status, retryAfter });
}

/** Whether the server is up and its model loaded: `ready`, `loading` or `unreachable`. */
export async function health() {
    try {
        const response = await request('health', { signal: AbortSignal.timeout(5000) });
        return response.ok ? 'ready' : response.status === 503 ? 'loading' : 'unreachable';
    } catch {
        return 'unreachable';
    }
}

/** The names of the models that the server offers. */
export async function models(key) {
    const response = await request('v1/models', { headers: headers(key) });
    if (!response.ok) throw await failure(response);
    const body = await response.json();
    return (Array.isArray(body?.data) ? body.data : []).map((model) => String(model.id));
}

/**
 * Asks for an answer and yields what arrives: `{ opened: true }` once the server has taken the request,
 * `{ comment }` for signs of life, `{ chunk }` for a part of the answer.
 */
export async function* streamChat(body, { key, signal }) {
    const response = await request('v1/chat/completions', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', ...headers(key) },
        body: JSON.stringify(body),
        signal,
    });
    if (!response.ok) throw await failure(response);
    yield { opened: true };
    const parser = new EventParser();
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    try {
        for (;;) {
            const { value, done } = await readPiece(reader);
            if (done) throw new ApiError('The connection ended before the answer was complete.');
            for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
                if (event.comment !== undefined) yield event;
                else if (event.data === '[DONE]') return;
                else yield { chunk: parseChunk(event.data) };
            }
        }
    } finally {
        // Closing the connection tells the server to stop computing.
        reader.cancel().catch(() => {});
    }
}

async function readPiece(reader) {
    try {
        return await reader.read();
    } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new ApiError('The connection to the server broke off.');
    }
}

function parseChunk(data) {
    let chunk;
    try {
        chunk = JSON.parse(data);
    } catch {
        throw new ApiError('The server sent something that is no JSON.');
    }
    if (chunk?.error) throw new ApiError(chunk.error.message ?? String(chunk.error));
    return chunk;
}
