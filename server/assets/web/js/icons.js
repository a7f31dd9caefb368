// Line icons on a grid of 24, drawn for this page.

const PATHS = {
    compose: 'M11 5H6a2 2 0 0 0-2 2v11a2 2 0 0 0 2 2h11a2 2 0 0 0 2-2v-5M17.6 3.9a1.8 1.8 0 0 1 2.5 2.5L12.5 14l-3.3.8.8-3.3z',
    search: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.3 15.3 20 20',
    panel: 'M5 4.5h14a1.5 1.5 0 0 1 1.5 1.5v12a1.5 1.5 0 0 1-1.5 1.5H5A1.5 1.5 0 0 1 3.5 18V6A1.5 1.5 0 0 1 5 4.5zM9.5 4.5v15',
    settings: 'M4 7h9M19 7h1M4 17h1M11 17h9M16 4.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zM8 14.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5z',
    auto: 'M12 3.5a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17zM12 3.5v17M15 5v14M18 7.5v9',
    send: 'M12 19V5M6 11l6-6 6 6',
    stop: 'M8 7h8a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H8a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1z',
    copy: 'M9.5 8.5h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2h-8a2 2 0 0 1-2-2v-8a2 2 0 0 1 2-2zM4.5 15.5v-9a2 2 0 0 1 2-2h9',
    check: 'M5 12.5 10 17.5 19.5 7',
    retry: 'M19.5 12a7.5 7.5 0 1 1-2.3-5.4M19.5 4v4.5H15',
    edit: 'M15.6 5.4a1.9 1.9 0 0 1 2.7 2.7L8.5 18l-4 1 1-4zM13.5 7.5l2.8 2.8',
    trash: 'M5 7h14M10 7V5a1 1 0 0 1 1-1h2a1 1 0 0 1 1 1v2M7 7l.8 11.2a1.8 1.8 0 0 0 1.8 1.8h4.8a1.8 1.8 0 0 0 1.8-1.8L17 7M10.5 11v5M13.5 11v5',
    left: 'M14.5 6l-6 6 6 6',
    right: 'M9.5 6l6 6-6 6',
    down: 'M12 5v14M6 13l6 6 6-6',
    chevron: 'M8 10l4 4 4-4',
    close: 'M6 6l12 12M18 6 6 18',
    bulb: 'M9.5 18h5M10.5 21h3M12 3a6 6 0 0 1 3.6 10.8c-.7.6-1.1 1.2-1.1 2.2h-5c0-1-.4-1.6-1.1-2.2A6 6 0 0 1 12 3z',
    download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
    upload: 'M12 16V5M7 9l5-5 5 5M5 20h14',
    warning: 'M12 4 21 19.5H3zM12 10v4.5M12 17v.01',
};

const SVG = 'http://www.w3.org/2000/svg';

/** The icon of this name, hidden from screen readers: its button carries the label. */
export function icon(name, size = 18) {
    const svg = document.createElementNS(SVG, 'svg');
    const attributes = { viewBox: '0 0 24 24', width: size, height: size, class: `icon icon-${name}` };
    for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
    svg.setAttribute('aria-hidden', 'true');
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', PATHS[name]);
    svg.append(path);
    return svg;
}

/** Puts icons into the elements of index.html that ask for one with `data-icon`. */
export function fillIcons() {
    for (const element of document.querySelectorAll('[data-icon]')) {
        element.prepend(icon(element.dataset.icon, Number(element.dataset.size ?? 18)));
    }
}
