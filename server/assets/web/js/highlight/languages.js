// The grammars by the names that models write after a fence.

import { BLOCK, DOUBLE, HASH, NUMBER, SINGLE, SLASHES, SPACES, grammar, likeC, lineComment, names, rule, span } from './grammar.js';
import { css, html, json, markup } from './web.js';
import { diff, dockerfile, ini, makefile, markdown, yaml } from './data.js';

const C_KEYWORDS = `auto break case const continue default do else enum extern for goto if inline register restrict return
    sizeof static struct switch typedef union volatile while`;
const C_TYPES = `bool char double float int long short signed unsigned void size_t ssize_t int8_t int16_t int32_t int64_t
    uint8_t uint16_t uint32_t uint64_t uintptr_t FILE half float2 float3 float4 dim3`;
const PREPROCESSOR = rule(/^\s*#\s*\w+(?:\s*<[^>]*>)?/, 'a');

const c = likeC({ keywords: C_KEYWORDS, types: C_TYPES, constants: 'NULL true false' }, { first: [PREPROCESSOR] });

const cpp = likeC({
    keywords: `${C_KEYWORDS} alignas alignof catch class concept consteval constexpr constinit co_await co_return co_yield
        decltype delete explicit final friend mutable namespace new noexcept operator override private protected public
        requires static_assert template this throw try typename using virtual __global__ __device__ __host__ __shared__
        __constant__ __restrict__ __launch_bounds__`,
    types: `${C_TYPES} string vector map set pair tuple optional`,
    constants: 'NULL nullptr true false threadIdx blockIdx blockDim gridDim',
}, { first: [PREPROCESSOR, rule(/R"\([^)]*\)"/, 's')] });

const rust = likeC({
    keywords: `as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut
        pub ref return self Self static struct super trait type union unsafe use where while yield`,
    types: 'bool char f16 f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize',
    constants: 'true false None Some Ok Err',
}, {
    first: [
        span(/b?r#"/, /"#/, 's'),
        rule(/#!?\[[^\]]*\]/, 'a'),
        rule(/'(?:[^'\\]|\\(?:u\{[^}]*\}|x..|.))'/, 's'),
        rule(/'[a-z_]\w*/, 'a'),
        rule(/[a-z_]\w*!(?=[\s([{])/, 'f'),
    ],
    strings: [span(/b?"/, /"/, 's', { escape: true })],
    comments: [SLASHES, span(/\/\*/, /\*\//, 'm', { nested: true })],
});

const python = likeC({
    keywords: `and as assert async await break case class continue def del elif else except finally for from global if import
        in is lambda match nonlocal not or pass raise return try while with yield`,
    types: 'bool bytes dict float frozenset int list object set str tuple type',
    constants: 'True False None self cls',
}, {
    first: [
        span(/[rbfuRBFU]{0,2}"""/, /"""/, 's', { escape: true }),
        span(/[rbfuRBFU]{0,2}'''/, /'''/, 's', { escape: true }),
        rule(/[rbfuRBFU]{1,2}(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)/, 's'),
        rule(/@[\w.]+/, 'a'),
    ],
    comments: [HASH],
});

const SCRIPT_KEYWORDS = `as async await break case catch class const continue debugger default delete do else export extends
    finally for from function get if import in instanceof let new of return set static super switch this throw try typeof
    var void while with yield`;
const TEMPLATE = span(/`/, /`/, 's', { escape: true, inside: [rule(/\$\{[^}`]*\}/, 'p')] });
const REGEX = rule(/(?<=(?:^|[=(,:!&|?{};[]|return)\s*)\/(?![*/])(?:[^/\\[]|\\.|\[(?:[^\]\\]|\\.)*\])+\/[a-z]*/, 's');

const javascript = likeC({ keywords: SCRIPT_KEYWORDS, constants: 'true false null undefined NaN Infinity' }, {
    first: [REGEX, TEMPLATE, rule(/@[A-Za-z]\w*/, 'a')],
});

const typescript = likeC({
    keywords: `${SCRIPT_KEYWORDS} abstract declare enum implements infer interface is keyof namespace private protected public
        readonly satisfies type`,
    types: 'any bigint boolean never number object string symbol unknown',
    constants: 'true false null undefined NaN Infinity',
}, { first: [REGEX, TEMPLATE, rule(/@[A-Za-z]\w*/, 'a')] });

const go = likeC({
    keywords: `break case chan const continue default defer else fallthrough for func go goto if import interface map package
        range return select struct switch type var`,
    types: `any bool byte complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16
        uint32 uint64 uintptr`,
    constants: 'true false nil iota',
}, { strings: [DOUBLE, SINGLE, span(/`/, /`/, 's')] });

const ANNOTATION = rule(/@[A-Za-z_][\w.]*/, 'a');
const LONG_STRING = span(/"""/, /"""/, 's', { escape: true });

const java = likeC({
    keywords: `abstract assert break case catch class continue default do else enum extends final finally for if implements
        import instanceof interface native new package permits private protected public record return sealed static strictfp
        super switch synchronized this throw throws transient try var volatile while yield`,
    types: 'boolean byte char double float int long short void',
    constants: 'true false null',
}, { first: [LONG_STRING, ANNOTATION] });

const kotlin = likeC({
    keywords: `abstract as break by catch class companion const constructor continue data do else enum expect finally for fun
        get if import in init inline interface internal is lateinit object open operator out override package private
        protected public return sealed set super suspend this throw try typealias val var vararg when where while`,
    constants: 'true false null it',
}, { first: [LONG_STRING, ANNOTATION] });

const swift = likeC({
    keywords: `actor any as associatedtype async await break case catch class continue default defer deinit do else enum
        extension fallthrough fileprivate for func get guard if import in init inout internal is let mutating open operator
        override private protocol public repeat rethrows return self Self set some static struct subscript super switch throw
        throws try typealias var where while`,
    constants: 'true false nil',
}, { first: [LONG_STRING, ANNOTATION, rule(/#\w+/, 'a')] });

const csharp = likeC({
    keywords: `abstract as async await base break case catch checked class const continue default delegate do else enum event
        explicit extern finally fixed for foreach get goto if implicit in init interface internal is lock namespace new
        operator out override params private protected public readonly record ref return sealed set sizeof stackalloc static
        struct switch this throw try typeof unchecked unsafe using var virtual volatile when where while with yield`,
    types: 'bool byte char decimal double dynamic float int long object sbyte short string uint ulong ushort void',
    constants: 'true false null value',
}, { first: [LONG_STRING, PREPROCESSOR, span(/\$?@"/, /"(?!")/, 's'), rule(/\$(?="(?:[^"\\]|\\.)*")/, 's')] });

const zig = likeC({
    keywords: `align allowzero and anytype asm async await break callconv catch comptime const continue defer else enum
        errdefer error export extern fn for if inline noalias or orelse packed pub return struct suspend switch test
        threadlocal try union unreachable usingnamespace var volatile while`,
    types: 'anyerror bool f16 f32 f64 i8 i16 i32 i64 isize noreturn type u8 u16 u32 u64 usize void',
    constants: 'true false null undefined',
}, { first: [rule(/@\w+/, 'f'), rule(/\\\\.*/, 's')] });

const wgsl = likeC({
    keywords: `alias break case const const_assert continue continuing default diagnostic discard else enable fn for if let
        loop override return struct switch var while`,
    types: `array atomic bool f16 f32 i32 mat2x2f mat3x3f mat4x4f ptr sampler texture_2d u32 vec2 vec2f vec2u vec3 vec3f vec3u
        vec4 vec4f vec4u`,
    constants: 'true false storage workgroup uniform read read_write function private',
}, { first: [rule(/@\w+/, 'a')] });

const php = likeC({
    keywords: `abstract and array as break case catch class clone const continue declare default do echo else elseif enum
        extends final finally fn for foreach function global if implements include instanceof interface match namespace new
        or print private protected public readonly require require_once return static switch throw trait try use while yield`,
    types: 'bool float int iterable mixed never object string void',
    constants: 'true false null self parent',
}, { first: [rule(/<\?(?:php|=)?|\?>/, 'p'), rule(/\$\w+/, 'p')], comments: [SLASHES, HASH, BLOCK] });

const ruby = likeC({
    keywords: `alias and begin break case class def do else elsif end ensure for if in include module next not or private
        protected public raise redo require rescue retry return self super then undef unless until when while yield`,
    constants: 'true false nil',
}, { first: [rule(/@{1,2}\w+/, 'p'), rule(/:[a-z_]\w*[?!]?/, 'c')], comments: [HASH] });

const lua = likeC({
    keywords: 'and break do else elseif end for function goto if in local not or repeat return then until while',
    constants: 'true false nil self',
}, { first: [span(/--\[\[/, /\]\]/, 'm'), span(/\[\[/, /\]\]/, 's')], comments: [lineComment(/--/)] });

const haskell = likeC({
    keywords: 'case class data deriving do else family forall if import in infix infixl infixr instance let module newtype of qualified then type where',
    constants: 'True False Nothing Just Left Right',
}, { strings: [DOUBLE, rule(/'(?:[^'\\]|\\.)'/, 's')], comments: [lineComment(/--/), span(/\{-/, /-\}/, 'm', { nested: true })] });

const r = likeC({
    keywords: 'break else for function if in next repeat return while library require',
    constants: 'TRUE FALSE NULL NA NaN Inf',
    capital: false,
}, { first: [rule(/<-|->|%\w*%|\|>/, 'k')], comments: [HASH] });

const sql = likeC({
    keywords: `add all alter and any as asc begin between by case cast check column commit constraint create cross database
        default delete desc distinct drop else end except exists explain foreign from full group having if in index inner
        insert intersect into is join key lateral left like limit not offset on or order outer over partition primary
        references returning right rollback row rows select set table then transaction trigger truncate union unique update
        using values view when where window with`,
    types: 'bigint binary blob boolean char date datetime decimal double float int integer interval json jsonb numeric real serial smallint text time timestamp uuid varchar',
    constants: 'null true false current_date current_timestamp',
    ignoreCase: true,
    capital: false,
}, { comments: [lineComment(/--/), BLOCK] });

const SHELL_VARIABLE = rule(/\$(?:\{[^}]*\}|\w+|[@*#?$!-])/, 'p');
const shell = grammar([
    SPACES,
    rule(/(?<=^|\s)#.*/, 'm'),
    span(/"/, /"/, 's', { escape: true, inside: [SHELL_VARIABLE] }),
    span(/'/, /'/, 's'),
    SHELL_VARIABLE,
    rule(/(?<=\s)--?[A-Za-z][\w-]*/, 'a'),
    rule(/^\$(?= )/, 'm'),
    rule(/[A-Za-z_]\w*(?==)/, 'p'),
    rule(/(?<=^\s*(?:\$ )?|[|;&(]\s*|\b(?:sudo|then|do|else)\s+)[\w./-]+/, 'f', {
        words: (name) => (SHELL_KEYWORDS.has(name) ? 'k' : 'f'),
    }),
    rule(/\b(?:if|then|else|elif|fi|for|while|until|do|done|case|esac|in|function|return|export|local)\b/, 'k'),
    rule(/[\w./:@-]+/, ''),
]);
const SHELL_KEYWORDS = new Set('if then else elif fi for while until do done case esac in function return export local set source'.split(' '));

const lisp = grammar([
    SPACES, lineComment(/;/), span(/"/, /"/, 's', { escape: true }), NUMBER,
    rule(/(?<=\()[^\s()'"]+/, 'f'), rule(/[:#][\w?!*-]+/, 'c'), rule(/[^\s()'"]+/, ''),
]);

const perl = likeC({
    keywords: 'and cmp do else elsif eq for foreach if last local my ne next no not or our package print return sub unless until use while',
    capital: false,
}, { first: [rule(/[$@%]\w+/, 'p')], comments: [HASH] });

const BY_NAME = {
    'c h': c,
    'cpp c++ cc cxx hpp cuda cu cuh hip metal glsl hlsl arduino': cpp,
    'rust rs': rust,
    'python py python3 pycon mojo': python,
    'javascript js jsx mjs cjs node': javascript,
    'typescript ts tsx mts': typescript,
    'go golang': go, java, 'kotlin kt kts': kotlin, swift, 'csharp c# cs': csharp, zig, wgsl,
    'scala dart groovy': java,
    php, 'ruby rb': ruby, lua, 'haskell hs': haskell, r, 'perl pl': perl,
    'sql mysql postgresql postgres sqlite plsql': sql,
    'bash sh shell zsh console terminal shell-session fish': shell,
    'lisp clojure clj scheme elisp racket': lisp,
    'json json5 jsonc jsonl': json,
    'html htm vue svelte': html,
    'xml svg xhtml': markup,
    'css scss less sass': css,
    'yaml yml': yaml,
    'toml ini conf cfg properties env dotenv': ini,
    'diff patch': diff,
    'dockerfile docker': dockerfile,
    'makefile make cmake': makefile,
    'markdown md': markdown,
};

/** Grammar by name, in lower case. */
export const grammars = new Map(
    Object.entries(BY_NAME).flatMap(([all, one]) => all.split(' ').map((name) => [name, one])),
);

// The languages of web pages hold one another: a page has scripts and styles.
html.embed(javascript, css);
