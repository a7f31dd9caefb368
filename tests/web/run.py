"""Tests of the web chat in a real browser.

    pip install -r tests/web/requirements.txt; apt-get install chromium
    python3 tests/web/run.py [--mock-only] [WORD ...]

All cases run against the mock server; those of cases_any_server also against FORGE_URL or, if that is not
set, against `forge serve` (FORGE_BIN, by default target/debug/forge) with its embedded model. WORDs select
cases by name. Screenshots go to tests/web/out/.
"""

import inspect
import os
import socket
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent))
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    raise SystemExit("no Playwright: pip install -r tests/web/requirements.txt") from None

import cases_any_server
import cases_chat
import cases_markdown
import cases_performance
from browser import launch
from mock_server import Mock

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 120


def cases_of(module, words):
    found = [one for name, one in inspect.getmembers(module, inspect.isfunction) if name.startswith("case_")]
    found.sort(key=lambda one: one.__code__.co_firstlineno)
    return [one for one in found if not words or any(word in one.__name__ for word in words)]


@contextmanager
def forge():
    """The address of a running forge server."""
    if url := os.environ.get("FORGE_URL"):
        yield url.rstrip("/") + "/"
        return
    binary = os.environ.get("FORGE_BIN", ROOT / "target" / "debug" / "forge")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([str(binary), "serve", "--host", "127.0.0.1", "--port", str(port)])
    url = f"http://127.0.0.1:{port}/"
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not answers(f"{url}health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{binary} serve did not start")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def answers(url):
    try:
        with urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


def run(cases, browser, target, label):
    passed, failed = 0, []
    for case in cases:
        started = time.monotonic()
        try:
            case(browser, target)
            passed += 1
            print(f"ok      {label} {case.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception:
            failed.append(case.__name__)
            traceback.print_exc()
            print(f"FAILED  {label} {case.__name__}", flush=True)
    return passed, len(failed)


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    mock = Mock().start()
    results = []
    with sync_playwright() as playwright:
        browser = launch(playwright)
        results.append(run(cases_of(cases_any_server, words), browser, mock.url, "mock "))
        for module in (cases_markdown, cases_chat, cases_performance):
            results.append(run(cases_of(module, words), browser, mock, "mock "))
        live = cases_of(cases_any_server, words)
        if live and "--mock-only" not in sys.argv:
            with forge() as url:
                results.append(run(live, browser, url, "forge"))
        browser.close()
    passed, failed = (sum(column) for column in zip(*results))
    skipped = len(cases_of(cases_any_server, words)) if "--mock-only" in sys.argv else 0
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
