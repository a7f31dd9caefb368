//! Grammars over a model's tokens: JSON schemas and tool calls, compiled by llguidance.

use super::tools::{CLOSE, OPEN, ToolSet, ToolSpec, ToolSyntax};
use anyhow::{Context, Result};
use forge_core::TokenId;
use forge_core::tokenizer::{SpecialTokens, Tokenizer};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// Compiles grammars for one model.
pub(crate) struct Grammars {
    factory: ParserFactory,
}

/// From a text to ids of tokens.
type Encode = dyn Fn(&str) -> Vec<u32> + Send + Sync;

/// A model's tokens as llguidance sees them.
struct TokenBytes {
    trie: TokTrie,
    tokenizer: Arc<Encode>,
}

impl TokenizerEnv for TokenBytes {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| (self.tokenizer)(text))
    }
}

impl Grammars {
    /// A compiler for the tokens of `tokenizer`; control tokens match no text. `stop` ends a reply.
    ///
    /// # Errors
    /// If llguidance does not accept the vocabulary.
    pub(crate) fn new(
        tokenizer: Arc<impl AsRef<Tokenizer> + Send + Sync + 'static>,
        stop: TokenId,
    ) -> Result<Self> {
        let words: Vec<Vec<u8>> = {
            let tokens: &Tokenizer = (*tokenizer).as_ref();
            (0..tokens.vocab_size() as u32)
                .map(|id| {
                    let bytes = tokens.token_bytes(TokenId(id)).unwrap_or_default();
                    if tokens.is_special(TokenId(id)) {
                        [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
                    } else {
                        bytes.to_vec()
                    }
                })
                .collect()
        };
        let info = TokRxInfo::new(words.len() as u32, stop.0);
        let encode = move |text: &str| -> Vec<u32> {
            let tokens: &Tokenizer = (*tokenizer).as_ref();
            let ids = tokens.encode(text, SpecialTokens::AsText).unwrap_or_default();
            ids.into_iter().map(|id| id.0).collect()
        };
        let tokens = TokenBytes { trie: TokTrie::from(&info, &words), tokenizer: Arc::new(encode) };
        let environment: TokEnv = Arc::new(tokens);
        let mut factory = ParserFactory::new_simple(&environment)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory })
    }

    /// Compiles a grammar in llguidance's dialect of Lark.
    ///
    /// # Errors
    /// With the compiler's words.
    pub(crate) fn compile(&self, lark: String) -> Result<Matcher> {
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(lark))?;
        Ok(Matcher::new(Ok(parser)))
    }
}

/// What an answer may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer<'a> {
    /// JSON of this schema.
    pub(crate) schema: Option<&'a Value>,
    /// Calls of these tools, one at least, in this form.
    pub(crate) calls: Option<(ToolSyntax, &'a ToolSet)>,
    /// More than one call.
    pub(crate) parallel: bool,
}

impl Answer<'_> {
    /// The grammar of a whole answer; a model may put line ends before it where reasoning precedes.
    ///
    /// # Errors
    /// If a schema cannot be written into it.
    pub(crate) fn lark(&self, after_reasoning: bool) -> Result<String> {
        let mut rules = Rules::default();
        let mut options = Vec::new();
        if let Some(schema) = self.schema {
            rules.json("answer", schema)?;
            options.push("answer".to_owned());
        }
        if let Some((syntax, tools)) = self.calls {
            rules.calls(syntax, tools)?;
            let open = Rules::literal(OPEN);
            let more =
                if self.parallel { format!(" (\"\\n\" {open} call)*") } else { String::new() };
            options.push(format!("{open} call{more}"));
        }
        let before = if after_reasoning { "LINE_ENDS? " } else { "" };
        Ok(format!(
            "start: {before}({})\nLINE_ENDS: /\\n{{1,2}}/\n{}",
            options.join(" | "),
            rules.text
        ))
    }

    /// The grammar of one call from behind its opening tag on.
    ///
    /// # Errors
    /// If a schema cannot be written into it.
    pub(crate) fn call_lark(syntax: ToolSyntax, tools: &ToolSet) -> Result<String> {
        let mut rules = Rules::default();
        rules.calls(syntax, tools)?;
        Ok(format!("start: call\n{}", rules.text))
    }
}

/// Rules of a grammar in the making.
#[derive(Default)]
struct Rules {
    text: String,
    value_rule: bool,
}

impl Rules {
    fn literal(text: &str) -> String {
        Value::from(text).to_string()
    }

    /// A rule for JSON of a schema. Free white space would let a small model write nothing else.
    fn json(&mut self, name: &str, schema: &Value) -> Result<()> {
        let mut schema = match schema {
            Value::Bool(true) => json!({}),
            schema => schema.clone(),
        };
        let fields = schema.as_object_mut().context("the schema is not an object")?;
        let layout = json!({
            "whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?"
        });
        fields.insert("x-guidance".into(), layout);
        writeln!(self.text, "{name}: %json {schema}")?;
        Ok(())
    }

    /// `call`: any of the tools, from behind the opening tag to the closing one.
    fn calls(&mut self, syntax: ToolSyntax, tools: &ToolSet) -> Result<()> {
        let names: Vec<String> = (0..tools.iter().count()).map(|i| format!("call_{i}")).collect();
        let (open, close) = (Self::literal("\n"), Self::literal(&format!("\n{CLOSE}")));
        writeln!(self.text, "call: {open} ({}) {close}", names.join(" | "))?;
        for (index, tool) in tools.iter().enumerate() {
            match syntax {
                ToolSyntax::QwenXml => self.xml_call(index, tool)?,
                ToolSyntax::HermesJson => self.hermes_call(index, tool)?,
            }
        }
        Ok(())
    }

    fn hermes_call(&mut self, index: usize, tool: &ToolSpec) -> Result<()> {
        let head = format!("{{\"name\": {}, \"arguments\": ", Self::literal(&tool.name));
        let (head, tail) = (Self::literal(&head), Self::literal("}"));
        writeln!(self.text, "call_{index}: {head} arguments_{index} {tail}")?;
        let mut schema = tool.parameters.clone();
        schema.entry("type").or_insert_with(|| "object".into());
        self.json(&format!("arguments_{index}"), &Value::Object(schema))
    }

    fn xml_call(&mut self, index: usize, tool: &ToolSpec) -> Result<()> {
        let head = Self::literal(&format!("<function={}>\n", tool.name));
        let mut body = String::new();
        for (number, (name, required)) in tool.parameter_names().into_iter().enumerate() {
            let rule = format!("parameter_{index}_{number}");
            write!(body, " {rule}{}", if required { "" } else { "?" })?;
            self.xml_parameter(&rule, &name, tool)?;
        }
        let tail = Self::literal("</function>");
        writeln!(self.text, "call_{index}: {head}{body} {tail}")?;
        Ok(())
    }

    fn xml_parameter(&mut self, rule: &str, name: &str, tool: &ToolSpec) -> Result<()> {
        let head = Self::literal(&format!("<parameter={name}>\n"));
        let tail = Self::literal("\n</parameter>\n");
        let schema = tool.parameter(name).unwrap_or_else(|| json!({"type": "string"}));
        let options = schema.get("enum").and_then(Value::as_array);
        let texts: Option<Vec<String>> =
            options.and_then(|all| all.iter().map(|v| v.as_str().map(Self::literal)).collect());
        if let Some(texts) = texts {
            writeln!(self.text, "{rule}: {head} ({}) {tail}", texts.join(" | "))?;
        } else if super::tools::admits_text(&schema) {
            writeln!(self.text, "{rule}: {head} value")?;
            if !std::mem::replace(&mut self.value_rule, true) {
                writeln!(self.text, "value[suffix={tail}]: /(.|\\n)*/")?;
            }
        } else {
            writeln!(self.text, "{rule}: {head} {rule}_value {tail}")?;
            self.json(&format!("{rule}_value"), &schema)?;
        }
        Ok(())
    }
}
