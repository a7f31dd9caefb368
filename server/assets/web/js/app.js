// Puts the page together: storage, state, views, the address bar and the keys.

import { Chat } from './chat.js';
import { Composer } from './composer.js';
import { Connection } from './connection.js';
import { byId, toast } from './dom.js';
import { fillIcons } from './icons.js';
import { Panel, confirm } from './panel.js';
import { remember, remembered } from './settings.js';
import { Sidebar } from './sidebar.js';
import { openStore } from './store.js';
import { Thread } from './thread.js';

const ADDRESS = /^#\/c\/([\w-]+)$/;

async function start() {
    fillIcons();
    // A full disk, above all: what could not be saved is still on the page.
    window.addEventListener('unhandledrejection', (event) => toast(`Not saved: ${event.reason?.message ?? event.reason}`));
    const store = await openStore();
    const chat = new Chat(store);
    const connection = new Connection(chat, () => remembered('key'));
    const panel = new Panel(chat, { connect: () => connection.connect(), chooseTheme });
    const thread = new Thread(chat, {
        regenerate: (message) => chat.regenerate(message),
        edit: (message, text) => chat.edit(message, text),
        flip: (message, step) => chat.flip(message, step),
        enterKey: () => panel.open('api-key'),
        focus: () => composer.focus(),
    });
    const composer = new Composer(chat, () => thread.editLast());
    new Sidebar(chat, { open: go, confirm });
    followAddress(chat);
    bindButtons(composer);
    bindKeys(chat);
    await chat.loadList();
    connection.connect();
    await openAddress(chat);
    if (!store.lasting) toast('This browser keeps no data: conversations end with this page.');
    document.documentElement.dataset.ready = '';
}

/** Shows a conversation by its address, so that Back and a reload find it. */
function go(id) {
    const hash = id ? `#/c/${id}` : '#/';
    if (location.hash !== hash) location.hash = hash;
    closeDrawer();
}

async function openAddress(chat) {
    await chat.open(ADDRESS.exec(location.hash)?.[1] ?? null);
}

function followAddress(chat) {
    window.addEventListener('hashchange', () => {
        const id = ADDRESS.exec(location.hash)?.[1] ?? null;
        if (id !== (chat.current?.id ?? null)) openAddress(chat);
    });
    chat.addEventListener('open', () => {
        document.title = chat.current ? `${chat.current.title} · forge` : 'forge';
        const hash = chat.current ? `#/c/${chat.current.id}` : '#/';
        // The first message gives an empty page its address, a deleted conversation loses its.
        if (location.hash !== hash) history.replaceState(null, '', hash);
    });
}

function chooseTheme(theme) {
    remember('theme', theme === 'auto' ? '' : theme);
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
}

function isDark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

const narrow = matchMedia('(max-width: 860px)');

function closeDrawer() {
    document.body.classList.remove('drawer');
}

function toggleSidebar() {
    if (narrow.matches) {
        document.body.classList.toggle('drawer');
        return;
    }
    const { dataset } = document.documentElement;
    if (dataset.sidebar) delete dataset.sidebar;
    else dataset.sidebar = 'closed';
    remember('sidebar', dataset.sidebar ?? '');
}

function newChat(composer) {
    go(null);
    composer.focus();
}

function bindButtons(composer) {
    for (const button of document.querySelectorAll('.new-chat')) button.addEventListener('click', () => newChat(composer));
    for (const button of document.querySelectorAll('.toggle-sidebar')) button.addEventListener('click', toggleSidebar);
    byId('scrim').addEventListener('click', closeDrawer);
    byId('toggle-theme').addEventListener('click', () => chooseTheme(isDark() ? 'light' : 'dark'));
    for (const example of document.querySelectorAll('.example')) {
        example.addEventListener('click', () => {
            composer.set(example.dataset.prompt);
            composer.send();
        });
    }
}

function bindKeys(chat) {
    document.addEventListener('keydown', (event) => {
        if (document.querySelector('dialog[open]') || event.isComposing) return;
        const command = event.ctrlKey || event.metaKey;
        const key = event.key.toLowerCase();
        if (command && ((key === 'k' && !event.shiftKey) || (key === 'o' && event.shiftKey))) {
            byId('new-chat').click();
        } else if (command && event.shiftKey && key === 'f') {
            document.documentElement.removeAttribute('data-sidebar');
            if (narrow.matches) document.body.classList.add('drawer');
            byId('search').focus();
        } else if (event.key === 'Escape' && document.body.classList.contains('drawer')) closeDrawer();
        else if (event.key === 'Escape' && chat.generation) chat.stop();
        else return;
        event.preventDefault();
    });
}

start();
