"""A server that speaks forge's side of the web chat, for what a real tiny model cannot be made to do.

It serves server/assets/web with the Content-Security-Policy of `forge serve` and answers
/v1/chat/completions with a script chosen by the last message:

    code, reasoning, html, table, story   an answer of that kind (anything else: a short echo)
    fail                                  status 500 with an error body
    busy                                  status 429 with Retry-After
    break                                 an error event in the middle of the stream
    cut                                   the connection ends without [DONE]
    slow N                                N seconds of prefill with progress comments, then an answer
    silent N                              the same without a word of progress
    words N                               N words

Standard library only. Alone: python3 mock_server.py PORT [TOKENS_PER_SECOND]
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from answers import answer_for

ASSETS = Path(__file__).resolve().parents[2] / "server" / "assets" / "web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
MODELS = ["example-model", "forge-tiny"]


class Mock(ThreadingHTTPServer):
    """The server with what tests ask about it."""

    daemon_threads = True

    def __init__(self, port=0, rate=150.0, key=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.rate = rate
        self.key = key
        self.requests = []
        self.disconnects = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise the body of each file waits for the acknowledgement of its head.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/health":
            self.reply(200, {"status": "ok"})
        elif path == "/v1/models":
            if self.refused():
                return
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "forge"} for name in MODELS]
            self.reply(200, {"object": "list", "data": data})
        else:
            self.static("index.html" if path == "/" else path.lstrip("/"))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self.reply(404, {"error": {"message": "no such route"}})
            return
        if self.refused():
            return
        self.server.requests.append(body)
        prompt = body["messages"][-1]["content"]
        if prompt.startswith("fail"):
            self.reply(500, {"error": {"message": "the model ran out of blocks", "type": "server_error"}})
        elif prompt.startswith("busy"):
            self.reply(429, {"error": {"message": "the queue is full"}}, {"Retry-After": "3"})
        else:
            try:
                self.stream(body, prompt)
            except (BrokenPipeError, ConnectionResetError):
                self.server.disconnects += 1

    def refused(self):
        wanted = self.server.key
        if wanted is None or self.headers.get("Authorization") == f"Bearer {wanted}":
            return False
        self.reply(401, {"error": {"message": "this server asks for an API key"}})
        return True

    def static(self, name):
        path = (ASSETS / name).resolve()
        if ASSETS not in path.parents or not path.is_file():
            self.reply(404, {"error": {"message": "no such file"}})
            return
        self.send(200, path.read_bytes(), TYPES[path.suffix], {"Content-Security-Policy": POLICY})

    def reply(self, status, body, headers=None):
        self.send(status, json.dumps(body).encode(), "application/json", headers or {})

    def send(self, status, data, kind, headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), "X-Content-Type-Options": "nosniff", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, body, prompt):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.prefill(prompt)
        reasoning, text = answer_for(prompt, body)
        pieces = [("reasoning_content", piece) for piece in split(reasoning)] + [("content", piece) for piece in split(text)]
        started = time.monotonic()
        for index, (field, piece) in enumerate(pieces):
            if index == 12 and prompt.startswith("break"):
                self.event({"error": {"message": "the device was lost", "type": "server_error"}})
                return
            if index == 12 and prompt.startswith("cut"):
                return
            self.event(self.chunk(body, {field: piece}))
            time.sleep(max(0.0, started + (index + 1) / self.server.rate - time.monotonic()))
        limit = body.get("max_tokens")
        self.event(self.chunk(body, {}, "length" if limit and limit <= len(pieces) else "stop"))
        words = sum(len(str(message["content"]).split()) for message in body["messages"])
        prompt_tokens = 24 + words * 4 // 3
        cached = prompt_tokens * 9 // 10 if len(body["messages"]) > 2 else 0
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(pieces),
            "total_tokens": prompt_tokens + len(pieces),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self.event({**self.chunk(body, {}), "choices": [], "usage": usage})
        self.write("data: [DONE]\n\n")

    def prefill(self, prompt):
        wait = re.match(r"(slow|silent) ([\d.]+)", prompt)
        steps = 10
        for step in range(steps if wait else 0):
            if wait[1] == "slow":
                self.write(f": prefill {step * 2000}/{steps * 2000}\n\n")
            time.sleep(float(wait[2]) / steps)
        if not wait:
            time.sleep(0.15)

    def chunk(self, body, delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": body["model"], "choices": [choice]}

    def event(self, value):
        self.write(f"data: {json.dumps(value)}\n\n")

    def write(self, text):
        self.wfile.write(text.encode())
        self.wfile.flush()


def split(text):
    """Pieces of about a token."""
    return re.findall(r"\s*\S{1,6}|\s+$", text)


if __name__ == "__main__":
    server = Mock(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 150.0)
    print(server.url)
    server.serve_forever()
