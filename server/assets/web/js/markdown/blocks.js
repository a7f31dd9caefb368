// Lines -> blocks: the structure of Markdown as chat models write it (CommonMark with tables, task
// lists and formula blocks). Raw HTML is no block: it stays text. Two rules differ from CommonMark,
// because models mean something else: `---` under a paragraph is a rule and not a heading, and an item
// indented by two spaces under `1.` is nested.

/** Deeper quotes and lists are text: hostile input must not exhaust the stack. */
const MAX_DEPTH = 12;

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>/;
const MARKER = /^( *)([-+*]|\d{1,9}[.)])( +|$)(.*)$/;
const TASK = /^\[([ xX])\] +/;

/**
 * The blocks of `lines`. Each has `type`, `from` and `to` (line numbers) and `raw` (its source, by
 * which a renderer knows that a block has not changed).
 */
export function parseBlocks(lines, depth = 0) {
    const blocks = [];
    let at = 0;
    while (at < lines.length) {
        if (isBlank(lines[at])) {
            at += 1;
            continue;
        }
        const block = parseBlock(lines, at, depth);
        block.from = at;
        block.raw = lines.slice(at, block.to).join('\n');
        blocks.push(block);
        at = block.to;
    }
    return blocks;
}

function parseBlock(lines, at, depth) {
    const line = lines[at];
    const fence = openFence(line);
    if (fence) return parseFence(lines, at, fence);
    if (/^(?: {4}|\t)/.test(line)) return parseIndented(lines, at);
    const heading = HEADING.exec(line);
    if (heading) return { type: 'heading', level: heading[1].length, text: heading[2] ?? '', to: at + 1 };
    if (RULE.test(line)) return { type: 'rule', to: at + 1 };
    if (depth < MAX_DEPTH) {
        if (QUOTE.test(line)) return parseQuote(lines, at, depth);
        if (MARKER.test(line)) return parseList(lines, at, depth);
    }
    if (startsTable(lines, at)) return parseTable(lines, at);
    return parseFormula(lines, at) ?? parseParagraph(lines, at, depth);
}

function isBlank(line) {
    return line.trim() === '';
}

function indentOf(line) {
    return /^ */.exec(line)[0].length;
}

function openFence(line) {
    const match = FENCE.exec(line);
    // A backtick in the info string means that this is a code span in a paragraph.
    return match && !(match[2][0] === '`' && match[3].includes('`')) ? match : null;
}

function parseFence(lines, at, [, indent, fence, info]) {
    const closing = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}[ \\t]*$`);
    const strip = new RegExp(`^ {0,${indent.length}}`);
    const body = [];
    let to = at + 1;
    let closed = false;
    for (; to < lines.length && !closed; to += 1) {
        closed = closing.test(lines[to]);
        if (!closed) body.push(indent ? lines[to].replace(strip, '') : lines[to]);
    }
    const language = (/^[^\s{,:]+/.exec(info.trim()) ?? [''])[0];
    return { type: 'code', language, text: body.join('\n'), closed, to };
}

function parseIndented(lines, at) {
    let to = at;
    while (to < lines.length && (isBlank(lines[to]) || /^(?: {4}|\t)/.test(lines[to]))) to += 1;
    while (isBlank(lines[to - 1])) to -= 1;
    const text = lines.slice(at, to).map((line) => line.replace(/^(?: {1,4}|\t)/, '')).join('\n');
    return { type: 'code', language: '', text, closed: true, to };
}

function parseQuote(lines, at, depth) {
    const inner = [];
    let to = at;
    for (; to < lines.length; to += 1) {
        const line = lines[to];
        if (QUOTE.test(line)) inner.push(line.replace(/^ {0,3}> ?/, ''));
        else if (isBlank(line) || interrupts(lines, to) || isBlank(inner.at(-1))) break;
        else inner.push(line);
    }
    return { type: 'quote', children: parseBlocks(inner, depth + 1), to };
}

function parseList(lines, at, depth) {
    const [, , first] = MARKER.exec(lines[at]);
    const ordered = /\d/.test(first);
    const list = { type: 'list', ordered, start: ordered ? parseInt(first, 10) : 1, loose: false, items: [] };
    let to = at;
    let blankBefore = false;
    while (to < lines.length) {
        const marker = MARKER.exec(lines[to]);
        const sibling = marker && marker[2].at(-1) === first.at(-1) && !RULE.test(lines[to]);
        if (!sibling) break;
        const item = parseItem(lines, to, marker, depth);
        if (blankBefore || item.loose) list.loose = true;
        list.items.push(item);
        to = item.to;
        const next = skipBlank(lines, to);
        blankBefore = next > to;
        if (blankBefore && next < lines.length && MARKER.test(lines[next])) to = next;
    }
    // Blank lines after the last item are not the list's.
    while (isBlank(lines[to - 1])) to -= 1;
    list.to = to;
    return list;
}

function skipBlank(lines, at) {
    let next = at;
    while (next < lines.length && isBlank(lines[next])) next += 1;
    return next;
}

function parseItem(lines, at, [, indent, marker, space, rest], depth) {
    const markerEnd = indent.length + marker.length;
    const contentIndent = markerEnd + (space.length > 4 || space.length === 0 ? 1 : space.length);
    const nestedIndent = Math.min(contentIndent, indent.length + 2);
    const inner = [space.length > 4 ? space.slice(1) + rest : rest];
    let to = at + 1;
    let afterBlank = false;
    // No lazy line continues a fence.
    let fence = fenceAfter(null, inner[0]);
    for (; to < lines.length; to += 1) {
        const line = lines[to];
        if (isBlank(line)) {
            // A marker alone, then a blank line: an empty item.
            if (inner.length === 1 && rest === '') break;
            afterBlank = true;
            inner.push('');
            continue;
        }
        const indented = indentOf(line);
        const belongs = indented >= nestedIndent;
        const lazy = !afterBlank && !MARKER.test(line) && !interrupts(lines, to) && fence === null;
        if (!belongs && !lazy) break;
        inner.push(line.slice(Math.min(indented, contentIndent)));
        fence = fenceAfter(fence, inner.at(-1));
        afterBlank = false;
    }
    while (inner.length > 1 && isBlank(inner.at(-1))) {
        inner.pop();
        to -= 1;
    }
    const task = TASK.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const children = parseBlocks(inner, depth + 1);
    const loose = children.some((child, index) => index > 0 && isBlank(inner[child.from - 1]));
    const checked = task ? task[1] !== ' ' : null;
    return { type: 'item', checked, loose, children, raw: inner.join('\n'), to };
}

/** The fence that is open after `line`, given the one that was open before it. */
function fenceAfter(fence, line) {
    if (fence === null) return openFence(line)?.[2] ?? null;
    const text = line.trim();
    return text.startsWith(fence) && text === fence[0].repeat(text.length) ? null : fence;
}

/** The cells of a table row; `\|` is a character. */
function splitRow(line) {
    const cells = [''];
    const text = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
    for (let at = 0; at < text.length; at += 1) {
        if (text[at] === '\\' && text[at + 1] === '|') {
            cells[cells.length - 1] += '|';
            at += 1;
        } else if (text[at] === '|') cells.push('');
        else cells[cells.length - 1] += text[at];
    }
    return cells.map((cell) => cell.trim());
}

function startsTable(lines, at) {
    const delimiter = lines[at + 1];
    if (!lines[at].includes('|') || !delimiter || !/^[ \t|:-]+$/.test(delimiter)) return false;
    const columns = splitRow(delimiter);
    return columns.every((cell) => /^:?-+:?$/.test(cell)) && columns.length === splitRow(lines[at]).length;
}

function parseTable(lines, at) {
    const align = splitRow(lines[at + 1]).map((cell) => {
        if (cell.endsWith(':')) return cell.startsWith(':') ? 'center' : 'right';
        return cell.startsWith(':') ? 'left' : '';
    });
    const rows = [];
    let to = at + 2;
    for (; to < lines.length && !isBlank(lines[to]) && !interrupts(lines, to); to += 1) {
        const cells = splitRow(lines[to]);
        rows.push(align.map((_, column) => cells[column] ?? ''));
    }
    return { type: 'table', align, head: splitRow(lines[at]), rows, to };
}

/** `$$ … $$` and `\[ … \]`, shown as they are: a paragraph would eat their backslashes. */
function parseFormula(lines, at) {
    const line = lines[at].trim();
    const closing = line.startsWith('$$') ? '$$' : line.startsWith('\\[') ? '\\]' : null;
    if (!closing) return null;
    let to = at;
    for (; to < lines.length && !isBlank(lines[to]); to += 1) {
        const text = to === at ? line.slice(2) : lines[to].trim();
        if (!text.includes(closing)) continue;
        if (!text.endsWith(closing)) return null;
        to += 1;
        break;
    }
    const text = lines.slice(at, to).join('\n').trim().slice(2);
    return { type: 'formula', text: (text.endsWith(closing) ? text.slice(0, -2) : text).trim(), to };
}

function parseParagraph(lines, at, depth) {
    let to = at + 1;
    for (; to < lines.length && !isBlank(lines[to]); to += 1) {
        if (/^ {0,3}=+[ \t]*$/.test(lines[to])) {
            return { type: 'heading', level: 1, text: joinLines(lines, at, to), to: to + 1 };
        }
        if (depth < MAX_DEPTH && interrupts(lines, to)) break;
    }
    return { type: 'paragraph', text: joinLines(lines, at, to), to };
}

function joinLines(lines, from, to) {
    return lines.slice(from, to).map((line) => line.trimStart()).join('\n').trimEnd();
}

/** Whether the line begins a block that ends a paragraph without a blank line between. */
function interrupts(lines, at) {
    const line = lines[at];
    if (openFence(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
    const marker = MARKER.exec(line);
    // A number that a sentence ends with at the start of a line is no list, unless it is the first.
    if (marker && marker[1].length < 4 && marker[4] !== '') return /^(?:[-+*]|1[.)])$/.test(marker[2]);
    return startsTable(lines, at);
}
