"""Many clients at once: some read slowly, some leave, some send nonsense. Everything must be free in the end.

python3 load.py [path of forge] [seconds]
"""

import http.client
import json
import random
import sys
import threading
import time
from urllib.parse import urlparse

from server import Server

CLIENTS = 32


def request(rng):
    body = {
        "messages": [{"role": "user", "content": rng.choice(["Hello!", "Tell me a story about a fox.", "word " * 300])}],
        "max_tokens": rng.choice([1, 8, 60, 300]),
        "temperature": rng.choice([0, 1]),
        "stream": rng.random() < 0.7,
    }
    if rng.random() < 0.2:
        body["response_format"] = {"type": "json_object"}
    return json.dumps(body)


def client(address, until, seed, counts, failures):
    rng = random.Random(seed)
    while time.time() < until:
        connection = http.client.HTTPConnection(address, timeout=120)
        try:
            kind = rng.choice(["read", "read", "slow", "leave", "leave", "broken"])
            body = rng.choice(["{", "[]", '{"messages": 5}', "x" * 1000]) if kind == "broken" else request(rng)
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            if kind == "leave":
                time.sleep(rng.random() * 0.5)
                connection.close()
                counts["left"] += 1
                continue
            response = connection.getresponse()
            if kind == "slow":
                while response.read(64):
                    time.sleep(0.01)
            else:
                response.read()
            expected = {400} if kind == "broken" else {200, 429}
            if response.status not in expected:
                failures.append(f"{kind}: {response.status}")
            counts[response.status] += 1
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{kind}: {error!r}")
        finally:
            connection.close()


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path)
    value = json.loads(connection.getresponse().read())
    connection.close()
    return value


def memory_kib(process):
    for line in open(f"/proc/{process.pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "forge"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    # A cache that is full after seconds: what grows afterwards is a leak.
    cache = ("--cache-vram", "16MiB", "--cache-ram", "16MiB")
    with Server(program, "--ctx", "1024", "--slots", "4", "--max-queue", "16", *cache) as server:
        address = urlparse(server.url).netloc
        start = get(address, "/slots")
        counts = {key: 0 for key in ("left", 200, 400, 429)}
        failures, delays = [], []
        until = time.time() + seconds
        threads = [
            threading.Thread(target=client, args=(address, until, seed, counts, failures)) for seed in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        early = None
        while time.time() < until:
            asked = time.time()
            get(address, "/health")
            delays.append(time.time() - asked)
            if early is None and time.time() > until - seconds / 2:
                early = memory_kib(server.process)
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        late = memory_kib(server.process)
        time.sleep(2)
        end = get(address, "/slots")
        delays.sort()
        p99 = delays[int(len(delays) * 0.99)]
        print(f"{counts}, /health p99 {p99 * 1000:.0f} ms, memory {early} KiB at half time, {late} KiB at the end")
        assert not failures, failures[:10]
        assert end["free_slots"] == start["free_slots"] and end["free_blocks"] == start["free_blocks"], end
        assert end["requests"] == [], end
        assert late < early * 1.1 + 20_000, "memory grows"
        assert p99 < 0.1, p99


if __name__ == "__main__":
    main()
