// Server-sent events from pieces of text that break anywhere.

/** Collects pieces and gives complete events: `{ data }`, or `{ comment }` for keep-alives. */
export class EventParser {
    constructor() {
        this.rest = '';
        this.data = [];
    }

    /** The events that `piece` completes. */
    feed(piece) {
        const events = [];
        // A carriage return at the end may be half of a line break.
        const text = (this.rest + piece).replace(/\r\n/g, '\n');
        const whole = text.endsWith('\r') ? text.slice(0, -1) : text;
        const lines = whole.split(/[\n\r]/);
        this.rest = lines.pop() + text.slice(whole.length);
        for (const line of lines) this.line(line, events);
        return events;
    }

    line(line, events) {
        if (line === '') {
            if (this.data.length) events.push({ data: this.data.join('\n') });
            this.data = [];
        } else if (line.startsWith(':')) {
            events.push({ comment: line.slice(1).trim() });
        } else if (line.startsWith('data:')) {
            this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
        }
    }
}
