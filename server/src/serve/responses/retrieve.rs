//! `/v1/responses/{id}`: stored responses.

use super::create::{ENCRYPTED, check_include};
use super::input::SEAL;
use super::store::Stored;
use super::writer;
use crate::serve::error::{ApiError, ErrorKind};
use crate::serve::http::{App, sse};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;

/// Most items of a page.
const MAX_PAGE: usize = 100;
/// Items of a page if the client does not say how many.
const PAGE: usize = 20;

type Pairs = Query<Vec<(String, String)>>;

fn missing(id: &str) -> ApiError {
    let message = format!("there is no response {id:?}");
    ApiError { param: Some("response_id".into()), ..ApiError::new(ErrorKind::NotFound, message) }
}

fn find(app: &App, id: &str) -> Result<Arc<Stored>, ApiError> {
    app.responses.get(id).ok_or_else(|| missing(id))
}

fn value<T: FromStr>(key: &str, value: &str) -> Result<T, ApiError> {
    value.parse().map_err(|_| ApiError::invalid(key, format!("{value:?} is not a value of it")))
}

fn unknown(key: &str) -> ApiError {
    ApiError { code: Some("unknown_parameter"), ..ApiError::invalid(key, "there is no such field") }
}

/// `GET /v1/responses/{id}`.
pub(super) async fn response(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(pairs): Pairs,
) -> Result<Response, ApiError> {
    let (mut stream, mut after, mut include) = (false, None, Vec::new());
    for (key, text) in pairs {
        match key.as_str() {
            "stream" => stream = value(&key, &text)?,
            "starting_after" => after = Some(value(&key, &text)?),
            "include" | "include[]" => include.push(text),
            "include_obfuscation" if text == "false" => {}
            _ => return Err(unknown(&key)),
        }
    }
    check_include(&include)?;
    let mut response = find(&app, &id)?.response.clone();
    if include.iter().any(|name| name == ENCRYPTED) {
        seal(&mut response);
    }
    if stream {
        return Ok(sse::frames(writer::replay(&response, after)));
    }
    if after.is_some() {
        return Err(ApiError::invalid("starting_after", "needs stream=true"));
    }
    Ok(axum::Json(response).into_response())
}

/// Adds sealed copies of the reasoning.
fn seal(response: &mut Value) {
    let Some(items) = response["output"].as_array_mut() else { return };
    for item in items.iter_mut().filter(|item| item["type"] == "reasoning") {
        let texts = [&item["content"][0]["text"], &item["summary"][0]["text"]];
        let text = texts.into_iter().find_map(Value::as_str).unwrap_or_default();
        item["encrypted_content"] = format!("{SEAL}{text}").into();
    }
}

/// `DELETE /v1/responses/{id}`.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    if !app.responses.remove(&id) {
        return Err(missing(&id));
    }
    Ok(axum::Json(json!({"id": id, "object": "response", "deleted": true})).into_response())
}

/// `GET /v1/responses/{id}/input_items`.
pub(super) async fn input_items(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(pairs): Pairs,
) -> Result<Response, ApiError> {
    let (mut limit, mut ascending, mut after, mut include) = (PAGE, false, None, Vec::new());
    for (key, text) in pairs {
        match (key.as_str(), text.as_str()) {
            ("limit", _) => limit = value(&key, &text)?,
            ("order", "asc") => ascending = true,
            ("order", "desc") => ascending = false,
            ("order", _) => return Err(ApiError::invalid("order", "is not asc or desc")),
            ("after", _) => after = Some(text),
            ("include" | "include[]", _) => include.push(text),
            _ => return Err(unknown(&key)),
        }
    }
    check_include(&include)?;
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiError::invalid("limit", format!("is not from 1 to {MAX_PAGE}")));
    }
    let stored = find(&app, &id)?;
    page(&stored.input, limit, ascending, after.as_deref())
        .map(|page| axum::Json(page).into_response())
}

/// A page of `items`.
fn page(
    items: &[Value],
    limit: usize,
    ascending: bool,
    after: Option<&str>,
) -> Result<Value, ApiError> {
    let mut ordered: Vec<&Value> = items.iter().collect();
    if !ascending {
        ordered.reverse();
    }
    if let Some(after) = after {
        let found = ordered.iter().position(|item| item["id"] == after);
        let place = found.ok_or_else(|| ApiError::invalid("after", "there is no such item"))?;
        ordered.drain(..=place);
    }
    let has_more = ordered.len() > limit;
    ordered.truncate(limit);
    let id = |item: Option<&&Value>| item.map(|item| item["id"].clone());
    Ok(json!({
        "object": "list",
        "data": ordered,
        "first_id": id(ordered.first()),
        "last_id": id(ordered.last()),
        "has_more": has_more,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let items: Vec<Value> = (0..5).map(|n| json!({"id": format!("i{n}")})).collect();
        let first = page(&items, 2, false, None).unwrap();
        assert_eq!(first["data"], json!([{"id": "i4"}, {"id": "i3"}]));
        assert_eq!((&first["has_more"], &first["last_id"]), (&json!(true), &json!("i3")));
        let last = page(&items, 3, false, Some("i3")).unwrap();
        assert_eq!((&last["first_id"], &last["has_more"]), (&json!("i2"), &json!(false)));
        assert_eq!(page(&items, 1, true, None).unwrap()["data"], json!([{"id": "i0"}]));
        assert_eq!(page(&items, 1, true, Some("x")).unwrap_err().param.as_deref(), Some("after"));
        assert_eq!(page(&[], 1, true, None).unwrap()["first_id"], Value::Null);
    }
}
