use super::*;
use crate::error::Error;
use crate::weights::gguf::{GgufArray, GgufFile, GgufValue};
use crate::weights::samples::gguf;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

fn read(value: &Value) -> crate::Result<ModelConfig> {
    ModelConfig::from_hf(Path::new("config.json"), &value.to_string())
}

fn hybrid() -> Value {
    json!({
        "model_type": "qwen3_5_text", "vocab_size": 512, "hidden_size": 128,
        "intermediate_size": 192, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 3,
        "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25
        },
        "tie_word_embeddings": true
    })
}

fn llama() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 512, "hidden_size": 96, "intermediate_size": 192,
        "num_hidden_layers": 2, "num_attention_heads": 6
    })
}

/// `base` with fields replaced.
fn with(mut base: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

fn without(mut base: Value, key: &str) -> Value {
    base.as_object_mut().unwrap().remove(key);
    base
}

#[test]
fn hybrid_fields_are_read() {
    let config = read(&hybrid()).unwrap();
    assert_eq!(config.family, Family::HybridDense);
    assert_eq!((config.vocab_size, config.hidden_size, config.max_positions), (512, 128, 4096));
    assert!(config.tied_embeddings && !config.mtp);
    let attention = &config.attention;
    assert_eq!((attention.query_heads, attention.kv_heads, attention.head_dim), (4, 2, 32));
    assert!(attention.gated && attention.qk_norm);
    assert_eq!((attention.rope.dims, attention.rope.theta), (8, 1e7));
    let delta = config.delta_net.clone().unwrap();
    assert_eq!((delta.key_heads, delta.value_heads, delta.channels()), (3, 6, 192));
    assert_eq!(config.feed_forward, FeedForwardConfig::Dense { intermediate: 192 });
    let attends = |config: &ModelConfig| -> Vec<usize> {
        let kinds = config.layers.iter().enumerate();
        kinds.filter(|(_, k)| **k == LayerKind::Attention).map(|(i, _)| i).collect()
    };
    assert_eq!(attends(&config), [3, 7]);
    let interval = with(hybrid(), json!({"full_attention_interval": 2}));
    assert_eq!(attends(&read(&interval).unwrap()), [1, 3, 5, 7]);
    let listed = with(
        hybrid(),
        json!({"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]}),
    );
    assert_eq!(attends(&read(&listed).unwrap()), [0]);
}

#[test]
fn nested_and_flat_configurations_agree() {
    let flat = read(&hybrid()).unwrap();
    let outer = json!({
        "model_type": "qwen3_5", "tie_word_embeddings": true,
        "text_config": without(hybrid(), "tie_word_embeddings"), "vision_config": {"depth": 1}
    });
    assert_eq!(read(&outer).unwrap(), flat);
    // The outer flag rules.
    let untied = with(outer.clone(), json!({"tie_word_embeddings": false}));
    assert!(!read(&untied).unwrap().tied_embeddings);
    let inner_only =
        without(with(outer.clone(), json!({"text_config": hybrid()})), "tie_word_embeddings");
    assert!(read(&inner_only).unwrap().tied_embeddings);
    let mixed = with(outer, json!({"model_type": "qwen3_5_moe"}));
    assert!(read(&mixed).unwrap_err().to_string().contains("text_config.model_type"));
}

#[test]
fn rope_may_lie_at_three_places() {
    let flat = read(&hybrid()).unwrap();
    let beside = with(
        without(hybrid(), "rope_parameters"),
        json!({"rope_theta": 1e7, "partial_rotary_factor": 0.25}),
    );
    assert_eq!(read(&beside).unwrap(), flat);
    let scaling = with(beside, json!({"rope_scaling": {"type": "linear", "factor": 2.0}}));
    assert_eq!(read(&scaling).unwrap().attention.rope.scaling, RopeScaling::Linear { factor: 2.0 });
    let by_kind = with(
        hybrid(),
        json!({"rope_parameters": {"full_attention": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}}}),
    );
    let rope = read(&by_kind).unwrap().attention.rope;
    assert_eq!((rope.theta, rope.dims), (5e5, 16));
}

#[test]
fn llama3_scaling_is_read() {
    let scaling = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024
    });
    let config = read(&with(llama(), json!({"rope_scaling": scaling}))).unwrap();
    assert_eq!(
        config.attention.rope.scaling,
        RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_positions: 1024
        }
    );
    let missing = with(llama(), json!({"rope_scaling": without(scaling.clone(), "factor")}));
    assert!(read(&missing).unwrap_err().to_string().contains("rope factor: missing"));
    let equal = with(scaling, json!({"high_freq_factor": 1.0}));
    let message = read(&with(llama(), json!({"rope_scaling": equal}))).unwrap_err().to_string();
    assert!(message.contains("high_freq_factor: 1 is not above"), "{message}");
}

#[test]
fn defaults_are_those_of_the_classes() {
    let config = read(&llama()).unwrap();
    assert_eq!((config.attention.kv_heads, config.attention.head_dim), (6, 16));
    assert_eq!((config.attention.rope.dims, config.attention.rope.theta), (16, 10_000.0));
    assert_eq!((config.max_positions, config.rms_norm_eps), (2048, 1e-6));
    assert!(!config.tied_embeddings && !config.attention.qk_norm && config.delta_net.is_none());
    let qwen3 = json!({
        "model_type": "qwen3", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 192,
        "num_hidden_layers": 2, "num_attention_heads": 32
    });
    let config = read(&qwen3).unwrap();
    assert_eq!((config.attention.kv_heads, config.attention.head_dim), (32, 128));
    assert!(config.attention.qk_norm && !config.attention.gated);
    let moe = json!({
        "model_type": "qwen3_5_moe_text", "vocab_size": 512, "hidden_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 16
    });
    let config = read(&moe).unwrap();
    assert_eq!((config.attention.kv_heads, config.attention.rope.dims), (2, 64));
    assert_eq!(
        config.feed_forward,
        FeedForwardConfig::Moe {
            experts: 256,
            top_k: 8,
            intermediate: 512,
            shared_intermediate: 512
        }
    );
}

#[test]
fn only_active_windows_are_refused() {
    let mistral = |fields: Value| {
        let base = with(llama(), json!({"model_type": "mistral", "num_key_value_heads": 2}));
        read(&with(base, fields))
    };
    assert!(mistral(json!({"sliding_window": null})).is_ok());
    assert!(mistral(json!({"sliding_window": 4096, "max_position_embeddings": 4096})).is_ok());
    for fields in [json!({"sliding_window": 4096}), json!({})] {
        let error = mistral(fields).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        assert!(error.to_string().contains("sliding_window 4096"), "{error}");
    }
    let qwen3 = |fields: Value| {
        read(&with(with(llama(), json!({"model_type": "qwen3", "num_key_value_heads": 2})), fields))
    };
    assert!(qwen3(json!({"use_sliding_window": false, "sliding_window": 64})).is_ok());
    assert!(qwen3(json!({"use_sliding_window": true, "sliding_window": 64})).is_ok());
    let active = json!({"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1});
    assert!(qwen3(active).is_err());
}

#[test]
fn unsupported_features_are_named() {
    for (fields, expected) in [
        (json!({"model_type": "qwen4_exp"}), "model type qwen4_exp"),
        (json!({"attention_bias": true}), "attention_bias true"),
        (json!({"mlp_bias": true}), "mlp_bias true"),
        (json!({"hidden_act": "gelu"}), "hidden_act gelu"),
        (json!({"output_gate_type": "sigmoid"}), "output_gate_type sigmoid"),
        (json!({"mtp_use_dedicated_embeddings": true}), "mtp_use_dedicated_embeddings true"),
        (json!({"mtp_num_hidden_layers": 2}), "mtp_num_hidden_layers 2"),
        (json!({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}), "rope type yarn"),
        (json!({"quantization_config": {"quant_method": "fp8"}}), "quantization_config fp8"),
        (json!({"full_attention_interval": 9}), "without attention layers"),
        (json!({"mlp_only_layers": [1]}), "mlp_only_layers [1]"),
        (
            json!({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}),
            "layer type sliding_attention",
        ),
    ] {
        let error = read(&with(hybrid(), fields)).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let known = read(&json!({"model_type": "gemma"})).unwrap_err().to_string();
    assert!(known.contains("qwen3_5") && known.contains("mistral"), "{known}");
    assert!(read(&with(hybrid(), json!({"output_gate_type": "swish"}))).is_ok());
    assert!(read(&with(hybrid(), json!({"mlp_only_layers": []}))).is_ok());
}

#[test]
fn impossible_values_are_named() {
    for (fields, expected) in [
        (json!({"hidden_size": 0}), "hidden_size: 0 "),
        (json!({"hidden_size": 1 << 21}), "hidden_size: 2097152 "),
        (json!({"hidden_size": -1}), "hidden_size: expected a count, found -1"),
        (json!({"hidden_size": 1.5}), "hidden_size: expected a count, found 1.5"),
        (json!({"hidden_size": "128"}), "hidden_size: expected a count"),
        (json!({"hidden_size": null}), "hidden_size: the field is missing"),
        (json!({"vocab_size": 1u64 << 40}), "vocab_size"),
        (json!({"num_hidden_layers": 0}), "num_hidden_layers: 0 "),
        (json!({"num_hidden_layers": 1u64 << 60}), "num_hidden_layers: 1152921504606846976 "),
        (json!({"layer_types": ["full_attention"]}), "layer_types: 1 entries for 8"),
        (json!({"layer_types": "full"}), "layer_types"),
        (json!({"full_attention_interval": 0}), "full_attention_interval: 0 "),
        (json!({"num_attention_heads": 0}), "attention.query_heads: 0 "),
        (json!({"num_attention_heads": 5}), "attention.query_heads: 5 is not a multiple of the 2"),
        (json!({"num_key_value_heads": 0}), "attention.kv_heads: 0 "),
        (json!({"head_dim": 0}), "attention.head_dim: 0 "),
        (json!({"rope_parameters": {"partial_rotary_factor": 2.0}}), "partial_rotary_factor: 2 "),
        (json!({"rope_parameters": {"partial_rotary_factor": 0.1}}), "attention.rope.dims: 3 "),
        (json!({"rope_parameters": {"rope_theta": 0}}), "attention.rope.theta: 0 "),
        (json!({"rope_parameters": 3}), "rope_parameters: expected an object, found 3"),
        (
            json!({"linear_num_value_heads": 7}),
            "delta_net.value_heads: 7 is not a multiple of the 3",
        ),
        (json!({"linear_num_key_heads": 0}), "delta_net.key_heads: 0 "),
        (json!({"linear_conv_kernel_dim": 1}), "delta_net.conv_kernel: 1 "),
        (json!({"intermediate_size": 0}), "feed_forward.intermediate: 0 "),
        (json!({"max_position_embeddings": 0}), "max_positions: 0 "),
        (json!({"rms_norm_eps": 0}), "rms_norm_eps: 0 "),
        (json!({"rms_norm_eps": 1e99}), "rms_norm_eps: inf "),
        (json!({"tie_word_embeddings": "yes"}), "tie_word_embeddings: expected true or false"),
        (json!({"model_type": 3}), "model_type: expected a string, found 3"),
        (json!({"text_config": []}), "text_config: expected an object"),
    ] {
        let error = read(&with(hybrid(), fields)).unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("config.json: {expected}")), "{error}");
    }
    let moe = |fields: Value| {
        let base = with(hybrid(), json!({"model_type": "qwen3_5_moe_text", "num_experts": 4}));
        read(&with(base, fields)).unwrap_err().to_string()
    };
    assert!(moe(json!({})).contains("feed_forward.top_k: 8 is outside 1 to the 4 experts"));
    assert!(moe(json!({"num_experts": 0})).contains("feed_forward.experts: 0 "));
    assert!(read(&without(hybrid(), "model_type")).is_err());
    for text in ["", "[]", "{\"model_type\": \"llama\"", "nul"] {
        assert!(ModelConfig::from_hf(Path::new("c"), text).is_err());
    }
}

fn file() -> GgufFile {
    gguf("hybrid-dense-tied/model-Q8_0.gguf")
}

/// Reads the hybrid fixture with keys replaced (`None` = removed).
fn changed<const N: usize>(changes: [(&str, Option<GgufValue>); N]) -> crate::Result<ModelConfig> {
    let mut file = file();
    for (key, value) in changes {
        let key = if key.contains("general.") || key.contains("tokenizer.") {
            key.to_owned()
        } else {
            format!("qwen35.{key}")
        };
        match value {
            Some(value) => file.metadata.insert(key, value),
            None => file.metadata.remove(&key),
        };
    }
    ModelConfig::from_gguf(&file)
}

fn u(value: u32) -> Option<GgufValue> {
    Some(GgufValue::U32(value))
}

fn text(value: &str) -> Option<GgufValue> {
    Some(GgufValue::String(value.into()))
}

fn list(values: &[u32]) -> Option<GgufValue> {
    Some(GgufValue::Array(GgufArray::U32(values.to_vec())))
}

#[test]
fn gguf_keys_equal_the_folder() {
    let path = crate::weights::samples::fixture("hybrid-dense-tied").join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let folder = ModelConfig::from_hf(&path, &text).unwrap();
    let mut config = ModelConfig::from_gguf(&file()).unwrap();
    assert!(config.mtp);
    config.mtp = false;
    config.delta_net.as_mut().unwrap().head_map = HeadMap::Divide;
    assert_eq!(config, folder);
}

#[test]
fn gguf_layers_have_three_sources() {
    let expected = ModelConfig::from_gguf(&file()).unwrap().layers;
    let recurrent = "attention.recurrent_layers";
    let by_interval = changed([(recurrent, None)]).unwrap();
    assert_eq!(by_interval.layers, expected);
    let short = GgufValue::Array(GgufArray::Bool(vec![true; 3]));
    let message = changed([(recurrent, Some(short))]).unwrap_err().to_string();
    assert!(message.contains("recurrent_layers: 3 entries for 9 blocks"), "{message}");
    let draft = GgufValue::Array(GgufArray::Bool([vec![false; 8], vec![true]].concat()));
    let message = changed([(recurrent, Some(draft))]).unwrap_err().to_string();
    assert!(message.contains("block 8 is recurrent"), "{message}");
    // Without the count of draft blocks, the tensors show one.
    let inferred = changed([("nextn_predict_layers", None)]).unwrap();
    assert!(inferred.mtp && inferred.layers == expected);
}

#[test]
fn gguf_arrays_per_layer_must_be_uniform() {
    let heads = "attention.head_count_kv";
    // Only the attention layers count: 3, 7, and the draft block.
    let values = [0, 0, 0, 2, 0, 0, 0, 2, 2];
    assert_eq!(changed([(heads, list(&values))]).unwrap().attention.kv_heads, 2);
    let error = changed([(heads, list(&[0, 0, 0, 2, 0, 0, 0, 1, 2]))]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = changed([(heads, list(&[2; 10]))]).unwrap_err();
    assert!(error.to_string().contains("10 entries for 9 blocks"), "{error}");
    assert!(changed([(heads, list(&[]))]).is_err());
    let ffn = changed([("feed_forward_length", list(&[128; 9]))]).unwrap();
    assert_eq!(ffn.feed_forward, FeedForwardConfig::Dense { intermediate: 128 });
}

#[test]
fn gguf_rope_is_read() {
    let kind = "rope.scaling.type";
    let linear =
        changed([(kind, text("linear")), ("rope.scaling.factor", Some(GgufValue::F32(4.0)))]);
    assert_eq!(linear.unwrap().attention.rope.scaling, RopeScaling::Linear { factor: 4.0 });
    assert_eq!(changed([(kind, text("none"))]).unwrap().attention.rope.scaling, RopeScaling::None);
    assert!(changed([(kind, text("linear"))]).is_err());
    let yarn = changed([(kind, text("yarn"))]).unwrap_err();
    assert!(yarn.to_string().contains("rope.scaling.type yarn"), "{yarn}");
    let old = changed([("rope.scale_linear", Some(GgufValue::F32(2.0)))]).unwrap();
    assert_eq!(old.attention.rope.scaling, RopeScaling::Linear { factor: 2.0 });
    let plain = changed([("rope.freq_base", None), ("rope.dimension_count", None)]).unwrap();
    assert_eq!((plain.attention.rope.theta, plain.attention.rope.dims), (10_000.0, 32));
    let llama = ModelConfig::from_gguf(&gguf("llama-dense/model-F16.gguf")).unwrap();
    assert_eq!(llama.attention.rope.pairing, RopePairing::Adjacent);
}

#[test]
fn gguf_faults_name_the_key() {
    for (key, value, expected) in [
        ("general.architecture", text("gemma"), "architecture gemma"),
        ("general.architecture", None, "general.architecture"),
        ("general.type", text("adapter"), "file type adapter"),
        ("block_count", u(0), "qwen35.block_count: 0 "),
        ("block_count", u(u32::MAX), "qwen35.block_count: 4294967295 "),
        ("block_count", None, "qwen35.block_count"),
        ("embedding_length", u(0), "hidden_size: 0 "),
        ("embedding_length", text("x"), "qwen35.embedding_length"),
        ("nextn_predict_layers", u(2), "nextn_predict_layers 2"),
        ("attention.head_count", u(3), "attention.query_heads: 3 "),
        ("attention.value_length", u(16), "value_length 16 beside key_length 32"),
        ("attention.layer_norm_rms_epsilon", None, "layer_norm_rms_epsilon"),
        ("attention.sliding_window", u(64), "sliding_window 64"),
        ("logit_scale", Some(GgufValue::F32(2.0)), "qwen35.logit_scale 2"),
        ("expert_count", u(8), "mixture of experts in qwen35"),
        ("rope.dimension_count", u(7), "attention.rope.dims: 7 "),
        ("rope.dimension_count", u(64), "attention.rope.dims: 64 "),
        ("rope.freq_base", Some(GgufValue::F32(f32::NAN)), "attention.rope.theta: NaN "),
        ("ssm.inner_size", u(97), "qwen35.ssm.inner_size: 97 "),
        ("ssm.time_step_rank", u(0), "qwen35.ssm.inner_size: 96 does not divide into 0"),
        ("ssm.group_count", u(4), "delta_net.value_heads: 6 is not a multiple of the 4"),
        ("context_length", None, "qwen35.context_length"),
        ("tokenizer.ggml.tokens", None, "tokenizer.ggml.tokens"),
        ("feed_forward_length", None, "qwen35.feed_forward_length"),
    ] {
        let error = changed([(key, value)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
    }
    let mut plain = gguf("qwen3-dense/model-BF16.gguf");
    plain.metadata.insert("qwen3.nextn_predict_layers".into(), GgufValue::U32(1));
    assert!(ModelConfig::from_gguf(&plain).is_err());
}

#[test]
fn a_configuration_survives_json() {
    for config in [
        read(&hybrid()).unwrap(),
        read(&llama()).unwrap(),
        crate::weights::samples::mixture(true).0,
    ] {
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), config);
    }
}

/// Values that a damaged or hostile file may hold.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(|v| json!(v)),
        (0u64..64).prop_map(|v| json!(v)),
        any::<i64>().prop_map(|v| json!(v)),
        any::<f64>().prop_map(|v| json!(v)),
        any::<bool>().prop_map(|v| json!(v)),
        Just(Value::Null),
        "[a-z_]{0,12}".prop_map(|v| json!(v)),
        proptest::collection::vec(0u32..9, 0..4).prop_map(|v| json!(v)),
        Just(json!({"rope_type": "llama3", "factor": -1, "partial_rotary_factor": 0.999})),
    ]
}

proptest! {
    #[test]
    fn no_json_value_breaks_the_reader(
        moe in any::<bool>(),
        changes in proptest::collection::vec((0usize..64, any_value()), 1..4),
    ) {
        let mut value = hybrid();
        for key in [
            "num_experts", "num_experts_per_tok", "moe_intermediate_size",
            "shared_expert_intermediate_size", "layer_types", "full_attention_interval",
            "text_config", "rope_scaling", "sliding_window", "partial_rotary_factor",
        ] {
            value[key] = Value::Null;
        }
        if moe {
            value["model_type"] = json!("qwen3_5_moe_text");
        }
        let keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        for (index, change) in changes {
            value[keys[index % keys.len()].as_str()] = change;
        }
        if let Ok(config) = read(&value) {
            config.check(Path::new("config.json")).unwrap();
            // Sizes that plans are made of do not overflow.
            let _ = config.state_bytes();
            let _ = crate::weights::canonical::slots(&config, &|_| moe);
        }
    }

    #[test]
    fn no_gguf_value_breaks_the_reader(index in 0usize..64, value in any_value()) {
        let mut file = file();
        let keys: Vec<String> =
            file.metadata.keys().filter(|key| !key.starts_with("tokenizer")).cloned().collect();
        let value = match value {
            Value::Number(n) => n.as_u64().map_or(GgufValue::F64(n.as_f64().unwrap_or(0.0)), GgufValue::U64),
            Value::Bool(v) => GgufValue::Bool(v),
            Value::Array(v) => GgufValue::Array(GgufArray::U32(vec![3; v.len()])),
            other => GgufValue::String(other.to_string()),
        };
        file.metadata.insert(keys[index % keys.len()].clone(), value);
        if let Ok(config) = ModelConfig::from_gguf(&file) {
            config.check(Path::new("file.gguf")).unwrap();
        }
    }
}
