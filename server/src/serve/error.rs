//! Errors as clients see them: one type, written in the words of the API that was called.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What kind of failure, which decides the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request is at fault.
    InvalidRequest,
    /// No key, or a wrong one.
    Unauthorized,
    /// A page of another origin called.
    Forbidden,
    /// No such route, model or object.
    NotFound,
    /// The route has other methods.
    MethodNotAllowed,
    /// The body did not arrive in time.
    Timeout,
    /// The body is larger than the limit.
    TooLarge,
    /// The queue is full.
    Busy,
    /// The model cannot run now.
    Unavailable,
    /// A fault of ours.
    Internal,
}

impl ErrorKind {
    /// HTTP status.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn openai(self) -> &'static str {
        match self {
            Self::Unauthorized => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::NotFound => "not_found_error",
            Self::Busy => "rate_limit_error",
            Self::Unavailable => "service_unavailable_error",
            Self::Internal => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic(self) -> &'static str {
        match self {
            Self::Unauthorized => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::Busy => "rate_limit_error",
            Self::Unavailable => "overloaded_error",
            Self::Internal => "api_error",
            _ => "invalid_request_error",
        }
    }
}

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// Kind.
    pub(crate) kind: ErrorKind,
    /// For people.
    pub(crate) message: String,
    /// Field of the request at fault.
    pub(crate) param: Option<String>,
    /// For programs.
    pub(crate) code: Option<&'static str>,
    /// Seconds after which to try again.
    pub(crate) retry_after_s: Option<u32>,
}

impl ApiError {
    /// An error of a kind.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None, code: None, retry_after_s: None }
    }

    /// A field that cannot be honoured; the message names it.
    pub(crate) fn invalid(param: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        let param = param.into();
        let message = format!("{param}: {reason}");
        Self { param: Some(param), ..Self::new(ErrorKind::InvalidRequest, message) }
    }

    /// A field that forge does not offer.
    pub(crate) fn unsupported(param: &str, reason: &str) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::invalid(param, reason) }
    }

    /// A prompt that does not fit, with both numbers.
    pub(crate) fn context_length(prompt_tokens: usize, context: usize) -> Self {
        // Clients look for the first five words and shorten the conversation.
        let message = format!(
            "prompt is too long: {prompt_tokens} tokens > {} maximum; this model's context is \
             {context} tokens, one of them for the answer at least",
            context.saturating_sub(1)
        );
        Self {
            code: Some("context_length_exceeded"),
            param: Some("messages".into()),
            ..Self::new(ErrorKind::InvalidRequest, message)
        }
    }

    /// A fault of ours.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::Internal, message.to_string())
    }

    /// The error of a field that this API calls `to` and the internal request `from`.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        let Some(param) = &self.param else { return self };
        let rest = param.strip_prefix(from).filter(|r| r.is_empty() || r.starts_with(['.', '[']));
        let Some(rest) = rest else { return self };
        let name = format!("{to}{rest}");
        if let Some(reason) = self.message.strip_prefix(&format!("{param}:")) {
            self.message = format!("{name}:{reason}");
        }
        self.param = Some(name);
        self
    }

    /// The body in the words of `format`.
    pub(crate) fn body(&self, format: ErrorFormat) -> Value {
        match format {
            ErrorFormat::OpenAi => json!({"error": {
                "message": self.message,
                "type": self.kind.openai(),
                "param": self.param,
                "code": self.code,
            }}),
            ErrorFormat::Anthropic => json!({
                "type": "error",
                "error": {"type": self.kind.anthropic(), "message": self.message},
            }),
        }
    }

    /// The response in the words of `format`.
    pub(crate) fn response(&self, format: ErrorFormat) -> Response {
        let mut response = (self.kind.status(), axum::Json(self.body(format))).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == ErrorKind::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<forge_core::Error> for ApiError {
    fn from(error: forge_core::Error) -> Self {
        match &error {
            forge_core::Error::Invalid { field, .. } => Self {
                param: Some(field.clone()),
                ..Self::new(ErrorKind::InvalidRequest, error.to_string())
            },
            forge_core::Error::Template(_) => Self {
                param: Some("messages".into()),
                ..Self::new(ErrorKind::InvalidRequest, error.to_string())
            },
            _ => Self::internal(error),
        }
    }
}

/// Whose error format a route speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`.
    Anthropic,
}

impl ErrorFormat {
    /// The format of the API that `path` belongs to.
    pub(crate) fn of_path(path: &str) -> Self {
        let messages = path.strip_prefix("/v1/messages");
        match messages {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }
}

/// The response of a handler that failed. It carries the error along, so that the outermost layer
/// can write it anew for the API that was called.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.response(ErrorFormat::OpenAi);
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides_the_format() {
        assert_eq!(ErrorFormat::of_path("/v1/messages"), ErrorFormat::Anthropic);
        assert_eq!(ErrorFormat::of_path("/v1/messages/count_tokens"), ErrorFormat::Anthropic);
        assert_eq!(ErrorFormat::of_path("/v1/messagesx"), ErrorFormat::OpenAi);
        assert_eq!(ErrorFormat::of_path("/v1/chat/completions"), ErrorFormat::OpenAi);
    }

    #[test]
    fn a_field_takes_the_name_that_the_api_has_for_it() {
        let error = || ApiError::invalid("messages[0].content", "no");
        let renamed = error().renamed("messages", "input");
        assert_eq!(renamed.param.as_deref(), Some("input[0].content"));
        assert_eq!(renamed.message, "input[0].content: no");
        assert_eq!(error().renamed("mess", "input"), error());
    }

    #[test]
    fn a_prompt_that_is_too_long_names_both_numbers() {
        let error = ApiError::context_length(5000, 4096);
        let body = error.body(ErrorFormat::OpenAi);
        assert_eq!(body["error"]["code"], "context_length_exceeded");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("5000") && message.contains("4096"), "{message}");
    }
}
