//! Who may call: keys, and the origins of web pages.

use super::App;
use crate::serve::error::{ApiError, ErrorKind};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Refuses requests without the key.
pub(crate) async fn key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let keys = &app.options.api_keys;
    if keys.is_empty() || keys.iter().any(|key| carries(request.headers(), key)) {
        return next.run(request).await;
    }
    let error = ApiError {
        code: Some("invalid_api_key"),
        ..ApiError::new(ErrorKind::Unauthorized, "the API key is missing or wrong")
    };
    error.into_response()
}

/// Whether the headers carry `key`, in a time that tells nothing about it but its length.
fn carries(headers: &HeaderMap, key: &str) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    let given = bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()));
    given.is_some_and(|given| given.trim_ascii().ct_eq(key.as_bytes()).into())
}

/// Refuses what a web page of another origin asks for, before anything happens.
pub(crate) async fn origin(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let Some(origin) = headers.get(header::ORIGIN) else { return next.run(request).await };
    let origin = origin.to_str().unwrap_or_default();
    let listed =
        app.options.cors_origins.iter().any(|o| o == "*" || o.trim_end_matches('/') == origin);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if listed || is_own(origin, host, &app.options.host) {
        return next.run(request).await;
    }
    let message = format!("origin {origin:?} is not allowed; --cors-origin allows it");
    ApiError::new(ErrorKind::Forbidden, message).into_response()
}

/// Whether a page of `origin` was served by us, to a client that called us `host`. A name that is
/// neither `localhost` nor our own may be one that an attacker has pointed at us.
fn is_own(origin: &str, host: &str, bound: &str) -> bool {
    let Ok(uri) = origin.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    if !authority.as_str().eq_ignore_ascii_case(host) {
        return false;
    }
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || name == bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn keys() {
        let mut headers = HeaderMap::new();
        assert!(!carries(&headers, "secret"));
        headers.insert("x-api-key", HeaderValue::from_static("secret"));
        assert!(carries(&headers, "secret") && !carries(&headers, "secre"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        assert!(!carries(&headers, "secret") && carries(&headers, "other"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("x"));
        assert!(carries(&headers, "secret"));
    }

    #[test]
    fn only_our_own_pages_may_call() {
        assert!(is_own("http://localhost:8080", "localhost:8080", "127.0.0.1"));
        assert!(is_own("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1"));
        assert!(is_own("http://[::1]:8080", "[::1]:8080", "::1"));
        assert!(is_own("http://box:8080", "box:8080", "box"));
        assert!(!is_own("https://evil.example", "127.0.0.1:8080", "127.0.0.1"));
        // A name that was pointed at this machine.
        assert!(!is_own("http://evil.example:8080", "evil.example:8080", "127.0.0.1"));
        assert!(!is_own("http://localhost:3000", "localhost:8080", "127.0.0.1"));
        assert!(!is_own("null", "localhost:8080", "127.0.0.1"));
    }
}
