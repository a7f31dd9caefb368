//! Python's text rules inside the template engine: `str`, `repr`, `json.dumps` and the
//! string methods that real templates call. Everything that grows with the data is paid for
//! with fuel, so a hostile template cannot make it run for long.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State, Value};
use std::fmt::Write as _;

/// Nesting that `tojson` and printing accept.
const MAX_DEPTH: usize = 128;
/// Bytes of text that one unit of fuel pays for.
const BYTES_PER_FUEL: usize = 64;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// White space as `str.strip()` sees it.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str(value)`; an undefined value prints as nothing.
pub(super) fn to_text(state: &State, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => {
            let mut writer = Writer::new(state);
            writer.repr(value, 0)?;
            Ok(writer.text)
        }
    }
}

/// Prints a value of `{{ }}`.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let text = match value.as_str() {
        Some(text) => return out.write_str(text).map_err(Error::from),
        None => to_text(state, value)?,
    };
    out.write_str(&text).map_err(Error::from)
}

/// The filter `string`.
pub(super) fn string(state: &State, value: &Value) -> Result<String, Error> {
    to_text(state, value)
}

/// The filter `trim`.
pub(super) fn trim(state: &State, value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = to_text(state, value)?;
    Ok(strip(&text, chars, Side::Both).to_owned())
}

/// The test `iterable`: strings and undefined values are, as in Python, none is not.
pub(super) fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// The test `sequence`: whatever has a length and can be indexed.
pub(super) fn is_sequence(value: &Value) -> bool {
    let kind = value.kind();
    matches!(kind, ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// The filter `tojson`: `json.dumps` with `ensure_ascii=False` unless asked otherwise.
pub(super) fn to_json(
    state: &State,
    value: &Value,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get::<Option<Value>>("indent")?,
    };
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match (indent.as_str(), indent.as_usize()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(spaces)) if spaces <= 64 => " ".repeat(spaces),
            _ => return Err(invalid(format!("tojson: indent {indent} is not 0 to 64"))),
        }),
    };
    let default = if indent.is_some() { (",", ": ") } else { (", ", ": ") };
    let separators = match options.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => {
            let item = |index| pair.get_item_by_index(index).and_then(|item| to_text(state, &item));
            Some((item(0)?, item(1)?))
        }
        _ => None,
    };
    let json = Json {
        indent,
        separators: separators.unwrap_or((default.0.to_owned(), default.1.to_owned())),
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut writer = Writer::new(state);
    writer.json(value, &json, 0)?;
    Ok(Value::from(writer.text))
}

struct Json {
    indent: Option<String>,
    /// Between items, and between key and value.
    separators: (String, String),
    ensure_ascii: bool,
    sort_keys: bool,
}

/// Text being built, paid for as it grows.
struct Writer<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    text: String,
    paid: usize,
}

impl<'a, 'template, 'env> Writer<'a, 'template, 'env> {
    fn new(state: &'a State<'template, 'env>) -> Self {
        Self { state, text: String::new(), paid: 0 }
    }

    /// Pays for one more value and the text written since the last.
    fn step(&mut self, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("a value is nested deeper than {MAX_DEPTH}")));
        }
        let fuel = 1 + (self.text.len() - self.paid) / BYTES_PER_FUEL;
        self.paid = self.text.len();
        self.state.consume_fuel(fuel as u64)
    }

    fn repr(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.step(depth)?;
        match value.kind() {
            ValueKind::Undefined => self.text.push_str("Undefined"),
            ValueKind::None => self.text.push_str("None"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "True" } else { "False" }),
            ValueKind::Number => self.number(value, ["nan", "inf", "-inf"]),
            ValueKind::String => quote(value.as_str().unwrap_or_default(), &mut self.text),
            ValueKind::Map => {
                self.text.push('{');
                for (index, key) in value.try_iter()?.enumerate() {
                    if index > 0 {
                        self.text.push_str(", ");
                    }
                    self.repr(&key, depth + 1)?;
                    self.text.push_str(": ");
                    self.repr(&value.get_item(&key)?, depth + 1)?;
                }
                self.text.push('}');
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let tuple = value.is_tuple();
                self.text.push(if tuple { '(' } else { '[' });
                let mut count = 0;
                for item in value.try_iter()? {
                    if count > 0 {
                        self.text.push_str(", ");
                    }
                    self.repr(&item, depth + 1)?;
                    count += 1;
                }
                self.text.push_str(match (tuple, count) {
                    (true, 1) => ",)",
                    (true, _) => ")",
                    (false, _) => "]",
                });
            }
            _ => {
                let _ = write!(self.text, "{value}");
            }
        }
        Ok(())
    }

    fn json(&mut self, value: &Value, json: &Json, depth: usize) -> Result<(), Error> {
        self.step(depth)?;
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value, ["NaN", "Infinity", "-Infinity"]),
            ValueKind::String => {
                json_string(value.as_str().unwrap_or_default(), json, &mut self.text);
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if json.sort_keys {
                    keys.sort();
                }
                self.text.push('{');
                for (index, key) in keys.iter().enumerate() {
                    self.item_start(index, json, depth);
                    self.json_key(key, json)?;
                    self.text.push_str(&json.separators.1);
                    self.json(&value.get_item(key)?, json, depth + 1)?;
                }
                self.list_end(keys.is_empty(), json, depth);
                self.text.push('}');
            }
            ValueKind::Seq | ValueKind::Iterable => {
                self.text.push('[');
                let mut empty = true;
                for (index, item) in value.try_iter()?.enumerate() {
                    empty = false;
                    self.item_start(index, json, depth);
                    self.json(&item, json, depth + 1)?;
                }
                self.list_end(empty, json, depth);
                self.text.push(']');
            }
            kind => {
                return Err(invalid(format!("a value of type {kind} is not JSON serializable")));
            }
        }
        Ok(())
    }

    fn json_key(&mut self, key: &Value, json: &Json) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => {
                json_string(key.as_str().unwrap_or_default(), json, &mut self.text);
                Ok(())
            }
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.text.push('"');
                self.json(key, json, 0)?;
                self.text.push('"');
                Ok(())
            }
            kind => Err(invalid(format!("a key of type {kind} is not JSON serializable"))),
        }
    }

    fn item_start(&mut self, index: usize, json: &Json, depth: usize) {
        if index > 0 {
            self.text.push_str(&json.separators.0);
        }
        if let Some(indent) = &json.indent {
            self.new_line(indent, depth + 1);
        }
    }

    fn list_end(&mut self, empty: bool, json: &Json, depth: usize) {
        if let (Some(indent), false) = (&json.indent, empty) {
            self.new_line(indent, depth);
        }
    }

    fn new_line(&mut self, indent: &str, depth: usize) {
        self.text.push('\n');
        for _ in 0..depth {
            self.text.push_str(indent);
        }
    }

    fn number(&mut self, value: &Value, [nan, infinity, negative]: [&str; 3]) {
        let _ = match f64::try_from(value.clone()) {
            Ok(number) if !value.is_integer() => {
                if number.is_nan() {
                    self.text.push_str(nan);
                } else if number.is_infinite() {
                    self.text.push_str(if number > 0.0 { infinity } else { negative });
                } else {
                    float(number, &mut self.text);
                }
                Ok(())
            }
            _ => write!(self.text, "{value}"),
        };
    }
}

/// `repr(float)`: the shortest digits, with an exponent below 1e-4 and from 1e16.
fn float(number: f64, text: &mut String) {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let _ = if (-4..16).contains(&exponent) || number == 0.0 {
        let plain = number.to_string();
        let tail = if plain.contains('.') { "" } else { ".0" };
        write!(text, "{plain}{tail}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(text, "{digits}e{sign}{:02}", exponent.abs())
    };
}

/// `repr(str)`.
fn quote(content: &str, text: &mut String) {
    let mark = if content.contains('\'') && !content.contains('"') { '"' } else { '\'' };
    text.push(mark);
    for c in content.chars() {
        let _ = match c {
            '\\' => write!(text, "\\\\"),
            '\n' => write!(text, "\\n"),
            '\r' => write!(text, "\\r"),
            '\t' => write!(text, "\\t"),
            c if c == mark => write!(text, "\\{c}"),
            c if c < ' ' || ('\x7f'..'\u{a1}').contains(&c) || c == '\u{ad}' => {
                write!(text, "\\x{:02x}", u32::from(c))
            }
            c => {
                text.push(c);
                Ok(())
            }
        };
    }
    text.push(mark);
}

fn json_string(content: &str, json: &Json, text: &mut String) {
    text.push('"');
    for c in content.chars() {
        let _ = match c {
            '"' => write!(text, "\\\""),
            '\\' => write!(text, "\\\\"),
            '\n' => write!(text, "\\n"),
            '\r' => write!(text, "\\r"),
            '\t' => write!(text, "\\t"),
            '\x08' => write!(text, "\\b"),
            '\x0c' => write!(text, "\\f"),
            c if c < ' ' => write!(text, "\\u{:04x}", u32::from(c)),
            c if json.ensure_ascii && !c.is_ascii() => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(text, "\\u{unit:04x}"))
            }
            c => {
                text.push(c);
                Ok(())
            }
        };
    }
    text.push('"');
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Left,
    Right,
    Both,
}

fn strip<'a>(text: &'a str, chars: Option<&str>, side: Side) -> &'a str {
    let stripped = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let mut rest = text;
    if side != Side::Right {
        rest = rest.trim_start_matches(stripped);
    }
    if side != Side::Left {
        rest = rest.trim_end_matches(stripped);
    }
    rest
}

/// Methods of Python's `str` and `list` that the engine's own compatibility layer lacks or does
/// differently; the rest goes there.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => match string_method(text, name, arguments)? {
            Some(result) => Ok(result),
            None => {
                minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments)
            }
        },
        None if value.kind() == ValueKind::Seq && name == "index" => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            let found = value.try_iter()?.position(|item| item == *wanted);
            found.map(Value::from).ok_or_else(|| invalid(format!("{wanted} is not in the list")))
        }
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

fn string_method(text: &str, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    let halves = |found: Option<(&str, &str)>, separator: &str, missing: [&str; 3]| {
        found.map_or_else(
            || Value::from(missing.map(Value::from).to_vec()),
            |(left, right)| Value::from([left, separator, right].map(Value::from).to_vec()),
        )
    };
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(arguments)?;
            let side = match name {
                "lstrip" => Side::Left,
                "rstrip" => Side::Right,
                _ => Side::Both,
            };
            Value::from(strip(text, chars, side))
        }
        "removeprefix" => {
            let (affix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_prefix(affix).unwrap_or(text))
        }
        "removesuffix" => {
            let (affix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_suffix(affix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            halves(text.split_once(separator), separator, [text, "", ""])
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            halves(text.rsplit_once(separator), separator, ["", "", text])
        }
        "rsplit" => {
            let (separator, limit): (Option<&str>, Option<i64>) = from_args(arguments)?;
            let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
            let Some(separator) = separator else {
                return Err(invalid("rsplit needs a separator"));
            };
            let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
            parts.reverse();
            parts.into_iter().map(Value::from).collect()
        }
        "index" => {
            let (wanted,): (&str,) = from_args(arguments)?;
            let at = text.find(wanted).and_then(|at| text.get(..at));
            let at = at.ok_or_else(|| invalid(format!("{wanted:?} is not in the string")))?;
            Value::from(at.chars().count())
        }
        _ => return Ok(None),
    }))
}
