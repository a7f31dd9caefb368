"""What the mock server answers."""

import re

CODE = """A **hash map** keeps pairs of key and value and finds a value in constant time on average. It works in three steps:

1. A *hash function* turns the key into a number.
2. The number, modulo the length of the table, names a **bucket**.
3. Keys that share a bucket are told apart by comparing them.

Here is the idea in Rust, with a `Vec` in each bucket:

```rust
/// A map from names to ages; each bucket holds the pairs that collide.
struct Ages {
    buckets: Vec<Vec<(String, u32)>>,
}

impl Ages {
    fn new(size: usize) -> Self {
        Self { buckets: vec![Vec::new(); size] }
    }

    fn insert(&mut self, name: &str, age: u32) {
        let index = hash(name) as usize % self.buckets.len();
        self.buckets[index].push((name.to_owned(), age)); // newest last
    }
}
```

| operation | average | worst case |
|:--|:-:|:-:|
| insert | O(1) | O(n) |
| look up | O(1) | O(n) |
| iterate | O(n) | O(n) |

> The worst case needs every key in one bucket, so `std::collections::HashMap` uses a hash that an attacker cannot predict.

More in the [documentation](https://doc.rust-lang.org/std/collections/struct.HashMap.html).
"""

HTML = """Here is <b>raw HTML</b> and <script>window.pwned = 1</script> in a sentence.

<table><tr><td onclick="window.pwned = 2">cell</td></tr></table>

<img src="http://example.invalid/x.png" onerror="window.pwned = 3">

![picture](http://example.invalid/y.png) [bad](javascript:window.pwned=4) [good](https://example.org/)

| a | b |
|---|---|
| <i>x</i> | one<br>two |

```html
<script>window.pwned = 5</script>
```

An unclosed fence:

```js
document.write("<img src=x onerror=window.pwned=6>")
"""

TABLE = """| | TCP | UDP |
|:--|:--|:--|
| **Connection** | handshake first | none |
| **Order** | kept | not kept |
| **Lost data** | sent again | stays lost |
| **Header** | 20 to 60 bytes | 8 bytes |
| **Used by** | web, mail, files | calls, games, DNS |

Choose **TCP** when every byte counts and **UDP** when a late byte is worth nothing.
"""

PLAN = """## A weekend in the mountains

- [x] Look at the weather
- [x] Book the hut
- [ ] Pack
  - rain jacket
  - map, and a second one on paper
  - water for a day
- [ ] Tell somebody the way

### Saturday
1. Take the early train
2. Walk up to the lake
   1. rest at the bridge
   2. swim, if it is warm
3. Sleep in the hut

---

~~Sunday: the summit~~ *only if the ridge is dry*.
"""

STORY = """One morning a crow named **Paul** found a painting in the grass. It was yellow, with a small red house in one corner.

"This painting is not mine," said Paul, and he asked everybody on the island. Nobody knew it. Then Mia the swan came running.

"That is the house where I was born!" she cried.

Paul gave her the painting at once, and they shared some pancakes.
"""

THOUGHTS = """The question asks for a short story. I should think of

- a crow, with a name
- a painting that somebody has lost

and end it kindly. **About a hundred words** will do."""


def answer_for(prompt, body):
    """The reasoning and the text for this prompt."""
    lower = prompt.lower()
    thinking = body.get("chat_template_kwargs", {}).get("enable_thinking")
    words = re.match(r"words (\d+)", lower)
    if words:
        return "", " ".join(f"word{number}" for number in range(int(words[1])))
    if lower.startswith("reasoning") or thinking:
        return THOUGHTS, STORY
    if lower.startswith("html"):
        return "", HTML
    for word, text in {"hash map": CODE, "code": CODE, "tcp": TABLE, "table": TABLE, "story": STORY, "plan": PLAN}.items():
        if word in lower:
            return "", text
    return "", f"You said: {prompt}. This is answer number {len(body['messages'])}, and it has a few more words, so that it can be stopped in time by a test that is quick."
