//! The chat page: static files inside the program.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use include_dir::{Dir, include_dir};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/assets/web");

/// What the page may load: its own files, and nothing that a reply smuggles in.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file of a path, `index.html` for `/`; `None` if there is none.
pub(crate) fn file(request: &Request) -> Option<Response> {
    let method = request.method();
    if *method != Method::GET && *method != Method::HEAD {
        return None;
    }
    let path = request.uri().path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let hidden = path.split('/').any(|part| part.starts_with('.'));
    let contents = FILES.get_file(path).filter(|_| !hidden)?.contents();
    // The same bytes have the same tag, so a browser asks and is answered without them.
    let tag = format!("\"{:016x}\"", xxhash_rust::xxh3::xxh3_64(contents));
    let known = request.headers().get(header::IF_NONE_MATCH).is_some_and(|known| known == &*tag);
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { contents.into_response() };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    Some(response)
}

/// Media type of a file's name.
fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json" | "webmanifest") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
