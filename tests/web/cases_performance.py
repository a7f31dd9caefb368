"""N01: a conversation of 300 messages and 200,000 tokens opens at once, and a fast stream leaves the page free."""

import json

from answers import CODE, PLAN, STORY, TABLE
from browser import OUT, chat_page
from mock_server import ASSETS

MESSAGES = 300
TOKENS = 200_000
RELOAD_MS = 2000
# A frame that a person notices, with room for a slow test machine; one such among hundreds is noise.
LONG_TASK_MS = 150


def long_conversation():
    """The export file of the long conversation. Four characters count as a token."""
    target = TOKENS * 4 // (MESSAGES // 2)
    messages, parent = [], "root"
    for number in range(MESSAGES):
        user = number % 2 == 0
        text = f"Question {number}: go on." if user else f"Answer {number}.\n\n"
        while not user and len(text) < target:
            text += "\n\n".join((CODE, STORY, TABLE, PLAN)) + "\n\n"
        message = {"id": f"m{number}", "parent": parent, "role": "user" if user else "assistant", "content": text, "created": number, "status": "done"}
        messages.append(message)
        parent = message["id"]
    conversation = {"id": "long", "title": "A long conversation", "created": 1, "updated": 1, "selected": {}, "messages": messages}
    return {"format": "forge-chat", "version": 1, "conversations": [conversation]}


def case_long_conversation(browser, mock):
    """Reload in less than two seconds, the end in view; every message can be scrolled to and is then built."""
    OUT.mkdir(exist_ok=True)
    file = OUT / "long.json"
    file.write_text(json.dumps(long_conversation()))
    assert sum(len(m["content"]) for m in long_conversation()["conversations"][0]["messages"]) >= TOKENS * 4
    with chat_page(browser, mock.url) as chat:
        page = chat.page
        page.set_input_files("#import-file", file)
        page.locator(".conversation >> text=A long conversation").click()
        page.wait_for_selector(".message >> text=Answer 299.")
        times = []
        for _ in range(3):
            page.reload()
            chat.ready()
            page.wait_for_function("() => document.querySelector('.message.last .code-block')?.getBoundingClientRect().height > 0")
            times.append(page.evaluate("performance.now()"))
            assert page.locator(".message").count() == MESSAGES
        end = page.evaluate("(e => e.scrollHeight - e.scrollTop - e.clientHeight)(document.querySelector('#scroller'))")
        assert end < 60, f"{end} pixels from the end"
        print(f"    reload of {MESSAGES} messages: {min(times):.0f} to {max(times):.0f} ms")
        assert max(times) < RELOAD_MS, times
        undrawn = page.locator(".undrawn").count()
        assert undrawn > MESSAGES // 2 - 20, f"{undrawn} answers wait off screen"
        page.evaluate("document.querySelector('#scroller').scrollTop = 0")
        page.wait_for_selector(".message:nth-child(2):not(:has(.undrawn)) .code-block")
        stream(chat, mock, "in the long conversation")


def case_fast_stream(browser, mock):
    """100 tokens a second into one growing answer."""
    with chat_page(browser, mock.url) as chat:
        stream(chat, mock, "alone")


def stream(chat, mock, where):
    page = chat.page
    page.evaluate(
        """() => { window.tasks = []; new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(e => e.duration)))
            .observe({ type: 'longtask' }); }"""
    )
    usual, mock.rate = mock.rate, 100
    try:
        chat.send("words 600")
        page.wait_for_selector(".message.last >> text=word10")
        page.evaluate(
            """() => { window.frames_ = 0; const count = () => { window.frames_ += 1; requestAnimationFrame(count); }; count(); }"""
        )
        page.wait_for_timeout(4000)
        frames = page.evaluate("window.frames_")
        chat.done()
        page.wait_for_selector(".message.last >> text=word599")
    finally:
        mock.rate = usual
    long = [task for task in page.evaluate("window.tasks") if task > LONG_TASK_MS]
    print(f"    100 tokens a second {where}: {frames / 4:.0f} frames a second, {len(long)} tasks over {LONG_TASK_MS} ms")
    assert frames / 4 > 20 and len(long) <= 1, (frames, long)


def case_no_full_render_per_token(browser, mock):
    """A token changes the last block only: elements before it stay the same objects."""
    with chat_page(browser, mock.url) as chat:
        kept = chat.page.evaluate(
            """async (text) => {
                const { MarkdownView } = await import('/js/markdown/view.js');
                const element = document.createElement('div');
                const view = new MarkdownView(element);
                const whole = text.repeat(40);
                view.update(whole, true);
                const before = [...element.children];
                const start = performance.now();
                const times = 500;
                for (let n = 1; n <= times; n += 1) view.update(whole + 'word '.repeat(n), true);
                const each = (performance.now() - start) / times;
                return { same: before.slice(0, -1).every((e, i) => element.children[i] === e), each, blocks: before.length };
            }""",
            CODE + "\n\n",
        )
        print(f"    {kept['each']:.2f} ms a token behind {kept['blocks']} blocks")
        assert kept["same"] and kept["each"] < 10, kept


def case_modules_load_at_once(browser, mock):
    """index.html names every module, so that none waits for another to arrive."""
    modules = {str(path.relative_to(ASSETS)) for path in ASSETS.glob("js/**/*.js")} - {"js/theme.js", "js/app.js"}
    with chat_page(browser, mock.url) as chat:
        named = chat.page.locator("link[rel=modulepreload]").evaluate_all("all => all.map(link => link.getAttribute('href'))")
    assert sorted(named) == sorted(modules), modules.symmetric_difference(named)
