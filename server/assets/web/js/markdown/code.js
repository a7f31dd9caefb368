// A block of code: language, copy button, coloured lines. Lines that are complete are never built again
// while the block grows.

import { copyText, h } from '../dom.js';
import { icon } from '../icons.js';
import { grammarOf, lexLine } from '../highlight/lexer.js';

/** Blocks with more lines, and longer lines, are shown without colours. */
const MAX_LINES = 10_000;
const MAX_LINE_LENGTH = 2_000;

/** Shows one code block. */
export class CodeView {
    constructor(language) {
        this.grammar = grammarOf(language);
        this.text = '';
        /** Per line: its element, its text, and the lexer's state after it. */
        this.lines = [];
        this.code = h('code');
        this.copyLabel = h('span', {}, 'Copy');
        this.copyButton = h('button', { type: 'button', class: 'copy-code', onclick: () => this.copy() }, icon('copy', 15), this.copyLabel);
        const bar = h('div', { class: 'code-bar' }, h('span', { class: 'code-language' }, language || 'text'), this.copyButton);
        this.element = h('div', { class: 'code-block' }, bar, h('pre', { tabindex: '0' }, this.code));
    }

    /** Shows `text`; `complete` is false while more will follow. */
    update(text, complete = true) {
        this.element.classList.toggle('growing', !complete);
        if (text === this.text && this.lines.length) return;
        this.text = text;
        const sources = text.split('\n');
        let first = 0;
        while (first < this.lines.length && this.lines[first].source === sources[first]) first += 1;
        for (const line of this.lines.splice(first)) line.element.remove();
        const plain = !this.grammar || sources.length > MAX_LINES;
        for (let at = first; at < sources.length; at += 1) {
            const source = sources[at];
            const state = this.lines[at - 1]?.state ?? [];
            const lexed = plain || source.length > MAX_LINE_LENGTH
                ? { tokens: [['', source]], state }
                : lexLine(this.grammar, source, state);
            const element = h('span', {}, lexed.tokens.map(([kind, part]) => (kind ? h('span', { class: `t-${kind}` }, part) : part)));
            // The line break before a line is that line's, so that a complete one need not change.
            if (at > 0) element.prepend('\n');
            this.code.append(element);
            this.lines.push({ element, source, state: lexed.state });
        }
    }

    async copy() {
        const copied = await copyText(this.text);
        this.copyLabel.textContent = copied ? 'Copied' : 'Not allowed';
        setTimeout(() => { this.copyLabel.textContent = 'Copy'; }, 1600);
    }
}
