// What a conversation asks of the model, and what this browser remembers between visits.

/** Numbers of the request; an empty field leaves the choice to the model's own defaults. */
export const SAMPLING = [
    { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, hint: '0 always takes the likeliest token' },
    { name: 'top_p', label: 'Top P', min: 0, max: 1, step: 0.01, hint: 'keeps the likeliest tokens up to this probability' },
    { name: 'top_k', label: 'Top K', min: 0, max: 1000, step: 1, hint: 'keeps this many tokens; 0 keeps all' },
    { name: 'min_p', label: 'Min P', min: 0, max: 1, step: 0.01, hint: 'drops tokens below this share of the best' },
    { name: 'max_tokens', label: 'Max tokens', min: 1, max: 1_000_000, step: 1, hint: 'the longest answer' },
    { name: 'seed', label: 'Seed', min: 0, max: 4_294_967_295, step: 1, hint: 'the same seed repeats an answer' },
];

/** `thinking` is `auto` (the model's template decides), `on` or `off`. */
const DEFAULTS = { model: '', system: '', thinking: 'auto', sampling: {} };

const KEYS = { settings: 'forge.settings', key: 'forge.api-key', theme: 'forge.theme', sidebar: 'forge.sidebar' };

function read(name) {
    try {
        return localStorage.getItem(KEYS[name]);
    } catch {
        return null;
    }
}

/** Keeps a value; a browser that forbids storage forgets it with the page. */
export function remember(name, value) {
    try {
        if (value === null || value === '') localStorage.removeItem(KEYS[name]);
        else localStorage.setItem(KEYS[name], value);
    } catch {
        // Storage is forbidden: the page works all the same.
    }
}

export function remembered(name) {
    return read(name) ?? '';
}

/** Settings of which every field is there and of the right kind, whatever a file or a browser held. */
export function checkedSettings(value) {
    const given = value && typeof value === 'object' ? value : {};
    const sampling = {};
    for (const { name, min, max } of SAMPLING) {
        const number = given.sampling?.[name];
        if (typeof number === 'number' && number >= min && number <= max) sampling[name] = number;
    }
    return {
        model: typeof given.model === 'string' ? given.model : DEFAULTS.model,
        system: typeof given.system === 'string' ? given.system : DEFAULTS.system,
        thinking: ['on', 'off'].includes(given.thinking) ? given.thinking : DEFAULTS.thinking,
        sampling,
    };
}

/** The settings used last: those of the next conversation. */
export function lastSettings() {
    try {
        return checkedSettings(JSON.parse(remembered('settings') || '{}'));
    } catch {
        return checkedSettings({});
    }
}

/** The request's fields for these settings, without the messages. */
export function requestFields(settings) {
    const thinking = settings.thinking === 'auto' ? {} : { chat_template_kwargs: { enable_thinking: settings.thinking === 'on' } };
    return { model: settings.model, ...settings.sampling, ...thinking, stream: true, stream_options: { include_usage: true } };
}
