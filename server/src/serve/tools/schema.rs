//! The tools of a request, and what their arguments' types are.

use crate::serve::error::ApiError;
use serde_json::{Map, Number, Value};
use std::sync::Arc;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolSpec {
    /// Name.
    pub(crate) name: String,
    /// JSON schema of the arguments, an object.
    pub(crate) parameters: Map<String, Value>,
}

/// All tools of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ToolSet(Arc<Vec<ToolSpec>>);

impl ToolSet {
    /// Reads definitions, nested or flat.
    ///
    /// # Errors
    /// Naming the tool and what is wrong with it.
    pub(crate) fn parse(tools: &[Value]) -> Result<Self, ApiError> {
        let parsed = tools.iter().enumerate().map(|(index, tool)| {
            let at = |field: &str| format!("tools[{index}]{field}");
            if tool.get("type").is_some_and(|kind| kind != "function") {
                let kind = &tool["type"];
                return Err(ApiError::invalid(at(".type"), format!("{kind}; only functions")));
            }
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
            if name.is_empty() || name.contains(|c: char| c.is_whitespace() || "<>\"=".contains(c))
            {
                return Err(ApiError::invalid(at(".function.name"), "not a function's name"));
            }
            let parameters = match function.get("parameters") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(schema)) => schema.clone(),
                Some(_) => {
                    return Err(ApiError::invalid(at(".function.parameters"), "not a JSON schema"));
                }
            };
            Ok(ToolSpec { name: name.to_owned(), parameters })
        });
        Ok(Self(Arc::new(parsed.collect::<Result<_, _>>()?)))
    }

    /// The tools in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter()
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tool of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.0.iter().find(|tool| tool.name == name)
    }

    /// Only the tool of a name.
    pub(crate) fn only(&self, name: &str) -> Option<Self> {
        Some(Self(Arc::new(vec![self.get(name)?.clone()])))
    }
}

impl ToolSpec {
    /// Schema of a parameter, with the definitions that it may refer to.
    pub(crate) fn parameter(&self, key: &str) -> Option<Value> {
        let schema = self.parameters.get("properties")?.get(key)?;
        let mut schema = schema.clone();
        if let Value::Object(fields) = &mut schema {
            for definitions in ["$defs", "definitions"] {
                if let Some(value) = self.parameters.get(definitions) {
                    fields.entry(definitions).or_insert_with(|| value.clone());
                }
            }
        }
        Some(schema)
    }

    /// Names of the parameters, and whether each is required.
    pub(crate) fn parameter_names(&self) -> Vec<(String, bool)> {
        let required: Vec<&str> = self
            .parameters
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let properties = self.parameters.get("properties").and_then(Value::as_object);
        let names = properties.into_iter().flat_map(Map::keys);
        names.map(|name| (name.clone(), required.contains(&name.as_str()))).collect()
    }
}

/// Types that a schema admits; none = no statement.
fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => return vec![kind],
        Some(Value::Array(kinds)) => return kinds.iter().filter_map(Value::as_str).collect(),
        _ => {}
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(options) = schema.get(key).and_then(Value::as_array) {
            return options.iter().flat_map(types).collect();
        }
    }
    let listed = schema.get("enum").and_then(Value::as_array);
    let constant = schema.get("const");
    let mut kinds: Vec<&str> = listed.into_iter().flatten().chain(constant).map(type_of).collect();
    kinds.dedup();
    kinds
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a parameter holds text and nothing else: then its value needs no look at its content.
pub(crate) fn is_text(schema: Option<&Value>) -> bool {
    let Some(schema) = schema else { return true };
    let refers = schema.get("$ref").is_some() || schema.get("allOf").is_some();
    let kinds = types(schema);
    !refers && kinds.iter().all(|kind| *kind == "string")
}

/// Whether some text is a value: then no grammar can tell which text is not.
pub(crate) fn admits_text(schema: &Value) -> bool {
    is_text(Some(schema)) || types(schema).contains(&"string")
}

/// The value that `raw`, as a model wrote it, has by its schema; `None` = it has none.
pub(crate) fn convert(raw: &str, schema: Option<&Value>) -> Option<Value> {
    let Some(schema) = schema.filter(|_| !is_text(schema)) else { return Some(raw.into()) };
    let text = raw.trim();
    let kinds = types(schema);
    let parsed = serde_json::from_str::<Value>(text).ok().or_else(|| spelled(text));
    if let Some(value) = &parsed {
        if kinds.is_empty() || kinds.contains(&type_of(value)) {
            return parsed;
        }
        if kinds.contains(&"integer")
            && let Some(integer) = value.as_number().and_then(as_integer)
        {
            return Some(integer.into());
        }
    }
    // A text among other types, or a schema of which only the reader knows what it admits.
    (kinds.is_empty() || kinds.contains(&"string")).then(|| raw.into())
}

/// Constants as Python spells them.
fn spelled(text: &str) -> Option<Value> {
    match text {
        "True" | "TRUE" => Some(true.into()),
        "False" | "FALSE" => Some(false.into()),
        "None" | "NULL" => Some(Value::Null),
        _ => None,
    }
}

fn as_integer(number: &Number) -> Option<Number> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let value = number.as_f64()?;
    // Above 2^53 a float no longer says which integer it is.
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then(|| (value as i64).into())
}
