// What is shown before the first token. A long prompt may take minutes: that is progress, not an error,
// so it shows what the server has read, or at least that it is still there.

import { h } from './dom.js';
import { count, duration } from './format.js';

/** After so many seconds the line explains the wait. */
const EXPLAIN_AFTER = 10;
/** After so many seconds without a sign of the server the line says so. */
const SILENT_AFTER = 45;

/** The line and bar under a question that is not yet being answered. */
export class WaitingView {
    constructor(parent) {
        this.label = h('span', { class: 'waiting-label' });
        this.time = h('span', { class: 'waiting-time' });
        this.bar = h('div', { class: 'bar', role: 'progressbar', 'aria-label': 'Reading the prompt' }, h('div'));
        this.hint = h('p', { class: 'waiting-hint' });
        const dots = h('span', { class: 'dots', 'aria-hidden': 'true' }, h('i'), h('i'), h('i'));
        this.element = h('div', { class: 'waiting' }, h('div', { class: 'waiting-line' }, dots, this.label, this.time), this.bar, this.hint);
        parent.append(this.element);
    }

    update({ waiting, started }) {
        const now = performance.now();
        const seconds = (now - started) / 1000;
        const silent = (now - waiting.sign) / 1000;
        const known = waiting.total > 0;
        this.label.textContent = !waiting.opened ? 'Waiting for the server'
            : known ? `Reading the prompt: ${count(waiting.read)} of ${count(waiting.total)} tokens` : 'Reading the prompt';
        this.time.textContent = seconds >= 2 ? duration(seconds) : '';
        this.bar.hidden = seconds < 2 && !known;
        this.bar.classList.toggle('unknown', !known);
        const share = known ? Math.min(100, Math.round((100 * waiting.read) / waiting.total)) : null;
        this.bar.firstChild.style.width = known ? `${share}%` : '';
        if (known) this.bar.setAttribute('aria-valuenow', String(share));
        this.hint.textContent = silent > SILENT_AFTER
            ? `No sign of the server for ${duration(silent)}. The request is still open.`
            : seconds > EXPLAIN_AFTER ? 'Long prompts take a while. The server is at work; Esc stops it.' : '';
    }

    remove() {
        this.element.remove();
    }
}
