// Building the page. Every text goes through text nodes, so nothing that a model or a file says can
// become markup; there is no innerHTML in this folder.

/**
 * An element. Functions and known properties are set as properties, the rest as attributes; a null,
 * undefined or false value leaves its attribute out. Strings among the children become text.
 */
export function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (value === null || value === undefined || value === false) continue;
        if (name === 'class') element.className = value;
        else if (typeof value === 'function' || typeof value === 'boolean') element[name] = value;
        else element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

/** The element with this id in index.html. */
export function byId(id) {
    return document.getElementById(id);
}

/** Calls `action` at most once a frame, however often the result is called. */
export function oncePerFrame(action) {
    let waiting = false;
    return () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
            waiting = false;
            action();
        });
    };
}

/** Says `text` to screen readers without moving the focus. */
export function announce(text) {
    byId('announcer').textContent = text;
}

let toastTimer = 0;

/** Shows a short notice that goes away by itself. */
export function toast(text) {
    const element = byId('toast');
    element.textContent = text;
    element.classList.add('shown');
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => element.classList.remove('shown'), 3500);
}

/** Copies `text`. The clipboard interface is absent outside secure origins, as on `http://` in a LAN. */
export async function copyText(text) {
    if (navigator.clipboard && window.isSecureContext) {
        try {
            await navigator.clipboard.writeText(text);
            return true;
        } catch {
            // Refused by the browser's settings: the older way below may still be allowed.
        }
    }
    const area = h('textarea', { class: 'off-screen', 'aria-hidden': 'true' });
    area.value = text;
    const focused = document.activeElement;
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    focused?.focus?.();
    return copied;
}
