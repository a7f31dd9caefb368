"""Takes the README's picture: python3 tests/web/picture.py (needs Pillow, too).

The answer comes from the mock server, so its figures say nothing about an engine.
"""

import io
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from PIL import Image
from playwright.sync_api import sync_playwright

from browser import OUT, chat_page, launch
from mock_server import Mock

TARGET = Path(__file__).resolve().parents[2] / "docs" / "images" / "chat.png"
MAX_BYTES = 200_000
# Title and age in days of the conversations in the list.
OTHERS = [
    ("A weekend in the mountains", 0), ("Why is the sky blue?", 0), ("TCP and UDP in a table", 1), ("A crow named Paul", 1),
    ("Rename many files with a script", 3), ("Delta rule, step by step", 4), ("Letter to the landlord", 6), ("Sourdough for beginners", 12),
]


def others():
    now = time.time() * 1000
    conversations = []
    for number, (title, days) in enumerate(OTHERS):
        message = {"id": "m", "parent": "root", "role": "user", "content": title, "created": 1, "status": "done"}
        when = now - days * 86_400_000 - number * 1000
        conversations.append({"id": f"c{number}", "title": title, "created": when, "updated": when, "selected": {}, "messages": [message]})
    return {"format": "forge-chat", "version": 1, "conversations": conversations}


def main():
    OUT.mkdir(exist_ok=True)
    file = OUT / "others.json"
    file.write_text(json.dumps(others()))
    mock = Mock(rate=60).start()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        with chat_page(browser, mock.url, scheme="dark", scale=1.25, view=(1240, 960)) as chat:
            chat.page.set_input_files("#import-file", file)
            chat.page.click("#thinking")
            chat.ask("How does a hash map work? Show me in Rust.")
            chat.page.mouse.move(0, 0)
            chat.page.wait_for_timeout(4500)
            shot = chat.page.screenshot()
        browser.close()
    TARGET.parent.mkdir(exist_ok=True)
    Image.open(io.BytesIO(shot)).convert("RGB").save(TARGET, optimize=True)
    size = TARGET.stat().st_size
    assert size < MAX_BYTES, f"{size} bytes: lower the scale"
    print(f"{TARGET}: {size} bytes")


if __name__ == "__main__":
    main()
