//! Shaders: composed from the files of `shaders/`, compiled once per variant.

use crate::device::Device;
use forge_core::error::{Error, Result};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../shaders/", $name, ".wgsl")))),*]
    };
}

/// Every file of `shaders/` by its name without ending.
const SOURCES: &[(&str, &str)] = sources![
    "activations_scalar",
    "activations_vec4",
    "add",
    "add_rms_norm",
    "argmax",
    "causal_conv1d",
    "common",
    "copy_pages",
    "copy_state",
    "embed",
    "gated_delta_rule",
    "gated_rms_norm",
    "gather_rows",
    "kv/load_bf16",
    "kv/load_f16",
    "kv/load_f32",
    "kv/load_fp8",
    "kv/load_q8_0",
    "kv/store_bf16",
    "kv/store_f16",
    "kv/store_f32",
    "kv/store_fp8",
    "kv/store_q8_0",
    "linear",
    "moe_combine",
    "moe_linear",
    "moe_route",
    "paged_attention",
    "quant/bf16",
    "quant/codebook",
    "quant/common",
    "quant/f16",
    "quant/f32",
    "quant/iq2_xs",
    "quant/iq2_xxs",
    "quant/iq3_xxs",
    "quant/iq4_nl",
    "quant/iq4_values",
    "quant/iq4_xs",
    "quant/k_scales",
    "quant/mxfp4",
    "quant/q2_k",
    "quant/q3_k",
    "quant/q4_0",
    "quant/q4_1",
    "quant/q4_k",
    "quant/q5_0",
    "quant/q5_1",
    "quant/q5_k",
    "quant/q6_k",
    "quant/q8_0",
    "quant/words_scalar",
    "quant/words_vec4",
    "rms_norm",
    "rms_norm_heads",
    "rope",
    "sigmoid_mul",
    "silu_mul",
    "store_kv",
];

/// A variant of a shader: files, entry point and constants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shader {
    /// File of the op.
    pub(crate) file: &'static str,
    /// Entry point.
    pub(crate) entry: &'static str,
    /// Files put before the op's.
    pub(crate) snippets: Vec<&'static str>,
    /// Constants put in front of all.
    pub(crate) constants: Vec<(&'static str, u32)>,
    /// One letter per storage binding from 1 on: `r` read, `w` read and write, `-` not bound.
    pub(crate) access: &'static str,
}

impl Shader {
    /// A variant whose entry point has the name of its file.
    pub(crate) fn new(file: &'static str, access: &'static str, workgroup: u32) -> Self {
        Self {
            file,
            entry: file,
            snippets: Vec::new(),
            constants: vec![("WORKGROUP", workgroup)],
            access,
        }
    }
    /// Another entry point of the file.
    pub(crate) fn entry(mut self, entry: &'static str) -> Self {
        self.entry = entry;
        self
    }
    /// One more constant.
    pub(crate) fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.constants.push((name, value));
        self
    }
    /// More files before the op's.
    pub(crate) fn snippets(mut self, files: &[&'static str]) -> Self {
        self.snippets.extend_from_slice(files);
        self
    }
    /// Invocations of a workgroup.
    pub(crate) fn workgroup(&self) -> u32 {
        self.constants.first().map_or(1, |(_, value)| *value)
    }

    /// The WGSL text.
    pub(crate) fn source(&self) -> Result<String> {
        let mut text = String::new();
        for (name, value) in &self.constants {
            let _ = writeln!(text, "const {name}: u32 = {value}u;");
        }
        for file in ["common"].iter().chain(&self.snippets).chain([&self.file]) {
            let (_, source) = SOURCES.iter().find(|(name, _)| name == file).ok_or_else(|| {
                Error::unsupported(format!("shader {file}"), "there is no such file")
            })?;
            text.push_str(source);
        }
        Ok(text)
    }
}

/// A compiled variant with the layout of its bindings.
#[derive(Clone)]
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// Compiled variants and layouts by what they were made from.
#[derive(Default)]
pub(crate) struct Pipelines {
    compiled: Mutex<HashMap<Shader, Pipeline>>,
    layouts: Mutex<HashMap<&'static str, wgpu::BindGroupLayout>>,
}

impl Pipelines {
    /// The pipeline of `shader`, compiled on first use.
    pub(crate) fn get(&self, device: &Device, shader: &Shader) -> Result<Pipeline> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = compiled.get(shader) {
            return Ok(pipeline.clone());
        }
        let source = shader.source()?;
        let layout = self.layout(device, shader.access)?;
        let pipeline = device.scoped(shader.entry, || {
            let module = device.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(shader.entry),
                source: wgpu::ShaderSource::Wgsl(source.into()),
            });
            let pipeline_layout =
                device.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label: Some(shader.entry),
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: 0,
                });
            device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(shader.entry),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(shader.entry),
                // Every shader writes its workgroup memory before it reads it.
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            })
        })?;
        let pipeline = Pipeline { pipeline, layout };
        compiled.insert(shader.clone(), pipeline.clone());
        Ok(pipeline)
    }

    fn layout(&self, device: &Device, access: &'static str) -> Result<wgpu::BindGroupLayout> {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = layouts.get(access) {
            return Ok(layout.clone());
        }
        let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform)];
        for (i, letter) in access.chars().enumerate() {
            if letter != '-' {
                let read_only = letter == 'r';
                entries.push(entry(i as u32 + 1, wgpu::BufferBindingType::Storage { read_only }));
            }
        }
        let layout = device.scoped("layout", || {
            device.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(access),
                entries: &entries,
            })
        })?;
        layouts.insert(access, layout.clone());
        Ok(layout)
    }
}

fn entry(binding: u32, ty: wgpu::BufferBindingType) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}
