//! The CPU backend in f32: plain loops that define every op, fast enough to be used where there is
//! no GPU. A program is a list of closures; `submit` calls them in order.

mod add;
mod argmax;
mod causal_conv1d;
mod copy_pages;
mod copy_state;
mod embed;
mod gated_delta_rule;
pub mod kv_codec;
mod linear;
mod matmul;
mod moe;
mod norm;
mod paged_attention;
mod pass;
mod rope;
mod silu;
mod store_kv;
mod view;

pub use pass::CpuPass;

use crate::backend::{Backend, DeviceInfo, Residence, Weight};
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Tensor, shape_error};
use crate::weights::host::HostTensor;
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// Host memory in 4-byte words behind a lock that is never contended: it turns a buffer used both
/// as input and output into an error.
#[derive(Clone)]
pub struct CpuBuffer(Arc<RwLock<Vec<u32>>>);

/// The CPU reference backend.
pub struct Cpu {
    info: DeviceInfo,
}

/// A closed recording.
pub struct CpuProgram {
    steps: Vec<Step>,
    /// Steps before each mark.
    marks: Vec<usize>,
}

/// One recorded op.
pub(crate) type Step = Box<dyn Fn() -> Result<()> + Send + Sync>;

impl Cpu {
    /// A backend that runs on all cores of rayon's global pool.
    pub fn new() -> Self {
        let info = DeviceInfo {
            backend: "cpu",
            name: format!("{} threads", rayon::current_num_threads()),
            units: rayon::current_num_threads(),
            max_rows: 256,
            ..DeviceInfo::default()
        };
        Self { info }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Cpu {
    type Buffer = CpuBuffer;
    type Storage = Arc<Vec<HostTensor>>;
    type Pass<'b> = CpuPass;
    type Program = CpuProgram;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn zeros(&self, shape: Shape, dtype: DType) -> Result<Tensor<Self>> {
        let words = (shape.len() * dtype.bytes()).div_ceil(4);
        let mut data = Vec::new();
        data.try_reserve_exact(words).map_err(|_| Error::OutOfMemory {
            what: format!("tensor {shape}"),
            needed: 4 * words as u64,
            available: 0,
            advice: "lower --ctx or --slots".into(),
        })?;
        data.resize(words, 0);
        Ok(Tensor::contiguous(CpuBuffer(Arc::new(RwLock::new(data))), dtype, shape))
    }

    fn upload(&self, parts: &[HostTensor], _residence: Residence) -> Result<Weight<Self>> {
        let first = parts.first().ok_or_else(|| Error::invalid("upload", "no tensors"))?;
        let mut weight = Weight {
            storage: Arc::new(parts.to_vec()),
            experts: 0,
            rows: 0,
            columns: first.columns(),
            bytes: 0,
        };
        for part in parts {
            let (experts, rows) = match *part.shape.as_slice() {
                [rows, _] => (1, rows),
                [experts, rows, _] => (experts, rows),
                _ => (0, 0),
            };
            let fits = part.columns() == weight.columns
                && experts > 0
                && (weight.experts == 0 || weight.experts == experts);
            if !fits {
                return Err(Error::invalid(
                    part.name.clone(),
                    format!("shape {:?} does not stack on {:?}", part.shape, first.shape),
                ));
            }
            weight.experts = experts;
            weight.rows += rows;
            weight.bytes += part.data.len() as u64;
        }
        Ok(weight)
    }

    fn write(&self, target: &Tensor<Self>, source: &[u8]) -> Result<()> {
        check_copy("write", target, source.len())?;
        view::write("write", target)?.bytes()[..source.len()].copy_from_slice(source);
        Ok(())
    }

    fn record(
        &self,
        body: impl FnOnce(&mut Self::Pass<'_>) -> Result<()>,
    ) -> Result<Self::Program> {
        let mut pass = CpuPass::default();
        body(&mut pass)?;
        Ok(CpuProgram { steps: pass.steps, marks: pass.marks })
    }

    fn submit(&self, program: &Self::Program) -> Result<()> {
        program.steps.iter().try_for_each(|step| step())
    }

    fn op_times(&self, program: &Self::Program) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for range in program.marks.windows(2) {
            let start = Instant::now();
            program.steps[range[0]..range[1]].iter().try_for_each(|step| step())?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(times)
    }

    fn read(&self, source: &Tensor<Self>, target: &mut [u8]) -> Result<()> {
        check_copy("read", source, target.len())?;
        target.copy_from_slice(&view::read("read", source)?.bytes()[..target.len()]);
        Ok(())
    }
}

fn check_copy(op: &'static str, tensor: &Tensor<Cpu>, bytes: usize) -> Result<()> {
    let capacity = tensor.shape.len() * tensor.dtype.bytes();
    if bytes > capacity || !tensor.is_contiguous() {
        return Err(shape_error(
            op,
            "tensor",
            format!("{bytes} contiguous bytes"),
            format!("{tensor:?}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
