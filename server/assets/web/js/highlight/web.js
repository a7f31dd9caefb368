// Grammars of web pages: HTML with scripts and styles in it, XML, CSS, JSON.

import { BLOCK, DOUBLE, NUMBER, SINGLE, SLASHES, SPACES, grammar, rule, span } from './grammar.js';

const COMMENT = span(/<!--/, /-->/, 'm');
const ENTITY = rule(/&#?\w+;/, 'c');
const ATTRIBUTES = [
    SPACES,
    rule(/[\w:@.#-]+/, 'a'),
    span(/"/, /"/, 's'),
    span(/'/, /'/, 's'),
];

function tag() {
    return grammar([rule(/\/?>|\?>/, 'p', { pop: true }), ...ATTRIBUTES]);
}

export const markup = grammar([
    COMMENT,
    span(/<!\[CDATA\[/, /\]\]>/, 's'),
    rule(/<[/?!]?[A-Za-z][\w:.-]*/, 'p', { push: tag() }),
    ENTITY,
    rule(/[^<&]+/, ''),
]);

/** `<name …>`, then `content` up to its end tag. */
function element(name, content) {
    const body = grammar([rule(new RegExp(`(?=</${name})`, 'i'), '', { pop: true }), ...content.rules]);
    const opening = grammar([rule(/>/, 'p', { pop: true, push: body }), rule(/\/>/, 'p', { pop: true }), ...ATTRIBUTES]);
    return rule(new RegExp(`<${name}(?=[\\s>])`, 'i'), 'p', { push: opening });
}

export const html = grammar([...markup.rules]);

/** Gives HTML its scripts and styles; called once their grammars exist. */
html.embed = (script, style) => html.rules.unshift(element('script', script), element('style', style));

export const css = grammar([
    SPACES,
    BLOCK,
    rule(/\/\/.*/, 'm'),
    DOUBLE,
    SINGLE,
    rule(/@[\w-]+/, 'k'),
    rule(/--[\w-]+|[$][\w-]+/, 'p'),
    rule(/#[\da-fA-F]{3,8}\b(?=[\s;,)]|$)/, 'n'),
    rule(/[a-z-]+(?=\s*:\s*[^:{]*(?:;|$))/, 'a'),
    rule(/[.#][A-Za-z_-][\w-]*/, 't'),
    rule(/::?[a-z-]+/, 'c'),
    rule(/-?(?:\d+\.?\d*|\.\d+)(?:%|[a-z]+)?/, 'n'),
    rule(/![a-z]+/, 'k'),
    rule(/[\w-]+(?=\()/, 'f'),
    rule(/[\w-]+/, ''),
]);

export const json = grammar([
    SPACES,
    SLASHES,
    BLOCK,
    rule(/"(?:[^"\\]|\\.)*"(?=\s*:)/, 'a'),
    DOUBLE,
    rule(/\b(?:true|false|null)\b/, 'c'),
    rule(/-(?=\d)/, 'n'),
    NUMBER,
]);
