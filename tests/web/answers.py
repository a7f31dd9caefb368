"""What the mock server answers."""

import re

CODE = """A **hash map** finds a value by its key in constant time on average. A *hash function* turns the key into a number, and the number names one of many **buckets**:

```rust
/// Ages by name; each bucket holds the pairs that collide.
struct Ages {
    buckets: Vec<Vec<(String, u32)>>,
}

impl Ages {
    fn get(&self, name: &str) -> Option<u32> {
        let index = hash(name) as usize % self.buckets.len();
        let pair = self.buckets[index].iter().find(|(key, _)| key == name)?;
        Some(pair.1) // the age
    }
}
```

| operation | average | worst case |
|:--|:-:|:-:|
| insert, look up | O(1) | O(n) |
| visit all | O(n) | O(n) |

The worst case needs every key in one bucket, so `std::collections::HashMap` uses a hash that [nobody can predict](https://doc.rust-lang.org/std/collections/struct.HashMap.html).
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

> The hut keeper says:
> the path by the lake is open.

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
    words = re.match(r"words (\d+)", lower)
    if words:
        return "", " ".join(f"word{number}" for number in range(int(words[1])))
    thinking = lower.startswith("reasoning") or body.get("chat_template_kwargs", {}).get("enable_thinking")
    return THOUGHTS if thinking else "", text_for(prompt, body)


def text_for(prompt, body):
    lower = prompt.lower()
    if lower.startswith("html"):
        return HTML
    texts = {"reasoning": STORY, "hash map": CODE, "code": CODE, "tcp": TABLE, "table": TABLE, "story": STORY, "plan": PLAN}
    for word, text in texts.items():
        if word in lower:
            return text
    number = len(body["messages"])
    return f"You said: {prompt}. This is answer number {number}, and it has a few more words, so that a quick test can stop it."
