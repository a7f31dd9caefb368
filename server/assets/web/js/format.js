// Numbers and dates as people read them.

const WHOLE = new Intl.NumberFormat('en');

/** `12345` as `12,345`. */
export function count(number) {
    return WHOLE.format(number);
}

/** Seconds as `0.21 s`, `4.8 s`, `52 s` or `3 min 5 s`. */
export function duration(seconds) {
    if (seconds < 1) return `${seconds.toFixed(2)} s`;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** Tokens per second after the first token; null while there is nothing to divide. */
export function rate(stats) {
    if (!stats || !(stats.seconds > 0) || stats.completion < 2) return null;
    const value = (stats.completion - 1) / stats.seconds;
    return `${value < 100 ? value.toFixed(1) : count(Math.round(value))} tok/s`;
}

/** The age group under which a conversation is listed. */
export function ageGroup(time, now = Date.now()) {
    const midnight = new Date(now).setHours(0, 0, 0, 0);
    const day = 24 * 3600 * 1000;
    if (time >= midnight) return 'Today';
    if (time >= midnight - day) return 'Yesterday';
    if (time >= midnight - 7 * day) return 'Last 7 days';
    if (time >= midnight - 30 * day) return 'Last 30 days';
    return 'Older';
}

/** The first line of a message, cut at a word, as a title. */
export function titleOf(text) {
    const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ').slice(0, 200);
    if (line.length <= 56) return line || 'New chat';
    const cut = line.slice(0, 56);
    return `${cut.slice(0, Math.max(cut.lastIndexOf(' '), 30))}…`;
}
