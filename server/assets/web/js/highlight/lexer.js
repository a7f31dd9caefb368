// A line lexer: a grammar is a list of rules, a rule a sticky pattern with the kind of token it makes.
// The state between two lines is the stack of grammars that are open (a comment, a long string), so a
// line can be coloured as soon as it is there.

import { grammars } from './languages.js';

/** The grammar for the name after a fence, or null. */
export function grammarOf(language) {
    return grammars.get(language.toLowerCase()) ?? null;
}

/** How deep grammars may nest in one another. */
const MAX_STACK = 24;

/**
 * The tokens of one line, `[kind, text]` (an empty kind is plain), and the state after it.
 * `state` is the state after the line before, `[]` at the start.
 */
export function lexLine(grammar, line, state) {
    const stack = [...state];
    const tokens = [];
    let at = 0;
    // A rule may match nothing, to enter or leave a grammar: a bound keeps a wrong one from looping.
    for (let steps = 4 * line.length + 16; steps > 0 && at <= line.length; steps -= 1) {
        const rule = firstMatch(stack.at(-1) ?? grammar, line, at);
        if (!rule) {
            if (at === line.length) break;
            add(tokens, stack.at(-1)?.kind ?? '', line[at]);
            at += 1;
            continue;
        }
        const { text, kind, push, pop } = rule;
        if (text) add(tokens, kind ?? stack.at(-1)?.kind ?? '', text);
        at += text.length;
        if (pop) stack.pop();
        if (push && stack.length < MAX_STACK) stack.push(push);
        if (at === line.length && !push && !pop) break;
    }
    while (stack.at(-1)?.endsWithLine) stack.pop();
    return { tokens, state: stack };
}

function firstMatch(grammar, line, at) {
    for (const rule of grammar.rules) {
        rule.pattern.lastIndex = at;
        const match = rule.pattern.exec(line);
        if (!match) continue;
        const text = match[0];
        if (!text && !rule.push && !rule.pop) continue;
        const kind = rule.words ? rule.words(text) : rule.kind;
        return { text, kind, push: rule.push, pop: rule.pop };
    }
    return null;
}

function add(tokens, kind, text) {
    const last = tokens.at(-1);
    if (last && last[0] === kind) last[1] += text;
    else tokens.push([kind, text]);
}
