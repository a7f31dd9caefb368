// The messages of the shown conversation. Messages far from the screen are not built (they wait as plain
// text and the browser skips their layout), so a conversation of any length opens at once.

import { announce, byId, oncePerFrame } from './dom.js';
import { count } from './format.js';
import { MessageView } from './message.js';
import { versionOf } from './tree.js';

/** How near to the end, in pixels, counts as reading along. */
const NEAR_END = 60;

export class Thread {
    constructor(chat, actions) {
        this.chat = chat;
        this.actions = actions;
        this.scroller = byId('scroller');
        this.list = byId('messages');
        this.views = new Map();
        this.grown = new Set();
        this.following = true;
        this.lastTop = 0;
        this.observer = new IntersectionObserver((entries) => this.near(entries), { root: this.scroller, rootMargin: '1200px 0px' });
        this.scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
        // Everything that changes the height (text, images of text, the phone's keyboard) keeps the end in view.
        new ResizeObserver(() => this.follow()).observe(this.list);
        new ResizeObserver(() => this.follow()).observe(this.scroller);
        byId('to-end').addEventListener('click', () => this.toEnd(true));
        this.flush = oncePerFrame(() => this.grow());
        chat.addEventListener('open', () => this.show());
        chat.addEventListener('path', (event) => this.pathChanged(event.detail));
        chat.addEventListener('message', (event) => {
            this.grown.add(event.detail.id);
            this.flush();
        });
    }

    show() {
        this.observer.disconnect();
        this.views.clear();
        this.list.replaceChildren();
        this.showPath();
        this.toEnd();
    }

    pathChanged(detail) {
        this.showPath();
        if (!detail?.keepScroll) this.toEnd();
        if (detail?.finished) this.say(detail.finished);
        else if (this.chat.generation) announce('Answering.');
    }

    say(message) {
        const end = { done: 'Answer complete', stopped: 'Answer stopped', error: 'The answer failed' }[message.status];
        announce(`${end}, ${count(message.stats.completion)} tokens.`);
    }

    /** Makes the list show the path, keeping the views of messages that stay. */
    showPath() {
        const path = this.chat.path;
        const wanted = new Set(path.map((message) => message.id));
        for (const [id, view] of this.views) {
            if (wanted.has(id)) continue;
            this.observer.unobserve(view.element);
            view.element.remove();
            this.views.delete(id);
        }
        const versions = this.versions();
        let before = null;
        path.forEach((message, index) => {
            const view = this.views.get(message.id) ?? this.add(message);
            const place = before ? before.nextSibling : this.list.firstChild;
            if (place !== view.element) this.list.insertBefore(view.element, place);
            before = view.element;
            const generation = this.chat.running.get(message.id) ?? null;
            view.update({ version: versions(message), generation, last: index === path.length - 1 });
        });
        document.body.classList.toggle('empty', path.length === 0);
    }

    /** The version of each message; most have no sibling, which one count finds for all. */
    versions() {
        const siblings = new Map();
        for (const { parent } of this.chat.messages.values()) siblings.set(parent, (siblings.get(parent) ?? 0) + 1);
        return (message) => (siblings.get(message.parent) > 1 ? versionOf(this.chat.messages, message) : { index: 0, all: [message] });
    }

    add(message) {
        const view = new MessageView(message, this.actions);
        this.views.set(message.id, view);
        this.observer.observe(view.element);
        return view;
    }

    near(entries) {
        for (const { isIntersecting, target } of entries) {
            if (!isIntersecting || target.view.drawn) continue;
            target.view.grow(this.chat.running.get(target.view.message.id) ?? null);
        }
    }

    grow() {
        for (const id of this.grown) {
            const generation = this.chat.running.get(id) ?? null;
            if (generation) this.views.get(id)?.grow(generation);
        }
        this.grown.clear();
    }

    /** Opens the last question that is shown for editing. */
    editLast() {
        const last = this.chat.path.findLast((message) => message.role === 'user');
        if (!last || this.chat.generation) return;
        const view = this.views.get(last.id);
        view.draw();
        view.edit();
        view.element.scrollIntoView({ block: 'nearest' });
    }

    atEnd() {
        return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < NEAR_END;
    }

    scrolled() {
        const top = this.scroller.scrollTop;
        // Only a movement upwards is a person's wish to stop following: growing text moves the end, not the top.
        if (this.atEnd()) this.following = true;
        else if (top < this.lastTop) this.following = false;
        this.lastTop = top;
        byId('to-end').classList.toggle('shown', !this.atEnd());
    }

    follow() {
        if (this.following) this.toEnd();
    }

    toEnd(smooth = false) {
        this.following = true;
        this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: smooth ? 'smooth' : 'instant' });
    }
}
