//! JSON bodies, with errors that name the field.

use super::App;
use crate::serve::error::{ApiError, ErrorKind};
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The body of a request as a `T`.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let limit = app.options.body_limit_bytes;
        let bytes = read(request.into_body(), limit, app.options.read_timeout).await?;
        // A history of megabytes takes a while to parse.
        let parsed = tokio::task::spawn_blocking(move || parse(&bytes)).await;
        parsed.map_err(ApiError::internal)?.map(Self)
    }
}

async fn read(body: Body, limit: usize, timeout: std::time::Duration) -> Result<Vec<u8>, ApiError> {
    let collected = tokio::time::timeout(timeout, Limited::new(body, limit).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body is larger than {limit} bytes");
            Err(ApiError::new(ErrorKind::TooLarge, message))
        }
        Ok(Err(error)) => {
            Err(ApiError::new(ErrorKind::InvalidRequest, format!("the body broke off: {error}")))
        }
        Err(_) => Err(ApiError::new(ErrorKind::Timeout, "the body did not arrive in time")),
    }
}

/// Reads JSON; an error names the field.
///
/// # Errors
/// For what is not JSON, or not of `T`'s form.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_syntax() || inner.is_eof() {
            let message = format!("the body is not JSON: {inner}");
            return ApiError::new(ErrorKind::InvalidRequest, message);
        }
        let message = inner.to_string();
        // `unknown field `x`, expected one of …` names the field, not its place.
        let unknown = message.strip_prefix("unknown field `").and_then(|m| m.split('`').next());
        if let Some(field) = unknown {
            let place = if path == "." || path.is_empty() || path == field {
                field.to_owned()
            } else if path.ends_with(field) {
                path
            } else {
                format!("{path}.{field}")
            };
            return ApiError {
                code: Some("unknown_parameter"),
                ..ApiError::invalid(place, "there is no such field")
            };
        }
        if path == "." {
            ApiError::new(ErrorKind::InvalidRequest, message)
        } else {
            ApiError::invalid(path, message)
        }
    })?;
    deserializer.end().map_err(|error| {
        ApiError::new(ErrorKind::InvalidRequest, format!("the body is not JSON: {error}"))
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code, reason = "only its place matters")]
        inner: Option<Vec<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code, reason = "only its place matters")]
        x: Option<u32>,
    }

    #[test]
    fn errors_name_the_field() {
        let param = |text: &str| parse::<Outer>(text.as_bytes()).unwrap_err().param;
        assert_eq!(param("{\"odd\": 1}").as_deref(), Some("odd"));
        assert_eq!(param("{\"inner\": [{\"x\": \"7\"}]}").as_deref(), Some("inner[0].x"));
        assert_eq!(param("{\"inner\": [{}, {\"y\": 7}]}").as_deref(), Some("inner[1].y"));
        assert_eq!(param("{"), None);
        assert_eq!(param("{} x"), None);
        assert!(parse::<Outer>(b"{}").is_ok());
    }
}
