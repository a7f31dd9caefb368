//! Which tensor gets which type.

use super::mix::Mix;
use super::view::View;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::weights::canonical::{Role, role};
use crate::weights::quant::StorageType;
use std::fmt;
use std::str::FromStr;

/// Types that stand in for one that does not fit, by growing bits per value.
const LADDER: [StorageType; 6] = [
    StorageType::Q4_0,
    StorageType::Iq4Nl,
    StorageType::Q4_1,
    StorageType::Q5_0,
    StorageType::Q5_1,
    StorageType::Q8_0,
];

/// Type of the matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// As in the source.
    #[default]
    Source,
    /// One for all.
    Type(StorageType),
    /// Chosen for each by a memory size.
    Mix(Mix),
}

impl FromStr for Base {
    type Err = Error;

    /// A storage type, or `mix:NAME`.
    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("mix:") {
            Some(name) => Ok(Self::Mix(name.parse()?)),
            None => Ok(Self::Type(text.parse()?)),
        }
    }
}

/// A type for the matrices whose canonical name fits a pattern, in which `*` stands for any
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepRule {
    pattern: String,
    storage: StorageType,
}

impl FromStr for KeepRule {
    type Err = Error;

    /// `PATTERN=TYPE`.
    fn from_str(text: &str) -> Result<Self> {
        let (pattern, storage) = text
            .split_once('=')
            .filter(|(pattern, _)| !pattern.is_empty())
            .ok_or_else(|| Error::invalid("keep", format!("{text} is not PATTERN=TYPE")))?;
        Ok(Self { pattern: pattern.to_owned(), storage: storage.parse()? })
    }
}

impl fmt::Display for KeepRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.storage)
    }
}

/// True if `name` fits `pattern`.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// How types are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeRules {
    /// Where no rule fits.
    pub base: Base,
    /// The first one that fits decides.
    pub keep: Vec<KeepRule>,
}

/// A type, and why it is not the one asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) storage: StorageType,
    pub(super) fallback: Option<String>,
}

impl TypeRules {
    /// Types of all tensors. Vectors are f32, and so are routers unless everything is kept as it
    /// is.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rule that fits no matrix, or a mix that is too small for the model.
    pub(super) fn choose(&self, views: &[View], config: &ModelConfig) -> Result<Vec<Choice>> {
        let is_matrix = |view: &View| role(&view.canonical) == Role::Matrix;
        for rule in &self.keep {
            let useful = |view: &View| is_matrix(view) && fits(&rule.pattern, &view.canonical);
            if !views.iter().any(useful) {
                return Err(Error::invalid("keep", format!("{rule} fits no matrix")));
            }
        }
        let kept = |view: &View| {
            let rule = self.keep.iter().find(|rule| fits(&rule.pattern, &view.canonical));
            rule.filter(|_| is_matrix(view)).map(|rule| rule.storage)
        };
        let wanted: Vec<Option<StorageType>> = match self.base {
            Base::Source => views.iter().map(kept).collect(),
            Base::Type(storage) => views.iter().map(|view| kept(view).or(Some(storage))).collect(),
            Base::Mix(mix) => mix.choose(views, config, &kept)?.into_iter().map(Some).collect(),
        };
        let choose =
            |(view, wanted): (&View, Option<StorageType>)| match (role(&view.canonical), wanted) {
                (Role::Matrix, Some(wanted)) => choose_matrix(view, wanted),
                (Role::Vector | Role::Router, Some(_)) => exactly(StorageType::F32),
                (_, None) => exactly(view.tensor.storage),
            };
        Ok(views.iter().zip(wanted).map(choose).collect())
    }
}

fn exactly(storage: StorageType) -> Choice {
    Choice { storage, fallback: None }
}

/// `wanted`, or the next larger type whose blocks divide a row, or f16.
fn choose_matrix(view: &View, wanted: StorageType) -> Choice {
    let columns = view.row_values();
    let size = |storage: StorageType| storage.row_bytes(256).unwrap_or(usize::MAX);
    if wanted.row_bytes(columns).is_some() {
        return exactly(wanted);
    }
    let next = LADDER
        .into_iter()
        .find(|&storage| size(storage) >= size(wanted) && storage.row_bytes(columns).is_some());
    let stored = view.tensor.storage;
    // Rows that are no blocks of anything: nothing is gained by a wider type than the source's.
    let plain = if stored.block().0 == 1 { stored } else { StorageType::F16 };
    Choice {
        storage: next.unwrap_or(plain),
        fallback: Some(format!("rows of {columns} are not blocks of {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_people_expect() {
        for (pattern, name) in [
            ("*", "anything.at.all"),
            ("embed", "embed"),
            ("layers.*.attn.v", "layers.12.attn.v"),
            ("*.down", "layers.3.ffn.down"),
            ("layers.1*.ffn.*", "layers.17.ffn.up"),
            ("mtp.*", "mtp.fc"),
            ("a*a", "aa"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("embed", "embed2"),
            ("a*a", "a"),
            ("layers.*.attn.v", "layers.12.attn.v.x"),
            ("*.down", "down"),
            ("x*y*z", "xzy"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn texts_are_read() {
        assert_eq!("q4_K".parse::<Base>().unwrap(), Base::Type(StorageType::Q4_K));
        assert!(matches!("mix:16gb".parse::<Base>().unwrap(), Base::Mix(_)));
        assert!("mix:huge".parse::<Base>().is_err());
        let rule: KeepRule = "*.v=q8_0".parse().unwrap();
        assert_eq!(rule.to_string(), "*.v=q8_0");
        assert!("=q8_0".parse::<KeepRule>().is_err());
        assert!("embed".parse::<KeepRule>().is_err());
        assert!("embed=q9".parse::<KeepRule>().is_err());
    }
}
