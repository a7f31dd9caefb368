// Grammars of configuration files and of texts about files.

import { DOUBLE, HASH, NUMBER, SINGLE, SPACES, grammar, rule, span } from './grammar.js';

const COMMENT = rule(/(?<=^|\s)#.*/, 'm');
const CONSTANT = rule(/\b(?:true|false|null|yes|no|on|off)\b(?=\s*(?:$|[,\]}#]))/, 'c');
const VARIABLE = rule(/\$(?:\{[^}]*\}|\([^)]*\)|\w+)/, 'p');

export const yaml = grammar([
    COMMENT,
    rule(/^(?:---|\.\.\.)\s*$/, 'k'),
    rule(/[\w.$/-]+(?=\s*:(?:\s|$))/, 'a'),
    DOUBLE,
    SINGLE,
    rule(/[&*!][\w!-]+/, 'p'),
    CONSTANT,
    rule(/(?<=[\s[,:])-?\d[\d_.eE+-]*(?=\s*(?:$|[,\]}#]))/, 'n'),
    rule(/[\w./:@-]+|\s+/, ''),
]);

export const ini = grammar([
    rule(/^\s*[#;].*/, 'm'),
    COMMENT,
    rule(/^\s*\[.*\]/, 't'),
    rule(/^\s*(?:export\s+)?[\w.-]+(?=\s*=)|[\w.-]+(?=\s*=)/, 'a'),
    span(/"""/, /"""/, 's'),
    DOUBLE,
    SINGLE,
    CONSTANT,
    VARIABLE,
    NUMBER,
    rule(/[\w-]+|\s+/, ''),
]);

export const diff = grammar([
    rule(/^(?:diff|index|---|\+\+\+).*/, 'm'),
    rule(/^@@.*/, 'k'),
    rule(/^\+.*/, '+'),
    rule(/^-.*/, '-'),
    rule(/.+/, ''),
]);

export const dockerfile = grammar([
    rule(/^\s*#.*/, 'm'),
    rule(/^\s*[A-Z]+(?=\s)/, 'k'),
    rule(/\b(?:AS|as)\b/, 'k'),
    DOUBLE,
    SINGLE,
    VARIABLE,
    rule(/(?<=\s)--[\w-]+/, 'a'),
    rule(/[\w./:@-]+|\s+/, ''),
]);

export const makefile = grammar([
    HASH,
    rule(/^[\w.%/-]+(?=\s*:(?!=))/, 'f'),
    rule(/^[\w.-]+(?=\s*[:?+]?=)/, 'a'),
    rule(/^(?:include|ifeq|ifneq|ifdef|ifndef|else|endif|define|endef)\b/, 'k'),
    rule(/^[a-z_]+(?=\s*\()/, 'f'),
    VARIABLE,
    DOUBLE,
    rule(/[\w./-]+/, ''),
    SPACES,
]);

export const markdown = grammar([
    rule(/^#{1,6} .*/, 'h'),
    span(/^\s*```.*/, /^\s*```\s*$/, 's'),
    rule(/^\s*>.*/, 'm'),
    rule(/^\s*(?:[-*+]|\d+\.)(?= )/, 'k'),
    rule(/`[^`]*`/, 's'),
    rule(/\*\*[^*]+\*\*/, 'k'),
    rule(/\[[^\]]*\]\([^)]*\)/, 'f'),
    rule(/[^`*[]+/, ''),
]);
