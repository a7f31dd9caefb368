"""Starts `forge serve` with the embedded model on a free port; what the suites of all SDKs ask for."""

import subprocess
import sys
import threading

MODEL = "forge-tiny"
KEY = "test-key"
# Schema of a tool's arguments, and of a structured answer.
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Server:
    """A running server; use it in a `with` block."""

    def __init__(self, program, *options):
        command = [program, "serve", "--port", "0", "--backend", "cpu", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stderr:
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
            if "is ready" in line:
                break
        if self.url is None:
            sys.exit("the server did not start")
        # Nobody reads its log, and a full pipe would stop it.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)


def run(checks, *arguments):
    """Runs functions by name and says how each went."""
    for check in checks:
        check(*arguments)
        print("ok", check.__name__, flush=True)
