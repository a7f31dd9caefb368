//! A recording: dispatches resolved to pipelines and bind groups, encoded afresh at each submit
//! because WebGPU command buffers are single-use.

use crate::WgpuBackend;
use crate::pipeline::{Pipeline, Shader};
use forge_core::error::{Error, Result};
use forge_core::tensor::{Tensor, shape_error};

/// Distance of two dispatches' scalars in their common uniform buffer: the alignment that WebGPU
/// guarantees, so most scalars of a dispatch.
const PARAMETER_BYTES: usize = 256;

/// An argument of a dispatch: a whole buffer, because bindings may start only at multiples of 256
/// bytes; the shader gets the offset of the view as a scalar.
#[derive(Clone)]
pub(crate) struct Binding {
    buffer: wgpu::Buffer,
    write: bool,
}

/// A dispatch before its bind group exists.
struct Recorded {
    op: &'static str,
    pipeline: Pipeline,
    access: &'static str,
    bindings: Vec<Binding>,
    groups: [u32; 3],
}

/// An open recording.
pub struct WgpuPass<'b> {
    pub(crate) backend: &'b WgpuBackend,
    recorded: Vec<Recorded>,
    parameters: Vec<u8>,
}

/// A closed recording.
pub struct Program {
    dispatches: Vec<Dispatch>,
}

struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    groups: [u32; 3],
}

/// Scalars of a dispatch in the order of the shader's `Params`.
pub(crate) struct Scalars(Vec<u32>);

impl Scalars {
    /// Fails on a value that 32 bits do not hold: shaders index with 32 bits.
    pub(crate) fn new(op: &'static str, values: &[usize]) -> Result<Self> {
        let words = values.iter().map(|value| {
            u32::try_from(*value).map_err(|_| {
                Error::unsupported(format!("{op} with an index of {value}"), "indices are 32 bits")
            })
        });
        Ok(Self(words.collect::<Result<_>>()?))
    }
    /// One more scalar, a float.
    pub(crate) fn float(mut self, value: f32) -> Self {
        self.0.push(value.to_bits());
        self
    }
}

/// Checks that a tensor lies in one buffer and that its last element has a 32-bit index.
pub(crate) fn single<'t>(
    op: &'static str,
    name: &'static str,
    tensor: &'t Tensor<WgpuBackend>,
) -> Result<&'t wgpu::Buffer> {
    let buffer = tensor.buffer.single().ok_or_else(|| {
        shape_error(op, name, "a tensor that one binding covers", format!("{tensor:?}"))
    })?;
    let end = tensor.offset
        + tensor.rows().saturating_sub(1) * tensor.row_stride
        + tensor.row_len() * usize::from(tensor.rows() > 0);
    if (end * tensor.dtype.bytes()) as u64 > buffer.size() {
        return Err(shape_error(op, name, "a view inside its buffer", format!("{tensor:?}")));
    }
    Ok(buffer)
}

/// A tensor as a read-only argument.
pub(crate) fn read(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor<WgpuBackend>,
) -> Result<Binding> {
    Ok(Binding { buffer: single(op, name, tensor)?.clone(), write: false })
}

/// A tensor as an argument that is written.
pub(crate) fn write(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor<WgpuBackend>,
) -> Result<Binding> {
    Ok(Binding { buffer: single(op, name, tensor)?.clone(), write: true })
}

/// A bare buffer as an argument.
pub(crate) fn raw(buffer: &wgpu::Buffer, write: bool) -> Binding {
    Binding { buffer: buffer.clone(), write }
}

/// Folds `count` workgroups into two dimensions of at most `limit`.
pub(crate) fn fold(op: &'static str, count: usize, limit: u32) -> Result<[u32; 3]> {
    let limit = limit as usize;
    let down = count.div_ceil(limit).max(1);
    let across = count.div_ceil(down);
    match (u32::try_from(across), u32::try_from(down)) {
        (Ok(across), Ok(down)) if down as usize <= limit => Ok([across, down, 1]),
        _ => Err(Error::unsupported(format!("{op} with {count} workgroups"), "use fewer rows")),
    }
}

impl<'b> WgpuPass<'b> {
    pub(crate) fn new(backend: &'b WgpuBackend) -> Self {
        Self { backend, recorded: Vec::new(), parameters: Vec::new() }
    }

    /// Records `count` workgroups folded into two dimensions.
    pub(crate) fn dispatch_flat(
        &mut self,
        shader: &Shader,
        scalars: Scalars,
        bindings: Vec<Binding>,
        count: usize,
    ) -> Result<()> {
        let limit = self.backend.device.limits.max_compute_workgroups_per_dimension;
        let groups = fold(shader.entry, count, limit)?;
        self.dispatch(shader, scalars, bindings, groups)
    }

    /// Records enough workgroups for `count` invocations, folded into two dimensions.
    pub(crate) fn dispatch_elements(
        &mut self,
        shader: &Shader,
        scalars: Scalars,
        bindings: Vec<Binding>,
        count: usize,
    ) -> Result<()> {
        self.dispatch_flat(shader, scalars, bindings, count.div_ceil(shader.workgroup() as usize))
    }

    /// Records one dispatch; nothing if a dimension is empty.
    pub(crate) fn dispatch(
        &mut self,
        shader: &Shader,
        scalars: Scalars,
        bindings: Vec<Binding>,
        groups: [u32; 3],
    ) -> Result<()> {
        let op = shader.entry;
        if groups.contains(&0) {
            return Ok(());
        }
        let limit = self.backend.device.limits.max_compute_workgroups_per_dimension;
        if groups.iter().any(|dimension| *dimension > limit) {
            return Err(Error::unsupported(
                format!("{op} with {groups:?} workgroups"),
                format!("the adapter takes {limit} a dimension"),
            ));
        }
        for (i, binding) in bindings.iter().enumerate() {
            let shared = bindings
                .iter()
                .enumerate()
                .any(|(j, other)| i != j && binding.write && other.buffer == binding.buffer);
            if shared {
                return Err(shape_error(op, "output", "a buffer of its own", "an input's buffer"));
            }
        }
        debug_assert!(scalars.0.len() * 4 <= PARAMETER_BYTES, "{op}");
        let pipeline = self.backend.pipelines.get(&self.backend.device, shader)?;
        let start = self.parameters.len();
        self.parameters.extend(scalars.0.iter().flat_map(|word| word.to_le_bytes()));
        self.parameters.resize(start + PARAMETER_BYTES, 0);
        self.recorded.push(Recorded { op, pipeline, access: shader.access, bindings, groups });
        Ok(())
    }

    /// Builds the bind groups.
    pub(crate) fn finish(self) -> Result<Program> {
        let device = &self.backend.device;
        if self.recorded.is_empty() {
            return Ok(Program { dispatches: Vec::new() });
        }
        let parameters = device.scoped("record", || {
            let buffer = device.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("scalars"),
                size: self.parameters.len() as u64,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            device.queue.write_buffer(&buffer, 0, &self.parameters);
            buffer
        })?;
        let dispatches = self.recorded.into_iter().enumerate().map(|(i, recorded)| {
            let offset = (i * PARAMETER_BYTES) as u64;
            let mut entries = vec![wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &parameters,
                    offset,
                    size: wgpu::BufferSize::new(PARAMETER_BYTES as u64),
                }),
            }];
            let places = recorded.access.char_indices().filter(|(_, letter)| *letter != '-');
            for ((place, _), binding) in places.zip(&recorded.bindings) {
                entries.push(wgpu::BindGroupEntry {
                    binding: place as u32 + 1,
                    resource: binding.buffer.as_entire_binding(),
                });
            }
            let bind_group = device.scoped(recorded.op, || {
                device.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(recorded.op),
                    layout: &recorded.pipeline.layout,
                    entries: &entries,
                })
            })?;
            Ok(Dispatch {
                pipeline: recorded.pipeline.pipeline,
                bind_group,
                groups: recorded.groups,
            })
        });
        Ok(Program { dispatches: dispatches.collect::<Result<_>>()? })
    }
}

impl Program {
    /// Encodes and submits every dispatch in order.
    pub(crate) fn submit(&self, backend: &WgpuBackend) -> Result<()> {
        let device = &backend.device;
        device.scoped("submit", || {
            let mut encoder = device.device.create_command_encoder(&Default::default());
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                for dispatch in &self.dispatches {
                    let [x, y, z] = dispatch.groups;
                    pass.set_pipeline(&dispatch.pipeline);
                    pass.set_bind_group(0, &dispatch.bind_group, &[]);
                    pass.dispatch_workgroups(x, y, z);
                }
            }
            device.queue.submit([encoder.finish()]);
        })
    }
}
