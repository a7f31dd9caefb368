//! Device tensors, their shapes, and every shape check.

use crate::backend::Backend;
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;

/// Element type of a [`Tensor`]. Storage types of weights are [`crate::weights::quant::StorageType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float: all activations, norm weights, recurrent state.
    F32,
    /// 32-bit signed integer: ids, positions, block tables.
    I32,
    /// Raw bytes: KV pages, whose layout is [`crate::kv::KvLayout`].
    U8,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::U8 => 1,
        }
    }
}

/// Up to four dimensions, slowest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; 4],
    rank: u8,
}

impl Shape {
    /// A shape of one to four dimensions.
    ///
    /// # Panics
    /// On rank 0 or above 4: ranks are constants of our own code, never input.
    pub fn new(dims: &[usize]) -> Self {
        assert!((1..=4).contains(&dims.len()), "rank {}", dims.len());
        let mut all = [1; 4];
        all[..dims.len()].copy_from_slice(dims);
        Self { dims: all, rank: dims.len() as u8 }
    }
    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }
    /// First dimension.
    pub fn rows(&self) -> usize {
        self.dims[0]
    }
    /// Elements in one entry of the first dimension.
    pub fn row_len(&self) -> usize {
        self.dims().iter().skip(1).product()
    }
    /// All elements.
    pub fn len(&self) -> usize {
        self.dims().iter().product()
    }
    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self::new(&dims)
    }
}

/// A typed view of device memory. Entries of the first dimension (rows) may be further apart than
/// their length (`row_stride`), so that one linear can write `q|k|v` and each op reads its columns;
/// inside a row elements are contiguous.
pub struct Tensor<B: Backend> {
    /// Shared handle of the memory.
    pub buffer: B::Buffer,
    /// Element type.
    pub dtype: DType,
    /// Shape of the view.
    pub shape: Shape,
    /// First element of the view, in elements from the start of the buffer.
    pub offset: usize,
    /// Elements between the starts of two rows.
    pub row_stride: usize,
}

impl<B: Backend> Clone for Tensor<B> {
    fn clone(&self) -> Self {
        Self {
            buffer: self.buffer.clone(),
            dtype: self.dtype,
            shape: self.shape,
            offset: self.offset,
            row_stride: self.row_stride,
        }
    }
}

impl<B: Backend> fmt::Debug for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}@{}/{}", self.dtype, self.shape, self.offset, self.row_stride)
    }
}

impl<B: Backend> Tensor<B> {
    /// A contiguous tensor over the whole of `buffer`.
    pub fn contiguous(buffer: B::Buffer, dtype: DType, shape: Shape) -> Self {
        Self { buffer, dtype, shape, offset: 0, row_stride: shape.row_len() }
    }
    /// First dimension.
    pub fn rows(&self) -> usize {
        self.shape.rows()
    }
    /// Elements in a row.
    pub fn row_len(&self) -> usize {
        self.shape.row_len()
    }
    /// True if rows follow each other without a gap.
    pub fn is_contiguous(&self) -> bool {
        self.row_stride == self.row_len() || self.rows() <= 1
    }
    /// Rows `range` of the view.
    ///
    /// # Errors
    /// [`Error::Shape`] if the range leaves the tensor.
    pub fn row_range(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.rows() {
            return Err(shape_error(
                "row_range",
                "rows",
                format!("<= {}", self.rows()),
                format!("{range:?}"),
            ));
        }
        let mut dims = [1; 4];
        let rank = self.shape.dims().len();
        dims[..rank].copy_from_slice(self.shape.dims());
        dims[0] = range.len();
        Ok(Self {
            shape: Shape::new(&dims[..rank]),
            offset: self.offset + range.start * self.row_stride,
            ..self.clone()
        })
    }
    /// The first `rows` rows.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are fewer.
    pub fn first_rows(&self, rows: usize) -> Result<Self> {
        self.row_range(0..rows)
    }
    /// Columns `range` of every row; the result has two dimensions.
    ///
    /// # Errors
    /// [`Error::Shape`] if the range leaves the row.
    pub fn columns(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.row_len() {
            return Err(shape_error(
                "columns",
                "range",
                format!("<= {}", self.row_len()),
                format!("{range:?}"),
            ));
        }
        Ok(Self {
            shape: Shape::new(&[self.rows(), range.len()]),
            offset: self.offset + range.start,
            ..self.clone()
        })
    }
    /// Fails unless dtype and shape are the expected ones.
    ///
    /// # Errors
    /// [`Error::Shape`] naming `op` and `tensor`.
    pub fn expect(
        &self,
        op: &'static str,
        tensor: &'static str,
        dtype: DType,
        dims: &[usize],
    ) -> Result<()> {
        let same_len =
            self.rows() == dims[0] && self.row_len() == dims[1..].iter().product::<usize>();
        if self.dtype == dtype && same_len {
            return Ok(());
        }
        Err(shape_error(op, tensor, format!("{dtype:?}{dims:?}"), format!("{self:?}")))
    }
}

/// [`Error::Shape`] from its parts.
pub fn shape_error(
    op: &'static str,
    tensor: &'static str,
    expected: impl fmt::Display,
    got: impl fmt::Display,
) -> Error {
    Error::Shape { op, tensor, expected: expected.to_string(), got: got.to_string() }
}

/// Heads inside the rows of a tensor: head `h` of row `r` starts at column `h * stride` and has
/// `dim` values. `stride > dim` where heads are interleaved with something else (query and gate of
/// the hybrid attention).
pub struct Heads<B: Backend> {
    /// `[rows, >= heads * stride - (stride - dim)]`, f32.
    pub tensor: Tensor<B>,
    /// Heads in a row.
    pub heads: usize,
    /// Elements between the starts of two heads.
    pub stride: usize,
    /// Values of a head.
    pub dim: usize,
}

impl<B: Backend> Clone for Heads<B> {
    fn clone(&self) -> Self {
        Self { tensor: self.tensor.clone(), ..*self }
    }
}

impl<B: Backend> Heads<B> {
    /// Heads that lie one after the other: `tensor` is `[rows, heads * dim]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the row length differs.
    pub fn packed(tensor: Tensor<B>, heads: usize, dim: usize) -> Result<Self> {
        Self::strided(tensor, heads, dim, dim)
    }
    /// Heads at a distance of `stride`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the last head would leave the row.
    pub fn strided(tensor: Tensor<B>, heads: usize, stride: usize, dim: usize) -> Result<Self> {
        let needed = (heads.max(1) - 1) * stride + dim;
        if heads == 0 || dim == 0 || stride < dim || tensor.row_len() < needed {
            return Err(shape_error(
                "heads",
                "tensor",
                format!("rows of at least {needed}"),
                format!("{tensor:?}"),
            ));
        }
        if tensor.dtype != DType::F32 {
            return Err(shape_error("heads", "tensor", "F32", format!("{tensor:?}")));
        }
        Ok(Self { tensor, heads, stride, dim })
    }
    /// Rows.
    pub fn rows(&self) -> usize {
        self.tensor.rows()
    }
}
