"""The page against the mock server: everything a tiny model cannot be made to do."""

import json
import time

from browser import OUT, SIZES, chat_page


def case_reasoning(browser, mock):
    """The panel is open while the model thinks, closes with the answer and can be opened again."""
    with chat_page(browser, mock.url) as chat:
        chat.send("reasoning, please")
        chat.page.wait_for_selector("details.reasoning[open] >> text=crow")
        chat.page.wait_for_selector("details.reasoning:not([open])")
        chat.done()
        assert "Thought for" in chat.answer.locator("summary").inner_text()
        chat.answer.locator("summary").click()
        assert chat.answer.locator(".reasoning-text strong").inner_text() == "About a hundred words"
        chat.ask("more")
        sent = mock.requests[-1]["messages"]
        assert sent[1]["reasoning_content"].startswith("The question asks"), "the reasoning goes back for the prefix cache"


def case_settings_reach_the_request(browser, mock):
    """Every field of the panel is sent as set, and left out if empty."""
    with chat_page(browser, mock.url) as chat:
        page = chat.page
        chat.ask("plain")
        body = mock.requests[-1]
        assert set(body) == {"model", "messages", "stream", "stream_options"}, f"defaults are the model's: {body}"
        page.click("#open-settings")
        page.fill("#system", "Be brief.")
        values = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 5, "seed": 42}
        for name, value in values.items():
            page.fill(f"#sampling-{name}", str(value))
        page.locator("input[name=thinking][value=off]").check()
        page.keyboard.press("Escape")
        page.select_option("#model", "forge-tiny")
        chat.ask("set")
        body = mock.requests[-1]
        assert {name: body[name] for name in values} == values
        assert body["model"] == "forge-tiny" and body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        page.wait_for_selector(".notice >> text=token limit")
        page.reload()
        chat.ready()
        assert page.input_value("#model") == "forge-tiny", "settings outlive a reload"


def case_errors_can_be_tried_again(browser, mock):
    """Refusals, a broken stream and a cut connection say what happened and keep what was written."""
    with chat_page(browser, mock.url, expected=("500", "429")) as chat:
        for prompt, said in (("fail", "out of blocks"), ("busy", "asks to wait 3"), ("break", "the device was lost"), ("cut", "ended before")):
            chat.ask(f"{prompt} now")
            error = chat.answer.locator(".error")
            assert said in error.inner_text(), error.inner_text()
            if prompt in ("break", "cut"):
                assert chat.text().startswith("You said"), "what was written stays"
        asked = len(mock.requests)
        error.get_by_role("button", name="Try again").click()
        chat.page.wait_for_selector(".versions >> text=2 / 2")
        chat.done()
        assert len(mock.requests) == asked + 1


def case_api_key(browser, mock):
    """A server that asks for a key gets the one that was entered."""
    mock.key = "secret"
    try:
        with chat_page(browser, mock.url, expected=("401",)) as chat:
            page = chat.page
            page.wait_for_selector("#connection[data-state=locked]")
            chat.ask("hello")
            chat.answer.get_by_role("button", name="Enter API key").click()
            page.keyboard.type("secret")
            page.keyboard.press("Enter")
            page.keyboard.press("Escape")
            page.wait_for_selector("#connection[data-state=ready]")
            chat.answer.get_by_role("button", name="Try again").click()
            page.wait_for_selector(".message.assistant .markdown >> text=You said")
            chat.done()
    finally:
        mock.key = None


def case_slow_first_token(browser, mock):
    """N03: a long prefill shows what has been read, or at least the time; it is no error."""
    with chat_page(browser, mock.url) as chat:
        page = chat.page
        page.clock.install()
        chat.send("slow 6")
        page.wait_for_selector(".waiting >> text=of 20,000 tokens")
        # Five minutes pass for the page while the server still reads.
        page.clock.fast_forward(300_000)
        page.wait_for_selector(".waiting-time >> text=5 min")
        chat.picture("slow-first-token")
        assert page.locator(".error").count() == 0
        page.clock.resume()
        page.wait_for_selector(".message.assistant .markdown >> text=You said")
        chat.done()
        chat.send("silent 20")
        page.wait_for_selector(".waiting >> text=Reading the prompt")
        page.keyboard.press("Escape")
        page.wait_for_selector(".notice >> text=Stopped")


def case_stop_ends_the_request(browser, mock):
    """The server sees the connection close, so it can stop computing."""
    with chat_page(browser, mock.url) as chat:
        before = mock.disconnects
        chat.send("words 5000")
        chat.page.wait_for_selector(".message.assistant >> text=word3")
        chat.page.click("#send.running")
        chat.done()
        deadline = time.monotonic() + 5
        while mock.disconnects == before and time.monotonic() < deadline:
            chat.page.wait_for_timeout(50)
        assert mock.disconnects == before + 1


def case_reload_while_writing(browser, mock):
    """What had arrived is there after a reload."""
    with chat_page(browser, mock.url) as chat:
        chat.send("words 5000")
        chat.page.wait_for_timeout(2500)
        chat.page.reload()
        chat.ready()
        chat.page.wait_for_selector(".notice >> text=Stopped")
        assert "word20" in chat.text()


def case_conversations(browser, mock):
    """List, switch while one is written, search, rename, delete, export, import."""
    with chat_page(browser, mock.url) as chat:
        page = chat.page
        chat.ask("first about apples")
        page.keyboard.press("Control+k")
        page.wait_for_selector("body.empty")
        chat.send("words 150 about pears")
        page.wait_for_selector(".conversation.running")
        page.locator(".conversation >> text=apples").click()
        page.wait_for_selector(".message.user >> text=apples")
        page.wait_for_selector(".conversation:not(.running) >> text=pears", timeout=20_000)
        page.locator(".conversation >> text=pears").click()
        page.wait_for_selector(".message.assistant >> text=word149")
        page.keyboard.press("Control+Shift+o")
        page.wait_for_selector("body.empty")

        page.fill("#search", "word77")
        page.wait_for_function("() => document.querySelectorAll('.conversation').length === 1")
        page.fill("#search", "")
        page.wait_for_function("() => document.querySelectorAll('.conversation').length === 2")

        row = page.locator(".conversation", has_text="apples")
        row.hover()
        row.get_by_role("button", name="Rename").click()
        page.keyboard.type("About fruit")
        page.keyboard.press("Enter")
        page.wait_for_selector(".conversation >> text=About fruit")

        page.click("#open-settings")
        with page.expect_download() as download:
            page.click("#export")
        OUT.mkdir(exist_ok=True)
        file = OUT / "export.json"
        download.value.save_as(file)
        assert len(json.loads(file.read_text())["conversations"]) == 2
        page.keyboard.press("Escape")

        row = page.locator(".conversation", has_text="fruit")
        row.hover()
        row.get_by_role("button", name="Delete").click()
        page.click("#confirm-yes")
        page.wait_for_function("() => document.querySelectorAll('.conversation').length === 1")
        page.set_input_files("#import-file", file)
        page.wait_for_selector(".conversation >> text=About fruit")
        page.locator(".conversation >> text=fruit").click()
        page.wait_for_selector(".message.assistant >> text=You said: first about apples")
        (OUT / "bad.json").write_text('{"format": "forge-chat", "version": 1, "conversations": [{"id": "x"}]}')
        page.set_input_files("#import-file", OUT / "bad.json")
        page.wait_for_selector("#toast.shown >> text=no messages")


def case_keys(browser, mock):
    """Enter, Shift+Enter, arrow up, Esc in an edit, and the focus after each."""
    with chat_page(browser, mock.url) as chat:
        page = chat.page
        focused = "document.activeElement.id"
        assert page.evaluate(focused) == "prompt"
        page.keyboard.type("one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        page.keyboard.press("Enter")
        page.wait_for_selector(".message.user")
        assert page.locator(".bubble").inner_text() == "one\ntwo"
        chat.done()
        page.keyboard.press("ArrowUp")
        assert page.input_value(".editor textarea") == "one\ntwo"
        page.keyboard.press("Escape")
        assert page.locator(".editor").count() == 0 and page.evaluate(focused) == "prompt"
        page.keyboard.press("Control+Shift+f")
        assert page.evaluate(focused) == "search"


def case_unnamed_controls(browser, mock):
    """Every control has a name for screen readers, and the end of an answer is announced."""
    with chat_page(browser, mock.url) as chat:
        chat.ask("code please")
        unnamed = chat.page.evaluate(
            """() => [...document.querySelectorAll('button, input, textarea, select')].filter(e =>
                !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.hidden)).map(e => e.outerHTML)"""
        )
        assert unnamed == [], unnamed
        assert "Answer complete" in chat.page.locator("#announcer").inner_text()


def case_pictures(browser, mock):
    """Screenshots in both themes and sizes, for people to look at; nothing is wider than the phone."""
    for size in SIZES:
        for scheme in ("dark", "light"):
            with chat_page(browser, mock.url, size, scheme) as chat:
                name = f"{size}-{scheme}"
                chat.picture(f"{name}-welcome")
                chat.ask("Make a plan for a weekend in the mountains.")
                chat.picture(f"{name}-plan")
                chat.ask("Explain how a hash map works, with an example in Rust.")
                chat.picture(f"{name}-code")
                wide = chat.page.evaluate("document.documentElement.scrollWidth > innerWidth || document.querySelector('#scroller').scrollWidth > innerWidth")
                assert not wide, "the page scrolls sideways"
                chat.page.click("#open-settings")
                chat.picture(f"{name}-settings")
                chat.page.keyboard.press("Escape")
                if size == "phone":
                    chat.page.click(".open-list")
                    chat.picture(f"{name}-drawer")
                    chat.page.locator("#new-chat").click()
                    chat.page.wait_for_selector("body.empty:not(.drawer)")


def case_events_in_pieces(browser, mock):
    """Server-sent events may break anywhere and end their lines in three ways."""
    feed = """async ([text, size]) => {
        const { EventParser } = await import('/js/sse.js');
        const parser = new EventParser();
        const events = [];
        for (let at = 0; at < text.length; at += size) events.push(...parser.feed(text.slice(at, at + size)));
        return events;
    }"""
    lines = [": ping", "", "data: a", "", "event: x", "data:b", "data: c", "", "", "data: [DONE]", "", ""]
    wanted = [{"comment": "ping"}, {"data": "a"}, {"data": "b\nc"}, {"data": "[DONE]"}]
    with chat_page(browser, mock.url) as chat:
        for end in ("\n", "\r\n", "\r"):
            for size in (1, 2, 3, 1000):
                got = chat.page.evaluate(feed, [end.join(lines) + end, size])
                assert got == wanted, (end, size, got)
