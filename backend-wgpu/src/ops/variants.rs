//! Every shader variant passes naga's validator and is written as SPIR-V, MSL and HLSL, so that a
//! shader which Metal or DX12 would refuse fails on any machine.

use super::*;
use crate::pipeline::Shader;
use forge_core::kv::{KvLayout, KvType};
use forge_core::weights::quant::StorageType;
use linear::Activations;
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};

fn all() -> Vec<Shader> {
    let mut shaders = vec![
        add::shader(),
        argmax::shader(),
        gather_rows::shader(),
        rope::shader(),
        copy_pages::shader(),
        silu_mul::shader(),
        sigmoid_mul::shader(),
        moe::route_shader(),
        moe::combine_shader(),
        causal_conv1d::shader(4),
        causal_conv1d::shader(2),
    ];
    shaders.extend(norm::shaders());
    shaders.extend(copy_state::shaders());
    for (key_dim, value_dim) in [(128, 128), (16, 16), (30, 34)] {
        shaders.push(gated_delta_rule::shader(key_dim, value_dim));
    }
    for kv_type in [KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8] {
        for head_dim in [16, 256] {
            let layout = KvLayout { kv_type, kv_heads: 2, head_dim };
            shaders.push(store_kv::shader(&layout));
            shaders.push(paged_attention::merge_shader(&layout));
            for (rows, heads) in [(1, 8), (2, 4), (2, 3)] {
                let lanes = paged_attention::Lanes { rows, heads };
                shaders.push(paged_attention::shader(&layout, lanes));
            }
        }
    }
    for storage in StorageType::ALL {
        shaders.push(embed::shader(storage));
        for activations in [Activations::Quads, Activations::Scalars] {
            shaders.push(moe::linear_shader(storage, activations));
            for rows in [1, 3, 8] {
                shaders.push(linear::vector_shader(storage, activations, rows));
            }
            for tile in [linear::Tile::Small, linear::Tile::Large] {
                shaders.push(linear::tile_shader(storage, activations, tile));
            }
        }
    }
    shaders
}

/// Workgroup memory at the lowest limits of WebGPU.
const WORKGROUP_BYTES: u32 = 16384;

fn check(shader: &Shader) -> Result<(), String> {
    let source = shader.source().map_err(|e| e.to_string())?;
    let module = naga::front::wgsl::parse_str(&source).map_err(|e| e.emit_to_string(&source))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16_IN_FLOAT32)
        .validate(&module)
        .map_err(|e| e.emit_to_string(&source))?;
    let place = module
        .entry_points
        .iter()
        .position(|e| e.name == shader.entry)
        .ok_or_else(|| format!("no entry point {}", shader.entry))?;
    let used = info.get_entry_point(place);
    let mut bytes = 0;
    for (handle, variable) in module.global_variables.iter() {
        if used[handle].is_empty() {
            continue;
        }
        if variable.space == naga::AddressSpace::WorkGroup {
            bytes += module.types[variable.ty].inner.size(module.to_ctx());
        }
        if let Some(binding) = &variable.binding
            && binding.binding > 0
        {
            let letter = shader.access.chars().nth(binding.binding as usize - 1);
            let write = naga::StorageAccess::STORE;
            let writable = matches!(variable.space,
                naga::AddressSpace::Storage { access } if access.contains(write));
            if letter != Some(if writable { 'w' } else { 'r' }) {
                return Err(format!("binding {} is {letter:?}", binding.binding));
            }
        }
    }
    if bytes > WORKGROUP_BYTES {
        return Err(format!("{bytes} bytes of workgroup memory"));
    }
    let entry = Some((naga::ShaderStage::Compute, shader.entry.to_owned()));
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: shader.entry.to_owned(),
    };
    spv::write_vec(&module, &info, &spv::Options::default(), Some(&pipeline))
        .map_err(|e| e.to_string())?;
    let options = msl::Options { fake_missing_bindings: true, ..Default::default() };
    let pipeline = msl::PipelineOptions { entry_point: entry.clone(), ..Default::default() };
    msl::write_string(&module, &info, &options, &pipeline).map_err(|e| e.to_string())?;
    let options = hlsl::Options { fake_missing_bindings: true, ..Default::default() };
    let pipeline = hlsl::PipelineOptions { entry_point: entry };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(&module, &info, None)
        .map_err(|e| e.to_string())?;
    Ok(())
}

#[test]
fn every_variant_compiles_for_vulkan_metal_and_dx12() {
    let failures: Vec<String> = all()
        .iter()
        .filter_map(|shader| check(shader).err().map(|e| format!("{shader:?}\n{e}")))
        .take(3)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
