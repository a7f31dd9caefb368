use super::super::samples::{Tensors, fixture, folder, made, mixture, with_value};
use super::*;
use crate::config::Family;

fn assembled(config: &mut ModelConfig, tensors: Tensors) -> Result<Tensors> {
    assemble(Path::new("folder"), tensors, config)
}

/// Error of the hybrid fixture after a change.
fn error(change: impl FnOnce(&mut Tensors)) -> String {
    let (mut config, mut tensors) = folder("hybrid-dense-tied");
    change(&mut tensors);
    assembled(&mut config, tensors).unwrap_err().to_string()
}

#[test]
fn every_canonical_name_has_a_file_name() {
    let (mut dense, tensors) = folder("hybrid-dense-tied");
    dense.tied_embeddings = false;
    dense.mtp = true;
    let moe = mixture(false).0;
    let source = Source::new(Path::new("f"), tensors);
    let names = Names::of(&source);
    for slot in slots(&dense, &|_| true).into_iter().chain(slots(&moe, &|_| true)) {
        let name = names.tensor(&slot.name);
        assert!(
            name.ends_with(".weight") || name.contains("_proj") || name.contains("linear_attn")
        );
        assert_ne!(name, slot.name);
    }
}

#[test]
fn transforms_are_applied_once() {
    let (mut config, tensors) = folder("hybrid-dense-tied");
    let raw = |name: &str| tensors[name].to_f32().unwrap();
    let out = assembled(&mut config, tensors.clone()).unwrap();
    let get = |name: &str| out[name].to_f32().unwrap();
    assert!(config.mtp && config.tied_embeddings);
    let plus_one = |values: Vec<f32>| values.into_iter().map(|v| v + 1.0).collect::<Vec<_>>();
    for (canonical, file) in [
        ("norm", "model.norm.weight"),
        ("layers.0.attn_norm", "model.layers.0.input_layernorm.weight"),
        ("layers.7.ffn_norm", "model.layers.7.post_attention_layernorm.weight"),
        ("layers.3.attn.q_norm", "model.layers.3.self_attn.q_norm.weight"),
        ("mtp.attn.k_norm", "mtp.layers.0.self_attn.k_norm.weight"),
        ("mtp.embed_norm", "mtp.pre_fc_norm_embedding.weight"),
        ("mtp.hidden_norm", "mtp.pre_fc_norm_hidden.weight"),
        ("mtp.norm", "mtp.norm.weight"),
    ] {
        assert_eq!(get(canonical), plus_one(raw(file)), "{canonical}");
    }
    assert_eq!(get("layers.0.delta.norm"), raw("model.layers.0.linear_attn.norm.weight"));
    assert_eq!(get("layers.0.delta.dt_bias"), raw("model.layers.0.linear_attn.dt_bias"));
    let log = raw("model.layers.0.linear_attn.A_log");
    assert_eq!(get("layers.0.delta.neg_a"), log.iter().map(|v| -v.exp()).collect::<Vec<_>>());
    assert_eq!(out["layers.0.delta.conv"].shape, [192, 4]);
    let q = &out["layers.3.attn.q"];
    assert_eq!(q.name, "model.layers.3.self_attn.q_proj.weight");
    assert_eq!(q.data.as_slice().as_ptr(), tensors[&q.name].data.as_slice().as_ptr());
}

#[test]
fn plain_families_keep_their_norms() {
    for name in ["qwen3-dense", "llama-dense"] {
        let (mut config, tensors) = folder(name);
        let raw = tensors["model.norm.weight"].to_f32().unwrap();
        let out = assembled(&mut config, tensors).unwrap();
        assert_eq!(out["norm"].to_f32().unwrap(), raw);
        assert_eq!(out.contains_key("lm_head"), config.family == Family::Llama);
    }
}

#[test]
fn nested_prefix_and_inner_mtp_are_found() {
    let (mut config, tensors) = folder("hybrid-dense-tied");
    let renamed = tensors
        .into_iter()
        .map(|(name, tensor)| match name.strip_prefix("model.") {
            Some(rest) => (format!("model.language_model.{rest}"), tensor),
            None => (format!("model.{name}"), tensor),
        })
        .chain([("model.visual.blocks.0.norm.weight".to_owned(), made("v", &[4]))])
        .collect();
    let out = assembled(&mut config, renamed).unwrap();
    assert!(config.mtp && out.contains_key("mtp.fc"));
}

#[test]
fn the_mtp_block_is_whole_or_absent() {
    let (mut config, mut tensors) = folder("hybrid-dense-tied");
    tensors.retain(|name, _| !name.starts_with("mtp."));
    let out = assembled(&mut config, tensors).unwrap();
    assert!(!config.mtp && out.keys().all(|name| !name.starts_with("mtp.")));
    let missing = error(|t| {
        t.remove("mtp.layers.0.self_attn.v_proj.weight");
        t.remove("mtp.norm.weight");
    });
    assert_eq!(missing, "folder: tensor mtp.norm.weight is missing");
    let dedicated = error(|t| {
        t.insert("mtp.embed_tokens.weight".into(), made("mtp.embed_tokens.weight", &[512, 128]));
    });
    assert!(dedicated.contains("mtp.embed_tokens.weight") && dedicated.contains("not supported"));
}

#[test]
fn a_head_is_read_as_the_flag_says() {
    // Tied by the flag: a stored copy is ignored.
    let (mut config, mut tensors) = folder("hybrid-dense-tied");
    tensors.insert("lm_head.weight".into(), made("lm_head.weight", &[512, 128]));
    assert!(!assembled(&mut config, tensors).unwrap().contains_key("lm_head"));
    assert!(config.tied_embeddings);
    // Untied by the flag, but there is no head.
    let (mut config, tensors) = folder("hybrid-dense-tied");
    config.tied_embeddings = false;
    assembled(&mut config, tensors).unwrap();
    assert!(config.tied_embeddings);
    let (mut config, mut tensors) = folder("hybrid-dense-tied");
    config.tied_embeddings = false;
    tensors.insert("lm_head.weight".into(), made("lm_head.weight", &[512, 128]));
    assert_eq!(assembled(&mut config, tensors).unwrap()["lm_head"].shape, [512, 128]);
}

#[test]
fn experts_may_be_stacked_or_separate() {
    let (mut config, tensors) = mixture(false);
    let out = assembled(&mut config, tensors.clone()).unwrap();
    let file = "model.layers.2.mlp.experts.gate_up_proj";
    assert_eq!(out["layers.2.moe.experts.gate_up"].shape, [3, 64, 128]);
    assert_eq!(out["layers.2.moe.experts.gate_up"].name, file);
    assert_eq!(out["mtp.moe.experts.down"].shape, [3, 128, 32]);
    assert_eq!(out["layers.0.moe.shared_gate"].shape, [1, 128]);
    assert_eq!(out["layers.0.moe.router"].shape, [3, 128]);

    let (mut config, tensors) = mixture(true);
    let out = assembled(&mut config, tensors.clone()).unwrap();
    assert!(!out.contains_key("layers.2.moe.experts.gate_up"));
    for (kind, shape) in [("gate", [3, 32, 128]), ("up", [3, 32, 128]), ("down", [3, 128, 32])] {
        let stacked = &out[&format!("layers.2.moe.experts.{kind}")];
        assert_eq!(stacked.shape, shape);
        let each: Vec<f32> = (0..3)
            .flat_map(|expert| {
                let name = format!("model.layers.2.mlp.experts.{expert}.{kind}_proj.weight");
                tensors[&name].to_f32().unwrap()
            })
            .collect();
        assert_eq!(stacked.to_f32().unwrap(), each);
    }
}

#[test]
fn experts_must_be_complete_and_alike() {
    let failed = |change: &dyn Fn(&mut Tensors)| {
        let (mut config, mut tensors) = mixture(true);
        change(&mut tensors);
        assembled(&mut config, tensors).unwrap_err().to_string()
    };
    let one = "model.layers.2.mlp.experts.1.up_proj.weight";
    assert_eq!(failed(&|t| drop(t.remove(one))), format!("folder: tensor {one} is missing"));
    let other = failed(&|t| {
        let name = one.replace("experts.1", "experts.3");
        t.insert(name.clone(), made(&name, &[32, 128]));
    });
    assert!(other.contains("experts.3.up_proj.weight: unread"), "{other}");
    let mixed = failed(&|t| {
        let shape = vec![32, 128];
        let half = HostTensor::new(
            one,
            super::super::quant::StorageType::F16,
            shape,
            vec![0; 8192].into(),
        );
        t.insert(one.into(), half.unwrap());
    });
    assert!(mixed.contains(one) && mixed.contains("is f16, expert 0 is f32"), "{mixed}");
}

#[test]
fn faults_name_the_tensor_of_the_file() {
    let q = "model.layers.3.self_attn.q_proj.weight";
    assert_eq!(error(|t| drop(t.remove(q))), format!("folder: tensor {q} is missing"));
    let shape = error(|t| drop(t.insert(q.into(), made(q, &[128, 128]))));
    assert!(shape.contains(q) && shape.contains("[128, 128]") && shape.contains("[256, 128]"));
    let unread = error(|t| drop(t.insert("model.extra".into(), made("model.extra", &[1]))));
    assert!(unread.contains("model.extra: unread"), "{unread}");
    let bias = "model.layers.3.self_attn.q_proj.bias";
    let biased = error(|t| drop(t.insert(bias.into(), made(bias, &[256]))));
    assert!(biased.contains(bias) && biased.contains("not supported"), "{biased}");
    let (mut config, mut tensors) = folder("hybrid-dense-tied");
    let buffer = "model.layers.0.self_attn.rotary_emb.inv_freq";
    tensors.insert(buffer.into(), made(buffer, &[4]));
    assembled(&mut config, tensors).unwrap();
}

#[test]
fn small_vectors_must_be_finite() {
    for (name, index, value) in [
        ("model.norm.weight", 5, f32::NAN),
        ("model.layers.0.linear_attn.A_log", 2, 200.0),
        ("model.layers.1.linear_attn.dt_bias", 0, f32::INFINITY),
        ("model.layers.1.linear_attn.conv1d.weight", 700, f32::NEG_INFINITY),
        ("mtp.norm.weight", 127, f32::NAN),
    ] {
        let message = error(|t| {
            let changed = with_value(&t[name], index, value);
            t.insert(name.into(), changed);
        });
        assert!(message.starts_with(&format!("folder: {name}: value {value}")), "{message}");
        assert!(message.contains(&format!("index {index} ")), "{message}");
    }
}

#[test]
fn other_families_have_no_mtp_block() {
    let (mut config, mut tensors) = folder("qwen3-dense");
    tensors.insert("mtp.fc.weight".into(), made("mtp.fc.weight", &[64, 128]));
    let message = assembled(&mut config, tensors).unwrap_err().to_string();
    assert!(message.contains("mtp.fc.weight: unread"), "{message}");
    assert!(fixture("qwen3-dense").exists());
}
