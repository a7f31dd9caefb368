//! Types by a memory size: each matrix gets the bits that pay most where it stands.
//!
//! The error of a model is taken as the sum over its matrices of
//! `sensitivity * values * error(type)^2`. Starting with the smallest type everywhere, the matrix
//! whose next type lowers that sum most per byte is raised, until the size is used up. Errors by
//! type are those of normal values; sensitivities are roles: see `docs/convert.md`.

use super::check::typical_error;
use super::view::View;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::weights::canonical::{Role, role, split_layer};
use crate::weights::quant::StorageType;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

/// Types of growing size; on this list every step lowers the squared error by less per bit.
const LADDER: [StorageType; 8] = [
    StorageType::Iq2Xxs,
    StorageType::Iq2Xs,
    StorageType::Iq3Xxs,
    StorageType::Q3_K,
    StorageType::Iq4Xs,
    StorageType::Q5_K,
    StorageType::Q6_K,
    StorageType::Q8_0,
];
/// Type of an embedding that stays in host memory, where bits are cheap.
const LOOKUP: StorageType = StorageType::Q8_0;
/// Share of a device's memory that weights may take; the rest is for keys and values, states,
/// activations and the driver.
const WEIGHT_SHARE: f64 = 0.82;
const GIB: f64 = 1_073_741_824.0;
/// Largest memory that a mix can name, in GiB.
const LARGEST: u32 = 4096;

/// Types for a device with this much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    gib: u32,
}

impl FromStr for Mix {
    type Err = Error;

    /// `12gb`, `16gb`, `24gb`, or any other whole number of GiB.
    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_suffix("gb").and_then(|number| number.parse().ok());
        match number {
            Some(gib @ 1..=LARGEST) => Ok(Self { gib }),
            _ => Err(Error::invalid("mix", format!("{text} is not a size such as 16gb"))),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mix:{}gb", self.gib)
    }
}

/// A step that a matrix could take, by what it gains per byte.
struct Step {
    gain: f64,
    view: usize,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Step {}
impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain.total_cmp(&other.gain).then_with(|| other.view.cmp(&self.view))
    }
}

impl Mix {
    /// Bytes that weights on the device may take.
    fn budget(self) -> f64 {
        f64::from(self.gib) * GIB * WEIGHT_SHARE
    }

    /// A type for each tensor. `kept` fixes some.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the smallest types do not fit.
    pub(super) fn choose(
        self,
        views: &[View],
        config: &ModelConfig,
        kept: &dyn Fn(&View) -> Option<StorageType>,
    ) -> Result<Vec<StorageType>> {
        let mut types = Vec::with_capacity(views.len());
        let mut used = 0.0;
        let mut heap = BinaryHeap::new();
        for (index, view) in views.iter().enumerate() {
            let lookup = view.canonical == "embed" && !config.tied_embeddings;
            let free = role(&view.canonical) == Role::Matrix && kept(view).is_none() && !lookup;
            let storage = match (kept(view), role(&view.canonical)) {
                (Some(storage), _) => storage,
                (None, Role::Vector | Role::Router) => StorageType::F32,
                (None, Role::Matrix) if lookup => LOOKUP,
                (None, Role::Matrix) => smallest(view),
            };
            types.push(storage);
            if !lookup {
                used += bytes(view, storage);
            }
            if free {
                heap.extend(step(view, index, storage, config));
            }
        }
        if used > self.budget() {
            let need = used / WEIGHT_SHARE / GIB;
            let reason = format!("the smallest types need a device of {need:.1} GiB");
            return Err(Error::invalid(self.to_string(), reason));
        }
        while let Some(Step { view: index, .. }) = heap.pop() {
            let view = &views[index];
            let Some(next) = larger(view, types[index]) else { continue };
            let more = bytes(view, next) - bytes(view, types[index]);
            if used + more > self.budget() {
                // Smaller matrices may still fit; this one has found its type.
                continue;
            }
            used += more;
            types[index] = next;
            heap.extend(step(view, index, next, config));
        }
        Ok(types)
    }
}

fn bytes(view: &View, storage: StorageType) -> f64 {
    let row = storage.row_bytes(view.row_values()).unwrap_or(4 * view.row_values());
    row as f64 * view.total_rows() as f64
}

/// The types of the ladder that fit a row, f16 if none does.
fn fitting(view: &View) -> impl Iterator<Item = StorageType> + '_ {
    LADDER.into_iter().filter(|storage| storage.row_bytes(view.row_values()).is_some())
}

fn smallest(view: &View) -> StorageType {
    fitting(view).next().unwrap_or(StorageType::F16)
}

fn larger(view: &View, storage: StorageType) -> Option<StorageType> {
    fitting(view).skip_while(|fitting| *fitting != storage).nth(1)
}

fn step(view: &View, index: usize, storage: StorageType, config: &ModelConfig) -> Option<Step> {
    let next = larger(view, storage)?;
    let values = view.total_rows() as f64 * view.row_values() as f64;
    let saved = typical_error(storage).powi(2) - typical_error(next).powi(2);
    let gain = sensitivity(&view.canonical, config) * values * saved
        / (bytes(view, next) - bytes(view, storage));
    Some(Step { gain, view: index })
}

/// How much an error of a matrix weighs beside that of a feed-forward gate in the middle.
fn sensitivity(name: &str, config: &ModelConfig) -> f64 {
    let (layer, rest) = split_layer(name);
    let role = match rest {
        // Straight to the logits; a tied embedding is also every token's first state.
        "lm_head" | "embed" => 6.0,
        // A few values decide what a whole head remembers or forgets.
        "delta.a" | "delta.b" => 32.0,
        // Shared by all query heads of a group.
        "attn.k" | "attn.v" => 6.0,
        // What a layer adds to the residual stream has no norm behind it.
        "attn.o" | "delta.out" | "ffn.down" | "moe.experts.down" | "moe.shared.down" => 2.0,
        "attn.q" | "delta.qkv" | "delta.z" => 1.5,
        _ => 1.0,
    };
    let index =
        layer.strip_prefix("layers.").and_then(|rest| rest.trim_end_matches('.').parse().ok());
    let place = match index {
        // Errors of the first layers pass through all others, those of the last meet no correction.
        Some(index) if edge(index, config.layers.len()) => 2.0,
        // A worse draft is accepted less often; it cannot make the text worse.
        None if layer == "mtp." => 0.5,
        _ => 1.0,
    };
    role * place
}

/// The first and the last sixteenth of the layers.
fn edge(index: usize, layers: usize) -> bool {
    let share = layers.div_ceil(16);
    index < share || index + share >= layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::canonical::slots;
    use crate::weights::host::{HostBytes, HostTensor};
    use crate::weights::samples;
    use std::sync::Arc;

    /// The tensors of a 27B model without their bytes.
    fn large() -> (ModelConfig, Vec<View>) {
        let (mut config, _) = samples::folder("hybrid-dense-tied");
        config.hidden_size = 5120;
        config.vocab_size = 248_320;
        config.tied_embeddings = false;
        config.layers = (0..64)
            .map(|at| match at % 4 {
                3 => crate::config::LayerKind::Attention,
                _ => crate::config::LayerKind::DeltaNet,
            })
            .collect();
        config.attention.query_heads = 24;
        config.attention.kv_heads = 4;
        config.attention.head_dim = 256;
        let delta = config.delta_net.as_mut().unwrap();
        (delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim) = (16, 48, 128, 128);
        config.feed_forward = crate::config::FeedForwardConfig::Dense { intermediate: 17_408 };
        let empty = HostBytes::new(Arc::new(Vec::new()));
        let views = slots(&config, &|_| true)
            .into_iter()
            .map(|slot| {
                let tensor = HostTensor {
                    name: slot.name.clone(),
                    storage: StorageType::Bf16,
                    shape: slot.shape,
                    data: empty.clone(),
                };
                View::whole(&slot.name, &tensor)
            })
            .collect();
        (config, views)
    }

    #[test]
    fn a_27b_model_fits_the_named_cards() {
        let (config, views) = large();
        let values: f64 = views.iter().map(|v| (v.total_rows() * v.row_values()) as f64).sum();
        println!("{:.2}e9 values", values / 1e9);
        let mut last = 0.0;
        for (name, least) in [("12gb", 0.97), ("16gb", 0.97), ("24gb", 0.97)] {
            let mix: Mix = name.parse().unwrap();
            let types = mix.choose(&views, &config, &|_| None).unwrap();
            let on_device = |at: &usize| views[*at].canonical != "embed";
            let used: f64 =
                (0..views.len()).filter(on_device).map(|at| bytes(&views[at], types[at])).sum();
            let mut by_type = std::collections::BTreeMap::new();
            for (view, storage) in views.iter().zip(&types) {
                *by_type.entry(storage.name()).or_insert(0.0) += bytes(view, *storage) / 1e9;
            }
            println!("{mix}: {:.2} of {:.2} GB, {by_type:.2?}", used / 1e9, mix.budget() / 1e9);
            assert!(used <= mix.budget() && used > least * mix.budget());
            assert!(used > last);
            last = used;
            let of = |name: &str| {
                let at = views.iter().position(|view| view.canonical == name).unwrap();
                types[at].row_bytes(256).unwrap()
            };
            assert!(of("lm_head") >= of("layers.30.ffn.gate"));
            assert!(of("layers.31.attn.v") >= of("layers.31.attn.q"));
            assert!(of("layers.0.ffn.up") >= of("layers.30.ffn.up"));
            assert!(of("layers.30.ffn.down") >= of("layers.30.ffn.up"));
        }
    }

    #[test]
    fn a_size_that_cannot_be_met_is_an_error() {
        let (config, views) = large();
        let mix: Mix = "6gb".parse().unwrap();
        let message = mix.choose(&views, &config, &|_| None).unwrap_err().to_string();
        assert!(message.starts_with("mix:6gb: the smallest types need a device of"), "{message}");
        let all: Mix = "100gb".parse().unwrap();
        let types = all.choose(&views, &config, &|_| None).unwrap();
        assert!(types.iter().all(|t| matches!(t, StorageType::Q8_0 | StorageType::F32)));
    }

    #[test]
    fn the_ladder_is_worth_less_with_every_step() {
        let size = |storage: StorageType| storage.row_bytes(256).unwrap() as f64;
        let gain = |pair: &[StorageType]| {
            (typical_error(pair[0]).powi(2) - typical_error(pair[1]).powi(2))
                / (size(pair[1]) - size(pair[0]))
        };
        let gains: Vec<f64> = LADDER.windows(2).map(gain).collect();
        assert!(gains.windows(2).all(|pair| pair[0] > pair[1] && pair[1] > 0.0), "{gains:?}");
    }
}
