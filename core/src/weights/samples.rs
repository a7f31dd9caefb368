//! Models that tests open, and hand-made variants of them.

pub(crate) use super::testing::{fixture, shared};

use super::gguf::GgufFile;
use super::host::HostTensor;
use super::quant::StorageType;
use super::safetensors::SafetensorsFolder;
use crate::config::ModelConfig;
use std::collections::BTreeMap;

/// Tensors by name.
pub(crate) type Tensors = BTreeMap<String, HostTensor>;

/// Configuration and raw tensors of a fixture folder.
pub(crate) fn folder(name: &str) -> (ModelConfig, Tensors) {
    let path = fixture(name).join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let config = ModelConfig::from_hf(&path, &text).unwrap();
    (config, SafetensorsFolder::open(fixture(name)).unwrap().tensors)
}

/// A fixture GGUF file.
pub(crate) fn gguf(name: &str) -> GgufFile {
    GgufFile::open(fixture(name)).unwrap()
}

/// An f32 tensor of reproducible values, different for every name.
pub(crate) fn made(name: &str, shape: &[usize]) -> HostTensor {
    let len: usize = shape.iter().product();
    let seed = name.bytes().fold(17u32, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    let value = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) as f32 / 65536.0;
    let values: Vec<f32> = (0..len as u32).map(|i| value(i) - 0.5).collect();
    HostTensor::from_f32(name, shape.to_vec(), &values).unwrap()
}

/// `tensor` with one value replaced, as f32.
pub(crate) fn with_value(tensor: &HostTensor, index: usize, value: f32) -> HostTensor {
    let mut values = tensor.to_f32().unwrap();
    values[index] = value;
    HostTensor::from_f32(&*tensor.name, tensor.shape.clone(), &values).unwrap()
}

/// The hybrid fixture with 3 experts of 32 in every layer, 2 of them used, and a shared one of 16.
/// `separate` experts are one tensor each.
pub(crate) fn mixture(separate: bool) -> (ModelConfig, Tensors) {
    let path = fixture("hybrid-dense-tied").join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("qwen3_5_text", "qwen3_5_moe_text").replacen(
        '{',
        r#"{"num_experts":3,"num_experts_per_tok":2,"moe_intermediate_size":32,
            "shared_expert_intermediate_size":16,"#,
        1,
    );
    let config = ModelConfig::from_hf(&path, &text).unwrap();
    let mut tensors = folder("hybrid-dense-tied").1;
    let layers: Vec<String> = tensors
        .keys()
        .filter_map(|name| Some(name.strip_suffix("mlp.gate_proj.weight")?.to_owned()))
        .collect();
    tensors.retain(|name, _| !name.contains(".mlp."));
    let mut add = |name: String, shape: &[usize]| {
        tensors.insert(name.clone(), made(&name, shape));
    };
    for layer in layers {
        let mlp = format!("{layer}mlp");
        add(format!("{mlp}.gate.weight"), &[3, 128]);
        add(format!("{mlp}.shared_expert_gate.weight"), &[1, 128]);
        for (kind, shape) in [("gate", [16, 128]), ("up", [16, 128]), ("down", [128, 16])] {
            add(format!("{mlp}.shared_expert.{kind}_proj.weight"), &shape);
        }
        if !separate {
            add(format!("{mlp}.experts.gate_up_proj"), &[3, 64, 128]);
            add(format!("{mlp}.experts.down_proj"), &[3, 128, 32]);
            continue;
        }
        for expert in 0..3 {
            for (kind, shape) in [("gate", [32, 128]), ("up", [32, 128]), ("down", [128, 32])] {
                add(format!("{mlp}.experts.{expert}.{kind}_proj.weight"), &shape);
            }
        }
    }
    (config, tensors)
}

/// The type of most bytes of a set of tensors.
pub(crate) fn main_type(tensors: &Tensors) -> StorageType {
    let mut bytes = BTreeMap::new();
    for tensor in tensors.values() {
        *bytes.entry(tensor.storage).or_insert(0) += tensor.data.len();
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).unwrap().0
}
