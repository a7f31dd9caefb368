//! Fields that the OpenAI formats share, and what their values may be.

use crate::serve::error::ApiError;
use crate::serve::request::{ResponseFormat, Thinking, ToolChoice};
use forge_core::TokenId;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most stop strings; more would be a mistake.
const MAX_STOPS: usize = 64;
/// Most tokens of `top_logprobs`.
const MAX_TOP_LOGPROBS: usize = 20;

/// One text or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// `stop`.
///
/// # Errors
/// For an empty string, or too many.
pub(crate) fn stops(stop: Option<OneOrMany>) -> Result<Vec<String>, ApiError> {
    let stops = match stop {
        None => Vec::new(),
        Some(OneOrMany::One(one)) => vec![one],
        Some(OneOrMany::Many(many)) => many,
    };
    if stops.len() > MAX_STOPS {
        return Err(ApiError::invalid("stop", format!("more than {MAX_STOPS} strings")));
    }
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "a stop string is empty"));
    }
    Ok(stops)
}

/// `logit_bias`: ids as texts, as JSON has no other keys.
///
/// # Errors
/// For a key that is no id, or a value outside -100 to 100.
pub(crate) fn logit_bias(bias: &Map<String, Value>) -> Result<Vec<(TokenId, f32)>, ApiError> {
    bias.iter()
        .map(|(key, value)| {
            let at = format!("logit_bias.{key}");
            let id = key.parse().map_err(|_| ApiError::invalid(&at, "is not the id of a token"))?;
            let value = value.as_f64().filter(|value| value.abs() <= 100.0);
            let value = value.ok_or_else(|| ApiError::invalid(&at, "is not from -100 to 100"))?;
            Ok((TokenId(id), value as f32))
        })
        .collect()
}

/// `top_k`, where -1 and 0 mean all.
///
/// # Errors
/// For other negative numbers.
pub(crate) fn top_k(top_k: Option<i64>) -> Result<Option<u32>, ApiError> {
    match top_k {
        Some(-1) => Ok(Some(0)),
        Some(k) if k < 0 => Err(ApiError::invalid("top_k", format!("{k} is negative"))),
        other => Ok(other.map(|k| u32::try_from(k).unwrap_or(u32::MAX))),
    }
}

/// `top_logprobs` beside `logprobs`.
///
/// # Errors
/// If one is given without the other, or too large.
pub(crate) fn logprobs(on: Option<bool>, top: Option<usize>) -> Result<Option<usize>, ApiError> {
    match (on.unwrap_or_default(), top) {
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::invalid("top_logprobs", "needs logprobs: true")),
        (true, Some(top)) if top > MAX_TOP_LOGPROBS => {
            Err(ApiError::invalid("top_logprobs", format!("{top} is more than {MAX_TOP_LOGPROBS}")))
        }
        (true, top) => Ok(Some(top.unwrap_or_default())),
    }
}

/// A count that must not be zero.
///
/// # Errors
/// If it is.
pub(crate) fn positive(field: &str, value: Option<usize>) -> Result<Option<usize>, ApiError> {
    match value {
        Some(0) => Err(ApiError::invalid(field, "must be at least 1")),
        value => Ok(value),
    }
}

/// `response_format` in the nestings that clients use.
///
/// # Errors
/// For any other form.
pub(crate) fn response_format(format: Option<&Value>) -> Result<ResponseFormat, ApiError> {
    let at = "response_format";
    let Some(format) = format.filter(|format| !format.is_null()) else {
        return Ok(ResponseFormat::Text);
    };
    let fields = format.as_object().ok_or_else(|| ApiError::invalid(at, "is not an object"))?;
    let known = ["type", "json_schema", "schema", "strict", "name", "description"];
    if let Some(odd) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(ApiError::invalid(format!("{at}.{odd}"), "there is no such field"));
    }
    let nested = fields.get("json_schema").and_then(Value::as_object);
    let schema = nested.and_then(|nested| nested.get("schema")).or_else(|| fields.get("schema"));
    let schema = schema.filter(|schema| !schema.is_null());
    match fields.get("type").and_then(Value::as_str) {
        Some("text") => Ok(ResponseFormat::Text),
        Some("json_object") => Ok(match schema {
            Some(schema) => ResponseFormat::JsonSchema(schema.clone()),
            None => ResponseFormat::JsonObject,
        }),
        Some("json_schema") => match schema {
            Some(schema @ Value::Object(_)) => Ok(ResponseFormat::JsonSchema(schema.clone())),
            Some(_) => Err(ApiError::invalid(format!("{at}.json_schema.schema"), "is no schema")),
            None => Err(ApiError::invalid(format!("{at}.json_schema.schema"), "is missing")),
        },
        _ => {
            let reason = "must be text, json_object or json_schema";
            Err(ApiError::invalid(format!("{at}.type"), reason))
        }
    }
}

/// `tool_choice`.
///
/// # Errors
/// For a form that forge does not offer.
pub(crate) fn tool_choice(choice: Option<&Value>) -> Result<ToolChoice, ApiError> {
    let at = "tool_choice";
    match choice {
        None | Some(Value::Null) => Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            _ => Err(ApiError::invalid(at, format!("{word:?} is not auto, none or required"))),
        },
        Some(Value::Object(fields)) => {
            if fields.get("type").is_some_and(|kind| kind != "function") {
                return Err(ApiError::unsupported(
                    "tool_choice.type",
                    "only a function can be chosen",
                ));
            }
            let function = fields.get("function").and_then(Value::as_object).unwrap_or(fields);
            let name = function.get("name").and_then(Value::as_str);
            let name =
                name.ok_or_else(|| ApiError::invalid(format!("{at}.function.name"), "is missing"))?;
            Ok(ToolChoice::Named(name.to_owned()))
        }
        Some(_) => Err(ApiError::invalid(at, "is neither a word nor an object")),
    }
}

/// The budget that stands for an effort; `None` = no limit.
///
/// # Errors
/// For an unknown word.
pub(crate) fn effort(field: &str, effort: &str) -> Result<Thinking, ApiError> {
    let on = |budget| Thinking { enabled: Some(true), budget };
    match effort {
        "none" => Ok(Thinking { enabled: Some(false), budget: None }),
        "minimal" => Ok(on(Some(512))),
        "low" => Ok(on(Some(2048))),
        "medium" => Ok(on(Some(8192))),
        "high" | "xhigh" | "max" => Ok(on(None)),
        _ => Err(ApiError::invalid(field, format!("{effort:?} is no effort"))),
    }
}

/// The client's own labels.
pub(crate) fn labels<const N: usize>(given: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    given.filter(|(_, value)| !value.is_null()).collect()
}

/// Fields that OpenAI has and forge does not, with the values that change nothing.
///
/// # Errors
/// Naming the first that would.
pub(crate) fn refuse<const N: usize>(
    fields: [(&str, Option<&Value>, &[Value], &str); N],
) -> Result<(), ApiError> {
    for (name, value, harmless, reason) in fields {
        if let Some(value) = value.filter(|value| !value.is_null())
            && !harmless.contains(value)
        {
            return Err(ApiError::unsupported(name, reason));
        }
    }
    Ok(())
}
