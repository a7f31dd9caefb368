"""Markdown: what becomes an element, what stays text, and that growing text ends as whole text does."""

from answers import CODE, HTML, PLAN, TABLE, THOUGHTS
from browser import chat_page

RENDER = """async ([text, step]) => {
    const { MarkdownView } = await import('/js/markdown/view.js');
    const element = document.createElement('div');
    const view = new MarkdownView(element);
    if (step) for (let end = step; end < text.length; end += step) view.update(text.slice(0, end), true);
    view.update(text);
    return element.innerHTML;
}"""

# Source and a part of its elements, as the browser writes them down.
EXAMPLES = {
    "# Title": '<h2 class="h1">Title</h2>',
    "a **b** *c* ~~d~~ `e`": "a <strong>b</strong> <em>c</em> <del>d</del> <code>e</code>",
    "***x***": "<em><strong>x</strong></em>",
    "snake_case_name 2 * 3 * 4": "<p>snake_case_name 2 * 3 * 4</p>",
    "**中文。**中文": "<strong>中文。</strong>中文",
    r"\*no\* &lt;b&gt;": "<p>*no* &lt;b&gt;</p>",
    "[a](https://b.c/(d))": '<a href="https://b.c/(d)" rel="noopener noreferrer" target="_blank">a</a>',
    "see https://b.c/d.": '<a href="https://b.c/d" rel="noopener noreferrer" target="_blank">https://b.c/d</a>.',
    "[a](javascript:alert(1))": '<span class="dead-link" title="javascript:alert(1)">a</span>',
    "![p](https://b.c/p.png)": '<a href="https://b.c/p.png"',
    "<script>alert(1)</script>": "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
    "- a\n  - b\n- c": '<ul><li><p class="tight">a</p><ul><li><p class="tight">b</p></li></ul></li><li><p class="tight">c</p></li></ul>',
    "3. a\n4. b": '<ol start="3">',
    "1. a\n  - b\n2. c": '<ol><li><p class="tight">a</p><ul>',
    "- a\n\n- b": "<ul><li><p>a</p></li><li><p>b</p></li></ul>",
    "- [x] a": '<li class="task done" aria-label="done">',
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "text\n---\nmore": "<p>text</p><hr><p>more</p>",
    "|a|b|\n|-|:-:|\n|1|x\\|y|": '<td>1</td><td class="align-center">x|y</td>',
    "|a|\n|-|\n|1<br>2 <i>|": "<td>1<br>2 &lt;i&gt;</td>",
    "a\nb": "<p>a<br>b</p>",
    "```rust\nfn f() {}\n```": '<span class="t-k">fn</span> <span class="t-f">f</span>() {}',
    "~~~\na\n```\n~~~": "<span>a</span><span>\n```</span>",
    "```py\nx = '": "x = <span class=\"t-s\">'</span>",
    "$$\na_b*c*\n$$": '<div class="formula block">a_b*c*</div>',
    r"so \(a_1 * b_1\)": '<span class="formula">a_1 * b_1</span>',
}

# Each once took longer than its length explains, here or elsewhere.
HOSTILE = ["*a " * 9000, "[](" * 9000, "[" * 20000, "`a``b```c" * 2000, "_a*" * 9000, ">" * 20000, "- " * 9000,
           "- a\n" + "b\n" * 9000, "\n".join(" " * (2 * n % 60) + "- a" for n in range(1500)), "|" * 9000 + "\n" + "-|" * 9000]


def case_examples(browser, mock):
    """Source to elements, by example."""
    with chat_page(browser, mock.url) as chat:
        for source, part in EXAMPLES.items():
            got = chat.page.evaluate(RENDER, [source, 0])
            assert part in got, f"{source!r}\nexpected {part}\ngot      {got}"


def case_growing_equals_whole(browser, mock):
    """The incremental view of a text that arrives in pieces ends exactly as one pass over it."""
    with chat_page(browser, mock.url) as chat:
        for text in [CODE, HTML, PLAN, TABLE, THOUGHTS, *EXAMPLES, "\r\n".join(PLAN.split("\n"))]:
            whole = chat.page.evaluate(RENDER, [text, 0])
            for step in (1, 7):
                assert chat.page.evaluate(RENDER, [text, step]) == whole, f"step {step} of {text[:60]!r}"


def case_hostile_text_is_quick(browser, mock):
    """No text freezes the page."""
    timed = "async ([text, step]) => { const start = performance.now(); await (%s)([text, step]); return performance.now() - start; }" % RENDER
    with chat_page(browser, mock.url) as chat:
        for text in HOSTILE:
            took = chat.page.evaluate(timed, [text, 0])
            assert took < 2000, f"{took:.0f} ms for {text[:20]!r}"


def case_html_in_an_answer(browser, mock):
    """N03: raw HTML is shown, nothing of it runs or loads."""
    with chat_page(browser, mock.url) as chat:
        chat.ask("html")
        shown = chat.text()
        for part in ("<b>raw HTML</b>", "<script>window.pwned = 1</script>", '<td onclick="window.pwned = 2">', "onerror=\"window.pwned = 3\"",
                     '<script>window.pwned = 5</script>', 'document.write("<img src=x'):
            assert part in shown, f"{part} in {shown}"
        assert chat.page.evaluate("window.pwned") is None
        assert chat.answer.locator("script, img, iframe, b, i").count() == 0
        assert chat.answer.locator("a").evaluate_all("all => all.map(a => a.protocol)") == ["http:", "http:", "https:"]
        assert chat.answer.locator(".code-block").count() == 2, "an unclosed fence is code, too"
        chat.picture("html-in-an-answer")


def case_copy_code(browser, mock):
    """The button gives the code as written, also where the page may not use the clipboard interface."""
    with chat_page(browser, mock.url) as chat:
        chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        chat.ask("code please")
        wanted = CODE.split("```rust\n")[1].split("\n```")[0]
        chat.answer.get_by_role("button", name="Copy", exact=True).click()
        chat.page.wait_for_selector(".copy-code >> text=Copied")
        assert chat.page.evaluate("navigator.clipboard.readText()") == wanted
        chat.page.evaluate("navigator.clipboard.writeText('')")
        chat.page.evaluate("Object.defineProperty(window, 'isSecureContext', { value: false })")
        chat.page.wait_for_selector(".copy-code >> text=Copy")
        chat.answer.get_by_role("button", name="Copy", exact=True).click()
        chat.page.wait_for_selector(".copy-code >> text=Copied")
        assert chat.page.evaluate("navigator.clipboard.readText()") == wanted


def case_highlighting_keeps_the_text(browser, mock):
    """Every grammar on every sample: the coloured pieces of a line are the line."""
    lost = """async (samples) => {
        const { lexLine } = await import('/js/highlight/lexer.js');
        const { grammars } = await import('/js/highlight/languages.js');
        const wrong = [];
        for (const [name, grammar] of grammars) for (const sample of samples) {
            let state = [];
            for (const line of sample.split('\\n')) {
                const lexed = lexLine(grammar, line, state);
                state = lexed.state;
                if (lexed.tokens.map(([, text]) => text).join('') !== line) wrong.push([name, line]);
            }
        }
        return wrong;
    }"""
    with chat_page(browser, mock.url) as chat:
        samples = [CODE, HTML, PLAN, "a = 'x\n\\", '"""', "<a b='c\n", "/* x", "`${a`}", "#{<%$@!~^&*()[]", "'\"`/r#\"x", "\t\u00e9\u4e2d\U0001f600"]
        assert chat.page.evaluate(lost, samples) == []
