// Blocks -> elements, kept up to date while the text grows. Only the last top-level block is parsed
// again, and of its parts only those whose source changed are built again, so a token costs the same
// at the start and at the end of a long answer.

import { h } from '../dom.js';
import { parseBlocks } from './blocks.js';
import { parseInline } from './inline.js';
import { CodeView } from './code.js';

/** Shows a Markdown text that may still be growing. */
export class MarkdownView {
    constructor(element) {
        this.element = element;
        this.text = '';
        this.blocks = [];
        /** Where the last block begins in `text`: all before it is final. */
        this.lastStart = 0;
    }

    /** Shows `source`. `open` says that more will follow. */
    update(source, open = false) {
        const text = source.replace(/\r\n?/g, '\n');
        const grown = this.blocks.length > 0 && text.startsWith(this.text);
        const keep = grown ? this.blocks.length - 1 : 0;
        const start = grown ? this.lastStart : 0;
        const lines = text.slice(start).split('\n');
        const fresh = parseBlocks(lines);
        if (open) markOpen(fresh.at(-1));
        patch(this.element, this.blocks.slice(keep), fresh);
        this.blocks = [...this.blocks.slice(0, keep), ...fresh];
        this.text = text;
        this.lastStart = start;
        const last = fresh.at(-1);
        for (let line = 0; last && line < last.from; line += 1) this.lastStart += lines[line].length + 1;
    }
}

/** Marks the block that is being written, and the parts at its end. */
function markOpen(block) {
    if (!block) return;
    block.open = true;
    markOpen((block.items ?? block.children)?.at(-1));
}

/** Makes the children of `parent` show `after`, reusing what showed `before`. */
function patch(parent, before, after) {
    after.forEach((block, index) => {
        const old = before[index];
        if (old && reuse(old, block)) return;
        block.element = build(block);
        if (old) old.element.replaceWith(block.element);
        else parent.append(block.element);
    });
    for (const old of before.slice(after.length)) old.element.remove();
}

/** Takes over the element of `old` if it can show `block`. */
function reuse(old, block) {
    if (old.type !== block.type) return false;
    const same = old.raw === block.raw && old.open === block.open && old.tight === block.tight;
    if (same) {
        Object.assign(block, { element: old.element, view: old.view, items: old.items, children: old.children });
        return true;
    }
    if (block.type === 'code' && old.language === block.language) {
        block.view = old.view;
        block.view.update(block.text, block.closed || !block.open);
    } else if (block.type === 'list' && old.ordered === block.ordered && old.start === block.start) {
        setTight(block);
        patch(old.element, old.items, block.items);
    } else if (block.type === 'quote') {
        patch(old.element, old.children, block.children);
    } else if (block.type === 'item' && old.tight === block.tight && old.checked === block.checked) {
        setTight(block);
        patch(old.element, old.children, block.children);
    } else return false;
    block.element = old.element;
    return true;
}

/** The paragraphs of a list without blank lines stand without space around them. */
function setTight(block) {
    if (block.type === 'list') for (const item of block.items) item.tight = !block.loose;
    if (block.type === 'item') for (const child of block.children) child.tight = block.tight;
}

function build(block) {
    setTight(block);
    switch (block.type) {
        case 'heading': return h(`h${Math.min(block.level + 1, 6)}`, { class: `h${block.level}` }, spans(block.text, block.open));
        case 'rule': return h('hr');
        case 'quote': return withChildren(h('blockquote'), block.children);
        case 'list': return buildList(block);
        case 'item': return buildItem(block);
        case 'table': return buildTable(block);
        case 'formula': return h('div', { class: 'formula block' }, block.text);
        case 'code':
            block.view = new CodeView(block.language);
            block.view.update(block.text, block.closed || !block.open);
            return block.view.element;
        default: return h('p', { class: block.tight ? 'tight' : null }, spans(block.text, block.open));
    }
}

function withChildren(element, blocks) {
    patch(element, [], blocks);
    return element;
}

function buildList(block) {
    const list = h(block.ordered ? 'ol' : 'ul');
    if (block.ordered && block.start !== 1) list.start = block.start;
    return withChildren(list, block.items);
}

function buildItem(block) {
    if (block.checked === null) return withChildren(h('li'), block.children);
    const mark = block.checked ? 'done' : 'to do';
    return withChildren(h('li', { class: `task ${block.checked ? 'done' : ''}`, 'aria-label': mark }), block.children);
}

function buildTable(block) {
    const cell = (tag) => (text, column) => {
        const align = block.align[column];
        return h(tag, { class: align ? `align-${align}` : null }, cellSpans(text));
    };
    const head = h('thead', {}, h('tr', {}, block.head.map(cell('th'))));
    const body = h('tbody', {}, block.rows.map((row) => h('tr', {}, row.map(cell('td')))));
    // It scrolls sideways on a phone, so it takes the focus for the arrow keys.
    return h('div', { class: 'table', role: 'region', 'aria-label': 'Table', tabindex: '0' }, h('table', {}, head, body));
}

/** `<br>` is the only way to break a line in a table cell, so there it is one. */
function cellSpans(text) {
    return text.split(/<br *\/?>/i).flatMap((line, index) => (index ? [h('br'), ...spans(line)] : spans(line)));
}

function spans(text, open = false) {
    return parseInline(text, open).map(buildSpan);
}

function buildSpan(span) {
    switch (span.type) {
        case 'text': return span.text;
        case 'code': return h('code', {}, span.text);
        case 'formula': return h('span', { class: 'formula' }, span.text);
        case 'break': return h('br');
        case 'link': case 'image': return buildLink(span);
        default: return h(span.type, {}, span.children.map(buildSpan));
    }
}

/** A link, if its scheme is harmless. A picture is one too: the page asks no other host for anything. */
function buildLink(span) {
    const children = span.children.length ? span.children.map(buildSpan) : [span.href];
    if (!/^(?:https?:\/\/|mailto:)/i.test(span.href)) {
        return h('span', { class: 'dead-link', title: span.href }, children);
    }
    return h('a', { href: span.href, rel: 'noopener noreferrer', target: '_blank' }, children);
}
