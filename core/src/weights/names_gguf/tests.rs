use super::super::gguf::GgufFile;
use super::super::samples::{Tensors, gguf, made, mixture, with_value};
use super::*;

fn hybrid() -> GgufFile {
    gguf("hybrid-dense-tied/model-Q8_0.gguf")
}

fn assembled(file: GgufFile) -> Result<(ModelConfig, Tensors)> {
    let mut config = ModelConfig::from_gguf(&file)?;
    let tensors = assemble(Path::new("file.gguf"), file.tensors, &mut config)?;
    Ok((config, tensors))
}

/// Error of the hybrid fixture after a change.
fn error(change: impl FnOnce(&mut Tensors)) -> String {
    let mut file = hybrid();
    change(&mut file.tensors);
    assembled(file).unwrap_err().to_string()
}

#[test]
fn every_canonical_name_has_a_file_name() {
    let mut config = ModelConfig::from_gguf(&hybrid()).unwrap();
    config.tied_embeddings = false;
    let mut moe = mixture(false).0;
    moe.mtp = true;
    for fused in [false, true] {
        for config in [&config, &moe] {
            for slot in slots(config, &|_| fused) {
                let name = file_name(config, &slot.name);
                let known = name.ends_with(".weight")
                    || name.ends_with(".ssm_a")
                    || name.ends_with(".ssm_dt.bias");
                assert!(known && name != slot.name, "{name} of {}", slot.name);
            }
        }
    }
}

#[test]
fn the_draft_block_follows_the_main_layers() {
    let (config, tensors) = assembled(hybrid()).unwrap();
    assert!(config.mtp && config.tied_embeddings);
    assert_eq!(config.layers.len(), 8);
    assert_eq!(tensors["mtp.fc"].name, "blk.8.nextn.eh_proj.weight");
    assert_eq!(tensors["mtp.attn.q"].name, "blk.8.attn_q.weight");
    assert_eq!(tensors["layers.0.ffn_norm"].name, "blk.0.post_attention_norm.weight");
    assert_eq!(tensors["layers.0.delta.conv"].shape, [192, 4]);
    assert!(tensors.keys().all(|name| !name.contains("blk.")));
}

#[test]
fn the_draft_block_may_be_absent_but_not_partial() {
    let mut file = hybrid();
    file.tensors.retain(|name, _| !name.starts_with("blk.8."));
    let (config, tensors) = assembled(file).unwrap();
    assert!(!config.mtp && !tensors.contains_key("mtp.fc"));
    let gone = "blk.8.nextn.enorm.weight";
    assert_eq!(error(|t| drop(t.remove(gone))), format!("file.gguf: tensor {gone} is missing"));
    let mut alone = hybrid();
    alone.tensors.retain(|name, _| !name.starts_with("blk.") || name.starts_with("blk.8."));
    let message = assembled(alone).unwrap_err().to_string();
    assert!(message.contains("only the draft head"), "{message}");
    for extra in ["blk.8.nextn.embed_tokens.weight", "blk.8.nextn.shared_head_head.weight"] {
        let message = error(|t| drop(t.insert(extra.into(), made(extra, &[512, 128]))));
        assert!(message.contains(extra) && message.contains("not supported"), "{message}");
    }
}

#[test]
fn plain_families_use_their_names() {
    let (config, tensors) = assembled(gguf("llama-dense/model-F16.gguf")).unwrap();
    assert!(!config.tied_embeddings && !config.mtp);
    assert_eq!(tensors["layers.2.ffn_norm"].name, "blk.2.ffn_norm.weight");
    assert_eq!(tensors[ROPE_FREQS].shape, [8]);
    let (config, tensors) = assembled(gguf("qwen3-dense/model-BF16.gguf")).unwrap();
    assert!(config.tied_embeddings && !tensors.contains_key("lm_head"));
    assert_eq!(tensors["layers.2.attn.q_norm"].shape, [32]);
}

#[test]
fn faults_name_the_tensor_of_the_file() {
    let q = "blk.3.attn_q.weight";
    assert_eq!(error(|t| drop(t.remove(q))), format!("file.gguf: tensor {q} is missing"));
    let shape = error(|t| drop(t.insert(q.into(), made(q, &[128, 128]))));
    assert!(shape.contains(q) && shape.contains("[128, 128]") && shape.contains("[256, 128]"));
    for (name, reason) in [
        ("blk.3.attn_q.bias", "no bias"),
        ("blk.3.attn_q.scale", "scales beside"),
        ("rope_factors_long.weight", "another scaling"),
        ("blk.3.other.weight", "unread"),
    ] {
        let message = error(|t| drop(t.insert(name.into(), made(name, &[4]))));
        assert!(message.contains(name) && message.contains(reason), "{message}");
    }
    for name in ["output_norm.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias"] {
        let message = error(|t| {
            let changed = with_value(&t[name], 1, f32::NAN);
            t.insert(name.into(), changed);
        });
        assert_eq!(message, format!("file.gguf: {name}: value NaN at index 1 is not finite"));
    }
    let mut llama = gguf("llama-dense/model-F16.gguf");
    let changed = with_value(&llama.tensors["rope_freqs.weight"], 3, 0.0);
    llama.tensors.insert("rope_freqs.weight".into(), changed);
    let message = assembled(llama).unwrap_err().to_string();
    assert!(message.contains("rope_freqs.weight: divisor 0 at index 3"), "{message}");
    let mut file = hybrid();
    let buffer = "blk.3.attn_rot_embd.weight";
    file.tensors.insert(buffer.into(), made(buffer, &[4]));
    assembled(file).unwrap();
}
