"""A browser page that reports what must not happen: console errors, CSP violations, external requests."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

OUT = Path(__file__).parent / "out"
SIZES = {"desktop": (1280, 820), "phone": (390, 844)}


def launch(playwright):
    """Chromium as Debian packages it: no browser is downloaded."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        raise SystemExit("no Chromium: apt-get install chromium, or name one in CHROMIUM")
    return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])


class Chat:
    """What a person does on the page.

    What is waited for is written as a function: other strings are evaluated in the page, which its policy forbids.
    """

    def __init__(self, page, url):
        self.page = page
        self.url = url

    def open(self):
        self.page.goto(self.url)
        self.ready()

    def ready(self):
        self.page.wait_for_selector("html[data-ready]")

    def send(self, text):
        self.page.fill("#prompt", text)
        self.page.click("#send")

    def begin(self, text):
        """Sends and waits for the first words of the answer."""
        before = self.page.locator(".message.assistant").count()
        self.send(text)
        self.page.wait_for_function("n => document.querySelectorAll('.message.assistant').length > n", arg=before)
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.message.assistant .markdown')].at(-1).textContent.length > 0", timeout=120_000
        )

    def ask(self, text):
        """Sends and waits for the end of the answer, whatever it is."""
        before = self.page.locator(".message.assistant").count()
        self.send(text)
        self.page.wait_for_function("n => document.querySelectorAll('.message.assistant').length > n", arg=before)
        self.done()

    def done(self):
        self.page.wait_for_selector("#send:not(.running)", timeout=120_000)

    @property
    def answer(self):
        return self.page.locator(".message.assistant").last

    @property
    def question(self):
        return self.page.locator(".message.user").last

    def text(self):
        return self.answer.locator(".markdown").last.inner_text()

    def act(self, message, label):
        """Presses a button of a message; on a desktop some show under the pointer only."""
        message.hover()
        message.get_by_role("button", name=label).click()

    def picture(self, name):
        OUT.mkdir(exist_ok=True)
        # Transitions would make pictures differ.
        self.page.wait_for_timeout(350)
        self.page.screenshot(path=OUT / f"{name}.png")


@contextmanager
def chat_page(browser, url, size="desktop", scheme="light", expected=(), scale=None, view=None):
    """A fresh profile with the page open. Complaints of the browser fail the case unless expected."""
    width, height = view or SIZES[size]
    phone = size == "phone"
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=phone, is_mobile=phone,
        device_scale_factor=scale or (2 if phone else 1), accept_downloads=True,
    )
    complaints = []
    context.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective, e.blockedURI))"
    )
    page = context.new_page()
    page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(f"{error.message}\n{error.stack}"))
    host = urlsplit(url).netloc
    local = ("data:", "blob:")
    page.on("request", lambda request: urlsplit(request.url).netloc == host or request.url.startswith(local)
            or complaints.append(f"external request: {request.url}"))
    chat = Chat(page, url)
    try:
        chat.open()
        yield chat
        unexpected = [text for text in complaints if not any(word in text for word in expected)]
        assert not unexpected, unexpected
    finally:
        context.close()
