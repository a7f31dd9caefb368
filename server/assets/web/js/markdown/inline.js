// Text -> spans: emphasis by CommonMark's delimiter algorithm, code, links, bare addresses, line
// breaks. The time is linear in the text but for pathological input, which the bounds below cut.

/** Longer paragraphs are shown without markup. */
const MAX_LENGTH = 60_000;

const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/;
// Scripts without spaces between words: emphasis beside them would otherwise fail at punctuation.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]/u;
const ENTITY = /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(amp|lt|gt|quot|apos|nbsp|copy|mdash|ndash|hellip|times|rarr|larr));/y;
const ENTITIES = {
    amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', mdash: '—', ndash: '–',
    hellip: '…', times: '×', rarr: '→', larr: '←',
};
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/y;
const ADDRESS = /https?:\/\/[^\s<>"`]+/y;
const TARGET = /\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.|\([^\s()]*\))*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;

/**
 * The spans of `text`: `{ type: text|code|strong|em|del|link|image|break|formula, … }`.
 * With `open` the text is still being written: `**` and backticks without their partner count as
 * closed at the end, so a word does not change its face when the partner arrives.
 */
export function parseInline(text, open = false) {
    if (text.length > MAX_LENGTH) return [{ type: 'text', text }];
    return new Scanner(open ? text.replace(/[*`~]+$/, '') : text, open).run();
}

class Scanner {
    constructor(text, open) {
        this.text = text;
        this.open = open;
        this.at = 0;
        this.items = [];
        this.plain = '';
        this.delimiters = [];
        this.brackets = [];
        // Lengths of backtick runs known to have no partner after a place: each is searched once.
        this.unclosed = new Set();
    }

    run() {
        const { text } = this;
        while (this.at < text.length) {
            if (!this.step(text[this.at])) {
                this.plain += text[this.at];
                this.at += 1;
            }
        }
        this.flush();
        this.pair(0);
        const virtual = this.open ? this.closeAtEnd() : [];
        return build([...this.items, ...virtual], 0);
    }

    /** Handles the character if it is special here; false if it is text. */
    step(character) {
        switch (character) {
            case '\\': return this.escape();
            case '`': return this.code();
            case '*': case '_': case '~': return this.delimiter(character);
            case '[': return this.bracket(1, false);
            case '!': return this.text[this.at + 1] === '[' && this.bracket(2, true);
            case ']': return this.link();
            case '<': return this.autolink();
            case 'h': return this.address();
            case '&': return this.entity();
            case '\n': return this.push({ type: 'break' }, 1, this.plain.trimEnd());
            default: return false;
        }
    }

    flush() {
        if (this.plain) this.items.push({ type: 'text', text: this.plain });
        this.plain = '';
    }

    push(item, length, plain = this.plain) {
        this.plain = plain;
        this.flush();
        this.items.push(item);
        this.at += length;
        return true;
    }

    escape() {
        const next = this.text[this.at + 1] ?? '';
        if (next === '(' || next === '[') {
            const end = this.text.indexOf(next === '(' ? '\\)' : '\\]', this.at + 2);
            if (end > 0) {
                const text = this.text.slice(this.at + 2, end).trim();
                return this.push({ type: 'formula', text }, end + 2 - this.at);
            }
        }
        if (next === '\n') return this.push({ type: 'break' }, 2);
        if (!/[!-/:-@[-`{-~]/.test(next)) return false;
        this.plain += next;
        this.at += 2;
        return true;
    }

    code() {
        const run = /`+/y;
        run.lastIndex = this.at;
        const ticks = run.exec(this.text)[0];
        const start = this.at + ticks.length;
        let end = this.unclosed.has(ticks.length) ? -1 : findRun(this.text, ticks.length, start);
        let after = end + ticks.length;
        if (end < 0) {
            this.unclosed.add(ticks.length);
            if (!this.open) {
                this.plain += ticks;
                this.at = start;
                return true;
            }
            end = after = this.text.length;
        }
        let text = this.text.slice(start, end).replace(/\n/g, ' ');
        if (/^ .*[^ ].* $|^ [^ ] $/.test(text)) text = text.slice(1, -1);
        return this.push({ type: 'code', text }, after - this.at);
    }

    delimiter(character) {
        let end = this.at;
        while (this.text[end] === character) end += 1;
        const length = end - this.at;
        if (character === '~' && length !== 2) {
            this.plain += this.text.slice(this.at, end);
            this.at = end;
            return true;
        }
        const before = kindOf(characterBefore(this.text, this.at));
        const after = kindOf(characterAfter(this.text, end));
        const left = after !== 'space' && (after !== 'punctuation' || before !== 'word');
        const right = before !== 'space' && (before !== 'punctuation' || after !== 'word');
        const word = character === '_';
        this.push({
            type: 'delimiter', character, length, left: length, opens: [], closes: [],
            canOpen: left && (!word || !right || before === 'punctuation'),
            canClose: right && (!word || !left || after === 'punctuation'),
        }, length);
        this.delimiters.push(this.items.at(-1));
        return true;
    }

    /** Pairs the delimiters from `bottom` upwards and takes them off the stack. */
    pair(bottom) {
        const stack = [];
        // Below this height no opener for such a closer exists: it keeps the search linear.
        const floor = new Map();
        for (const closer of this.delimiters.splice(bottom)) {
            while (closer.canClose && closer.left > 0) {
                const key = `${closer.character}${closer.canOpen}${closer.length % 3}`;
                const lowest = floor.get(key) ?? 0;
                let at = stack.length - 1;
                while (at >= lowest && !matches(stack[at], closer)) at -= 1;
                if (at < lowest) {
                    floor.set(key, stack.length);
                    break;
                }
                const opener = stack[at];
                const used = Math.min(opener.left, closer.left) >= 2 ? 2 : 1;
                const type = closer.character === '~' ? 'del' : used === 2 ? 'strong' : 'em';
                opener.opens.push(type);
                closer.closes.push(type);
                opener.left -= used;
                closer.left -= used;
                stack.length = opener.left > 0 ? at + 1 : at;
                for (const [other, height] of floor) floor.set(other, Math.min(height, stack.length));
            }
            if (closer.left > 0 && closer.canOpen) stack.push(closer);
        }
        this.delimiters.push(...stack);
    }

    /** Closes what is open at the end of a text that is still being written. */
    closeAtEnd() {
        const closes = [];
        for (const opener of this.delimiters) {
            if (opener.character !== '*' || opener.left !== 2 || opener.closes.length) continue;
            opener.opens.push('strong');
            opener.left = 0;
            closes.unshift('strong');
        }
        return [{ type: 'delimiter', character: '*', left: 0, opens: [], closes }];
    }

    bracket(length, image) {
        this.push({ type: 'text', text: image ? '![' : '[' }, length);
        this.brackets.push({ image, item: this.items.length, delimiters: this.delimiters.length });
        return true;
    }

    link() {
        const opener = this.brackets.pop();
        TARGET.lastIndex = this.at + 1;
        const target = opener && this.text[this.at + 1] === '(' ? TARGET.exec(this.text) : null;
        if (!target) return false;
        this.flush();
        this.pair(opener.delimiters);
        this.delimiters.length = opener.delimiters;
        const children = build(this.items.splice(opener.item), 0);
        this.items.pop();
        // No link inside a link; pictures may be.
        if (!opener.image) this.brackets = this.brackets.filter((bracket) => bracket.image);
        const href = (target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, '$1');
        return this.push({ type: opener.image ? 'image' : 'link', href, children }, 1 + target[0].length);
    }

    autolink() {
        AUTOLINK.lastIndex = this.at;
        const match = AUTOLINK.exec(this.text);
        if (!match) return false;
        const href = match[1].includes(':') ? match[1] : `mailto:${match[1]}`;
        return this.push({ type: 'link', href, children: [{ type: 'text', text: match[1] }] }, match[0].length);
    }

    address() {
        ADDRESS.lastIndex = this.at;
        if (/\w/.test(characterBefore(this.text, this.at)) || this.brackets.some((one) => !one.image)) return false;
        let href = ADDRESS.exec(this.text)?.[0];
        if (!href) return false;
        // The sentence's punctuation, and a bracket that was opened before the address, are not its.
        for (let last = ''; last !== href;) {
            last = href;
            href = href.replace(/[.,:;!?'*_~\]]+$/, '');
            if (href.endsWith(')') && href.split('(').length < href.split(')').length) href = href.slice(0, -1);
        }
        return this.push({ type: 'link', href, children: [{ type: 'text', text: href }] }, href.length);
    }

    entity() {
        ENTITY.lastIndex = this.at;
        const match = ENTITY.exec(this.text);
        if (!match) return false;
        const code = match[1] ? parseInt(match[1], 10) : parseInt(match[2] ?? '', 16);
        this.plain += match[3] ? ENTITIES[match[3]] : codePoint(code);
        this.at += match[0].length;
        return true;
    }
}

function codePoint(code) {
    const valid = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000);
    return valid ? String.fromCodePoint(code) : '\ufffd';
}

function findRun(text, length, from) {
    const runs = /`+/g;
    runs.lastIndex = from;
    for (let run = runs.exec(text); run; run = runs.exec(text)) {
        if (run[0].length === length) return run.index;
    }
    return -1;
}

function matches(opener, closer) {
    if (opener.character !== closer.character) return false;
    // CommonMark's rule of three, by which `*a**b*` is one emphasis.
    const both = opener.canClose || closer.canOpen;
    const sum = opener.length + closer.length;
    return !(both && sum % 3 === 0 && opener.length % 3 !== 0);
}

function characterBefore(text, at) {
    const low = text.charCodeAt(at - 1);
    return low >= 0xdc00 && low < 0xe000 ? text.slice(at - 2, at) : text.slice(Math.max(at - 1, 0), at);
}

function characterAfter(text, at) {
    const code = text.codePointAt(at);
    return code === undefined ? '' : String.fromCodePoint(code);
}

function kindOf(character) {
    if (character === '' || SPACE.test(character)) return 'space';
    return PUNCTUATION.test(character) || UNSPACED.test(character) ? 'punctuation' : 'word';
}

/** The tree of a flat list in which delimiters say what they open and close. */
function build(items) {
    const root = [];
    const open = [{ children: root }];
    const add = (span) => {
        const into = open.at(-1).children;
        if (span.type === 'text' && into.at(-1)?.type === 'text') into.at(-1).text += span.text;
        else into.push(span.type === 'text' ? { ...span } : span);
    };
    for (const item of items) {
        if (item.type !== 'delimiter') {
            add(item);
            continue;
        }
        for (let closed = 0; closed < item.closes.length; closed += 1) open.pop();
        if (item.left > 0) add({ type: 'text', text: item.character.repeat(item.left) });
        for (const type of item.opens.toReversed()) {
            const span = { type, children: [] };
            add(span);
            open.push(span);
        }
    }
    return root;
}
