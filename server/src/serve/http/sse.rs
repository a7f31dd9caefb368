//! Server-sent events: a generation as a stream of them, with signs of life while nothing happens.

use crate::serve::error::ApiError;
use crate::serve::generation::{Generation, Head};
use crate::serve::request::GenerateEvent;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::Value;
use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

/// One event on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// `data:` with JSON, and its `event:` if it has one.
    Data(Option<&'static str>, String),
    /// A comment, which clients ignore.
    Comment(String),
}

impl Frame {
    /// JSON without a name.
    pub(crate) fn data(value: &Value) -> Self {
        Self::Data(None, value.to_string())
    }

    /// JSON with a name.
    pub(crate) fn named(event: &'static str, value: &Value) -> Self {
        Self::Data(Some(event), value.to_string())
    }

    fn text(&self) -> String {
        match self {
            // JSON text holds no line end.
            Self::Data(Some(event), data) => format!("event: {event}\ndata: {data}\n\n"),
            Self::Data(None, data) => format!("data: {data}\n\n"),
            Self::Comment(text) => format!(": {text}\n\n"),
        }
    }
}

/// Writes the events of one API.
pub(crate) trait Encoder: Send + 'static {
    /// The frames before the first event.
    fn head(&mut self, head: &Head, out: &mut Vec<Frame>);
    /// The frames of an event. Those of the last ones, `Usage` and `Error`, end the stream.
    fn event(&mut self, event: GenerateEvent, out: &mut Vec<Frame>);
    /// A sign of life.
    fn ping(&mut self) -> Frame {
        Frame::Comment("keep-alive".into())
    }
}

/// Gives an encoder every event of a reply whose frames nobody reads: it ends up with all of it.
///
/// # Errors
/// The error that ended the request.
pub(crate) async fn exhaust(
    mut generation: Generation,
    encoder: &mut impl Encoder,
) -> Result<(), ApiError> {
    let mut frames = Vec::new();
    encoder.head(&generation.head(), &mut frames);
    while let Some(event) = generation.next().await {
        if let GenerateEvent::Error(error) = event {
            return Err(error);
        }
        let last = matches!(event, GenerateEvent::Usage(_));
        encoder.event(event, &mut frames);
        frames.clear();
        if last {
            return Ok(());
        }
    }
    Err(ApiError::internal("the reply broke off"))
}

/// A generation that may still be on its way: a model may have to be loaded first.
pub(crate) type Pending =
    Pin<Box<dyn Future<Output = Result<Generation, ApiError>> + Send + 'static>>;

enum Stage {
    Pending(Pending),
    Running(Generation),
    Over,
}

struct EventStream<E> {
    stage: Stage,
    encoder: E,
    out: VecDeque<Frame>,
    ping: Option<Duration>,
}

/// Answers with a stream. An error that is known within the `ping` time is an ordinary response;
/// later ones are events. `ping` is also the time between signs of life; `None` = none.
///
/// # Errors
/// Those of the request.
pub(crate) async fn respond(
    mut pending: Pending,
    encoder: impl Encoder,
    ping: Option<Duration>,
) -> Result<Response, ApiError> {
    let known = match ping {
        Some(ping) => tokio::time::timeout(ping, &mut pending).await.ok().transpose()?,
        None => Some((&mut pending).await?),
    };
    let mut events =
        EventStream { stage: Stage::Pending(pending), encoder, out: VecDeque::new(), ping };
    match known {
        Some(generation) => events.begin(generation),
        None => events.out.extend([Frame::Comment("waiting".into())]),
    }
    let body = Body::from_stream(stream::unfold(events, |mut events| async move {
        let frame = events.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(frame.text())), events))
    }));
    Ok(event_stream(body))
}

/// Answers with frames that are all known.
pub(crate) fn frames(frames: Vec<Frame>) -> Response {
    let text: String = frames.iter().map(Frame::text).collect();
    event_stream(Body::from(text))
}

fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies must not collect what should arrive at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<E: Encoder> EventStream<E> {
    fn begin(&mut self, generation: Generation) {
        let mut frames = Vec::new();
        self.encoder.head(&generation.head(), &mut frames);
        self.out.extend(frames);
        self.stage = Stage::Running(generation);
    }

    fn take_in(&mut self, event: GenerateEvent) {
        let last = matches!(event, GenerateEvent::Usage(_) | GenerateEvent::Error(_));
        let mut frames = Vec::new();
        self.encoder.event(event, &mut frames);
        self.out.extend(frames);
        if last {
            self.stage = Stage::Over;
        }
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.out.pop_front() {
                return Some(frame);
            }
            let ping = self.ping;
            let quiet = async move {
                match ping {
                    Some(ping) => tokio::time::sleep(ping).await,
                    None => std::future::pending().await,
                }
            };
            match &mut self.stage {
                Stage::Pending(pending) => tokio::select! {
                    result = pending => match result {
                        Ok(generation) => self.begin(generation),
                        Err(error) => self.take_in(GenerateEvent::Error(error)),
                    },
                    () = quiet => return Some(self.encoder.ping()),
                },
                Stage::Running(generation) => tokio::select! {
                    event = generation.next() => {
                        let broken = || GenerateEvent::Error(ApiError::internal("the reply broke off"));
                        self.take_in(event.unwrap_or_else(broken));
                    }
                    () = quiet => return Some(self.encoder.ping()),
                },
                Stage::Over => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::request::Usage;
    use axum::body::to_bytes;

    struct Plain;

    impl Encoder for Plain {
        fn head(&mut self, head: &Head, out: &mut Vec<Frame>) {
            out.push(Frame::named("head", &Value::from(head.model.as_str())));
        }

        fn event(&mut self, event: GenerateEvent, out: &mut Vec<Frame>) {
            out.push(Frame::data(&match event {
                GenerateEvent::Error(error) => Value::from(error.message),
                GenerateEvent::Usage(_) => Value::from("over"),
                _ => Value::Null,
            }));
        }
    }

    fn generation() -> Generation {
        let head = Head { model: "m".into(), created: 0, prompt_tokens: 1, choices: 1 };
        Generation::new(head, stream::iter([GenerateEvent::Usage(Usage::default())]))
    }

    async fn body(pending: Pending, ping: Option<Duration>) -> String {
        let response = respond(pending, Plain, ping).await.unwrap();
        String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_begins_with_its_head() {
        let text = body(Box::pin(async { Ok(generation()) }), None).await;
        assert_eq!(text, "event: head\ndata: \"m\"\n\ndata: \"over\"\n\n");
    }

    #[tokio::test]
    async fn a_late_answer_is_announced_and_a_late_error_is_an_event() {
        let second = Some(Duration::from_millis(40));
        let late = || tokio::time::sleep(Duration::from_millis(120));
        let text = body(
            Box::pin(async move {
                late().await;
                Ok(generation())
            }),
            second,
        )
        .await;
        assert!(text.starts_with(": waiting\n\n: keep-alive\n\n"), "{text}");
        assert!(text.contains(": keep-alive\n\nevent: head"), "{text}");
        let text = body(
            Box::pin(async move {
                late().await;
                Err(ApiError::internal("no"))
            }),
            second,
        );
        assert!(text.await.ends_with("data: \"no\"\n\n"));
    }

    #[tokio::test]
    async fn an_early_error_is_a_response() {
        let refused = Box::pin(async { Err(ApiError::internal("no")) });
        assert!(respond(refused, Plain, Some(Duration::from_secs(1))).await.is_err());
    }
}
