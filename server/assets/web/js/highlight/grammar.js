// The parts from which grammars are made. Kinds: k keyword, t type, c constant, n number, s string,
// m comment, f function, a attribute or key, p punctuation that matters (a tag, a variable), + and -
// lines of a diff, h heading.

/** A rule: `pattern` (made sticky) gives a token of `kind`; `more` may say `push`, `pop`, `words`. */
export function rule(pattern, kind, more = {}) {
    const flags = `y${pattern.flags.replace('y', '')}`;
    return { pattern: new RegExp(pattern.source, flags), kind, ...more };
}

/** A grammar whose plain text has the given kind. */
export function grammar(rules, kind = '', endsWithLine = false) {
    return { rules, kind, endsWithLine };
}

/** From `open` to `close`, over lines: a block comment, a long string. */
export function span(open, close, kind, { escape = false, nested = false, inside = [] } = {}) {
    const inner = grammar([], kind);
    inner.rules.push(rule(close, kind, { pop: true }));
    if (escape) inner.rules.push(rule(/\\./, kind));
    inner.rules.push(...inside);
    const start = rule(open, kind, { push: inner });
    if (nested) inner.rules.push(start);
    return start;
}

function setOf(words) {
    return new Set(words.trim().split(/\s+/).filter(Boolean));
}

/** Names: keywords, constants and types by list, types also by their capital, calls by their bracket. */
export function names({ keywords = '', types = '', constants = '', capital = true, ignoreCase = false }) {
    const lists = [[setOf(keywords), 'k'], [setOf(types), 't'], [setOf(constants), 'c']];
    const known = (name) => {
        const key = ignoreCase ? name.toLowerCase() : name;
        return lists.find(([words]) => words.has(key))?.[1];
    };
    return [
        rule(/[A-Za-z_$][\w$]*(?=\s*\()/, 'f', { words: (name) => known(name) ?? 'f' }),
        rule(/[A-Za-z_$][\w$]*/, '', {
            words: (name) => known(name) ?? (capital && /^[A-Z][a-zA-Z]*[a-z]/.test(name) ? 't' : /^[A-Z][A-Z\d_]+$/.test(name) ? 'c' : ''),
        }),
    ];
}

export const NUMBER = rule(/(?:0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z\d]*/, 'n');
export const DOUBLE = rule(/"(?:[^"\\]|\\.)*(?:"|\\?$)/, 's');
export const SINGLE = rule(/'(?:[^'\\]|\\.)*(?:'|\\?$)/, 's');
export const SPACES = rule(/\s+/, '');

/** A comment from `pattern` to the end of the line. */
export function lineComment(pattern) {
    return rule(new RegExp(`(?:${pattern.source}).*`), 'm');
}

export const SLASHES = lineComment(/\/\//);
export const HASH = lineComment(/#/);
export const BLOCK = span(/\/\*/, /\*\//, 'm');

/** A language with the comments and strings of C; `first` are rules that go before all others. */
export function likeC(words, { first = [], strings = [DOUBLE, SINGLE], comments = [SLASHES, BLOCK] } = {}) {
    return grammar([SPACES, ...first, ...comments, ...strings, NUMBER, ...names(words)]);
}
