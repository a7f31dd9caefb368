"""What must work with every server and model: also run against `forge serve` with its embedded model."""

import re

from browser import chat_page

QUESTION = "Tell me a story about a crow."


def case_conversation_on_desktop(browser, url):
    conversation(browser, url, "desktop")


def case_conversation_on_phone(browser, url):
    conversation(browser, url, "phone")


def conversation(browser, url, size):
    """Send, see it stream, regenerate, edit, reload and find it again."""
    with chat_page(browser, url, size) as chat:
        page = chat.page
        chat.begin(QUESTION)
        chat.done()
        first = chat.text()
        assert first.strip(), "an answer with text"
        stats = chat.answer.locator(".stats").inner_text()
        assert re.search(r"\d+ tokens", stats) and "≈" not in stats, f"the server's own count: {stats}"
        assert re.search(r"prompt \d+", stats), f"prompt tokens: {stats}"

        chat.act(chat.answer, "Answer again")
        page.wait_for_selector(".versions >> text=2 / 2")
        chat.done()
        chat.act(chat.answer, "Version before")
        page.wait_for_selector(".versions >> text=1 / 2")
        assert chat.text() == first, "the first answer is kept"

        chat.act(chat.question, "Edit message")
        page.fill(".editor textarea", "Tell me a story about a swan.")
        page.click(".editor >> text=Send")
        page.wait_for_selector(".message.user >> text=swan")
        chat.done()
        assert page.locator(".message").count() == 2, "an edit begins a branch"
        chat.act(chat.question, "Version before")
        page.wait_for_selector(".message.user >> text=crow")

        page.reload()
        chat.ready()
        page.wait_for_selector(".message.user >> text=crow")
        assert chat.text() == first, "the conversation is there after a reload, with the version that was shown"
        chat.picture(f"conversation-{size}")


def case_stop(browser, url):
    """Stop with the button and with Esc; what was written stays."""
    with chat_page(browser, url) as chat:
        for stop in (lambda: chat.page.click("#send.running"), lambda: chat.page.keyboard.press("Escape")):
            before = chat.page.locator(".notice >> text=Stopped").count()
            chat.begin("words 4000 please, one long story without an end.")
            stop()
            chat.done()
            assert chat.page.locator(".notice >> text=Stopped").count() == before + 1
            assert chat.text().strip()
