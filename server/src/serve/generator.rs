//! From a request to its events: prompt, constraint, engine, replies.

use super::admission::{Gate, Permit};
use super::constraint::{ReplyConstraint, Rules};
use super::error::{ApiError, ErrorKind};
use super::generation::{Generation, Head, Reply, take_in};
use super::grammar::Answer;
use super::log::RequestLog;
use super::memory::{ReasoningMemory, Thread};
use super::models::{Lease, LoadedModel, ModelHub};
use super::prompt::{self, Prompt};
use super::reply::ReplyPath;
use super::request::{GenerateEvent, GenerateRequest, Input, ResponseFormat, ToolChoice, Usage};
use super::thinking::ThinkingSplitter;
use super::tools::{ToolParser, ToolSet, ToolSyntax};
use crate::stop::StopStrings;
use forge_core::engine::service::{StreamEvent, Ticket};
use forge_core::engine::{Request, TokenConstraint};
use futures_util::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Answers requests.
#[derive(Clone)]
pub(crate) struct Generator {
    /// Models.
    pub(crate) hub: Arc<ModelHub>,
    /// Room for requests.
    pub(crate) gate: Arc<Gate>,
    /// Reasoning of earlier replies.
    pub(crate) memory: Arc<ReasoningMemory>,
}

impl Generator {
    /// Accepts a request: loads its model if need be, checks everything, and hands it to the
    /// engine. `id` is that of the HTTP request.
    ///
    /// # Errors
    /// What is wrong with the request; 429 if there is no room; 503 if the model cannot run.
    pub(crate) async fn generate(
        &self,
        request: GenerateRequest,
        id: &str,
    ) -> Result<Generation, ApiError> {
        let arrived = Instant::now();
        let prompts = match &request.input {
            Input::Chat(_) => 1,
            Input::Plain(prompts) => prompts.len(),
        };
        let n = request.n.max(1);
        let permit = self.gate.enter(prompts.saturating_mul(n), id)?;
        let lease = self.hub.acquire(request.model.as_deref()).await?;
        let model = Arc::clone(&lease.model);
        let memory = Arc::clone(&self.memory);
        let work = move || {
            let mut request = request;
            let thread = match &mut request.input {
                Input::Chat(conversation) => Some(memory.restore(conversation)),
                Input::Plain(_) => None,
            };
            let prepared = Prepared::new(&model, &request)?;
            Ok::<_, ApiError>((prepared, request, thread.map(|thread| (memory, thread))))
        };
        let (prepared, request, memory) =
            tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)??;
        let log = RequestLog::new(id, &lease.model.name, arrived, &request.labels);
        let replies = Replies::start(prepared, &request, lease, permit, log)?.remembering(memory);
        let head = Head {
            model: replies.lease.model.name.clone(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            prompt_tokens: replies.usage.prompt_tokens,
            choices: replies.paths.len(),
        };
        Ok(Generation::new(head, stream::unfold(replies, Replies::next)))
    }

    /// Tokens of a request's prompts, as [`generate`](Self::generate) would have them.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub(crate) async fn count_tokens(&self, request: GenerateRequest) -> Result<usize, ApiError> {
        let lease = self.hub.acquire(request.model.as_deref()).await?;
        let memory = Arc::clone(&self.memory);
        let work = move || {
            let mut request = request;
            if let Input::Chat(conversation) = &mut request.input {
                memory.restore(conversation);
            }
            prompt::prompts(&lease.model, &request)
        };
        let prompts = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)??;
        Ok(prompts.iter().map(|prompt| prompt.tokens.len()).sum())
    }
}

/// A request that has passed every check.
struct Prepared {
    prompts: Vec<Prompt>,
    rules: Vec<Rules>,
    /// Parser of calls, for each reply: form, tools, guarded.
    parser: Option<(ToolSyntax, ToolSet, bool)>,
    stops: StopStrings,
}

impl Prepared {
    fn new(model: &LoadedModel, request: &GenerateRequest) -> Result<Self, ApiError> {
        let stops = StopStrings::new(&request.stop)
            .map_err(|error| ApiError::invalid("stop", format!("{error:#}")))?;
        request.sampling.params(&model.text.checkpoint.generation, 0).check()?;
        let vocabulary = model.text.checkpoint.config.vocab_size;
        let biased = request.sampling.logit_bias.iter();
        if let Some((token, _)) = biased.into_iter().find(|(t, _)| t.index() >= vocabulary) {
            return Err(ApiError::invalid("logit_bias", format!("token {token} of {vocabulary}")));
        }
        let (tools, syntax) = tools(model, request)?;
        let prompts = prompt::prompts(model, request)?;
        for prompt in &prompts {
            if prompt.tokens.len() >= model.plan.context {
                return Err(ApiError::context_length(prompt.tokens.len(), model.plan.context));
            }
        }
        let callable = tools.zip(syntax);
        let mut rules = Vec::with_capacity(prompts.len());
        for prompt in &prompts {
            rules.push(rules_of(model, request, prompt, callable.as_ref())?);
        }
        // A JSON answer may hold a tag in a string, which no grammar keeps apart from a call.
        let free = request.format == ResponseFormat::Text;
        let guarded =
            free && rules.iter().all(|rules| rules.call.is_some() || rules.answer.is_some());
        let parser = callable.map(|(tools, syntax)| (syntax, tools, guarded));
        Ok(Self { prompts, rules, parser, stops })
    }
}

/// The tools that may be called, and how this model writes calls.
fn tools(
    model: &LoadedModel,
    request: &GenerateRequest,
) -> Result<(Option<ToolSet>, Option<ToolSyntax>), ApiError> {
    let definitions = match &request.input {
        Input::Chat(conversation) => conversation.tools.as_slice(),
        Input::Plain(_) => &[],
    };
    let tools = ToolSet::parse(definitions)?;
    let tools = match &request.tool_choice {
        ToolChoice::None => return Ok((None, None)),
        ToolChoice::Auto if tools.is_empty() => return Ok((None, None)),
        ToolChoice::Required if tools.is_empty() => {
            return Err(ApiError::invalid(
                "tool_choice",
                "a call is required, but there is no tool",
            ));
        }
        ToolChoice::Auto | ToolChoice::Required => tools,
        ToolChoice::Named(name) => tools.only(name).ok_or_else(|| {
            ApiError::invalid("tool_choice", format!("{name:?} is not among the tools"))
        })?,
    };
    let syntax = model.tools.ok_or_else(|| {
        ApiError::invalid("tools", format!("the chat template of {} knows no tools", model.name))
    })?;
    Ok((Some(tools), Some(syntax)))
}

/// The rules of a reply to `prompt`.
fn rules_of(
    model: &LoadedModel,
    request: &GenerateRequest,
    prompt: &Prompt,
    callable: Option<&(ToolSet, ToolSyntax)>,
) -> Result<Rules, ApiError> {
    let thinks = model.steering.knows_thinking() && matches!(request.input, Input::Chat(_));
    let in_reasoning = thinks && prompt.text.trim_end().ends_with("<think>");
    let off = request.thinking.template_switch() == Some(false);
    let mut rules = Rules {
        in_reasoning,
        no_reasoning: thinks && off,
        // A template that cannot be told not to reason is stopped at once.
        budget: if in_reasoning && off { Some(0) } else { request.thinking.budget },
        single_call: !request.parallel_tool_calls,
        ..Rules::default()
    };
    if !thinks {
        rules.budget = None;
    }
    let object = json!({"type": "object"});
    let schema: Option<&Value> = match &request.format {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject => Some(&object),
        ResponseFormat::JsonSchema(schema) => Some(schema),
    };
    let must_call = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
    let calls = callable.map(|(tools, syntax)| (*syntax, tools));
    if must_call || schema.is_some() {
        let parallel = request.parallel_tool_calls;
        let answer = Answer { schema: schema.filter(|_| !must_call), calls, parallel };
        let refuse = |error: anyhow::Error| match schema {
            Some(_) if !must_call => ApiError::invalid("response_format", format!("{error:#}")),
            _ => ApiError::invalid("tools", format!("{error:#}")),
        };
        let opened = !thinks || !prompt.text.trim_end().ends_with("</think>");
        let lark = answer.lark(opened).map_err(refuse)?;
        let grammars = model.grammars().map_err(refuse)?;
        rules.answer = Some(grammars.compile(lark).map_err(refuse)?);
    } else if let Some((syntax, tools)) = calls
        && model.steering.knows_calls()
    {
        let compiled =
            Answer::call_lark(syntax, tools).and_then(|lark| model.grammars()?.compile(lark));
        match compiled {
            Ok(grammar) => rules.call = Some(grammar),
            Err(error) => tracing::warn!("tool calls are not guarded by a grammar: {error:#}"),
        }
    }
    Ok(rules)
}

/// The replies of a request on their way. Dropping it cancels them.
struct Replies {
    // Before the lease: the engine must hear of the end before the model may go.
    tickets: Vec<Ticket>,
    receiver: UnboundedReceiver<(usize, StreamEvent)>,
    paths: Vec<ReplyPath>,
    out: VecDeque<GenerateEvent>,
    per_prompt: usize,
    /// Tokens that the cache held, for each reply.
    cached: Vec<usize>,
    usage: Usage,
    first_token: Option<Instant>,
    over: bool,
    /// Where the reasoning goes when a reply is complete, and the replies so far.
    memory: Option<(Arc<ReasoningMemory>, Thread)>,
    told: Vec<Reply>,
    log: RequestLog,
    permit: Permit,
    lease: Lease,
}

impl Replies {
    fn start(
        prepared: Prepared,
        request: &GenerateRequest,
        lease: Lease,
        permit: Permit,
        log: RequestLog,
    ) -> Result<Self, ApiError> {
        let model = Arc::clone(&lease.model);
        let per_prompt = request.n.max(1);
        let (sender, receiver) = unbounded_channel();
        let mut replies = Self {
            tickets: Vec::new(),
            receiver,
            paths: Vec::new(),
            out: VecDeque::new(),
            per_prompt,
            cached: Vec::new(),
            usage: Usage::default(),
            first_token: None,
            over: false,
            memory: None,
            told: Vec::new(),
            log,
            permit,
            lease,
        };
        let Prepared { prompts, rules, parser, stops } = prepared;
        for (prompt, rules) in prompts.into_iter().zip(rules) {
            replies.usage.prompt_tokens += prompt.tokens.len();
            for _ in 0..per_prompt {
                let choice = replies.paths.len();
                let parser = parser.as_ref().map(|(syntax, tools, guarded)| {
                    ToolParser::new(*syntax, tools.clone(), *guarded)
                });
                let thinking = match &request.input {
                    Input::Chat(_) => ThinkingSplitter::after(&prompt.text),
                    Input::Plain(_) => ThinkingSplitter::off(),
                };
                let path = ReplyPath::new(choice, &model.text, thinking, stops.clone(), parser);
                replies.paths.push(path);
                replies.cached.push(0);
                let engine_request = Request {
                    boundaries: prompt.boundaries.clone(),
                    sampling: request.sampling.params(&model.text.checkpoint.generation, choice),
                    max_tokens: request.max_tokens,
                    stop_tokens: model.text.stop_tokens.clone(),
                    constraint: constraint(&model, &rules),
                    logprobs: request.logprobs,
                    ..Request::new(prompt.tokens.clone())
                };
                let sink = sink(choice, sender.clone());
                let ticket = model.engine.submit(engine_request, sink).map_err(refusal)?;
                replies.tickets.push(ticket);
            }
        }
        let active = &replies.permit.active;
        active.prompt_tokens.store(replies.usage.prompt_tokens, Ordering::Relaxed);
        replies.log.prompt_tokens(replies.usage.prompt_tokens);
        Ok(replies)
    }

    /// The same, with a place for the reasoning.
    fn remembering(mut self, memory: Option<(Arc<ReasoningMemory>, Thread)>) -> Self {
        self.memory = memory;
        self.told = vec![Reply::default(); self.paths.len()];
        self
    }

    fn remember(&mut self, event: &GenerateEvent) {
        let Some((memory, thread)) = &self.memory else { return };
        take_in(&mut self.told, event);
        if let GenerateEvent::Finished { choice, .. } = event
            && let Some(reply) = self.told.get_mut(*choice)
        {
            memory.remember(*thread, &std::mem::take(reply));
        }
    }

    async fn next(mut self) -> Option<(GenerateEvent, Self)> {
        loop {
            if let Some(event) = self.out.pop_front() {
                self.remember(&event);
                return Some((event, self));
            }
            if self.over {
                return None;
            }
            match self.receiver.recv().await {
                Some((choice, event)) => self.take_in(choice, event),
                None => self.fail(ApiError::internal("the engine stopped")),
            }
        }
    }

    fn take_in(&mut self, choice: usize, event: StreamEvent) {
        let Some(path) = self.paths.get_mut(choice).filter(|path| !path.is_finished()) else {
            return;
        };
        match event {
            StreamEvent::Prefill { done, reused, total } => {
                self.permit.active.prefilled.store(done, Ordering::Relaxed);
                self.cached[choice] = reused;
                let event = GenerateEvent::Prefill { choice, done, total, cached: reused };
                self.out.push_back(event);
            }
            StreamEvent::Token { token, logprobs } => {
                self.permit.active.generated.fetch_add(1, Ordering::Relaxed);
                let now = Instant::now();
                let first = *self.first_token.get_or_insert(now);
                self.usage.first_token = first - self.permit.active.since;
                self.usage.decode = now - first;
                if path.token(token, logprobs, &mut self.out) {
                    // A stop string: the engine knows nothing of it.
                    self.tickets[choice] = Ticket::default();
                }
            }
            StreamEvent::Finished { reason, .. } => path.finish(reason, &mut self.out),
            StreamEvent::Failed(error) => return self.fail(error.into()),
        }
        if self.paths.iter().all(ReplyPath::is_finished) {
            let sum = |count: fn(&ReplyPath) -> usize| self.paths.iter().map(count).sum();
            // The other replies to the same prompt find what the first one computed.
            self.usage.cached_tokens = self.cached.iter().step_by(self.per_prompt).sum();
            self.usage.completion_tokens = sum(|path| path.tokens);
            self.usage.reasoning_tokens = sum(|path| path.reasoning_tokens);
            let reason = self.out.iter().rev().find_map(|event| match event {
                GenerateEvent::Finished { reason, .. } => Some(reason.clone()),
                _ => None,
            });
            self.log.finished(&self.usage, reason);
            self.out.push_back(GenerateEvent::Usage(self.usage));
            self.end();
        }
    }

    fn fail(&mut self, error: ApiError) {
        self.log.failed(&error.message);
        self.out.push_back(GenerateEvent::Error(error));
        self.end();
    }

    fn end(&mut self) {
        self.over = true;
        self.tickets.clear();
    }
}

/// What an engine that takes no request means for the client.
fn refusal(error: forge_core::Error) -> ApiError {
    let kind = match &error {
        forge_core::Error::Unsupported { .. } => ErrorKind::Busy,
        _ => ErrorKind::Unavailable,
    };
    ApiError { retry_after_s: Some(1), ..ApiError::new(kind, error.to_string()) }
}

fn constraint(model: &LoadedModel, rules: &Rules) -> Option<Box<dyn TokenConstraint>> {
    if rules.is_empty() {
        return None;
    }
    Some(Box::new(ReplyConstraint::new(model.steering.clone(), rules.clone())))
}

fn sink(
    choice: usize,
    sender: UnboundedSender<(usize, StreamEvent)>,
) -> Box<dyn FnMut(StreamEvent) -> bool + Send> {
    Box::new(move |event| sender.send((choice, event)).is_ok())
}
