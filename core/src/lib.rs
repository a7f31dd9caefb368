//! forge-core: the device-free heart of forge. File formats, tokenizers, chat templates, the hybrid
//! graph over the [`Backend`] and [`Ops`] traits, the CPU reference, and the engine.

pub mod backend;
pub mod chat;
pub mod check;
pub mod config;
pub mod convert;
pub mod engine;
pub mod error;
pub mod eval;
pub mod ids;
pub mod inspect;
pub mod kv;
pub mod model;
pub mod ops;
pub mod prefix;
pub mod profile;
pub mod reference;
pub mod tensor;
pub mod tokenizer;
pub mod weights;

pub use backend::{Backend, DeviceInfo, Residence, Weight};
pub use config::ModelConfig;
pub use error::{Error, Result};
pub use ids::{BlockId, Position, SequenceId, SlotId, TokenId};
pub use ops::Ops;
pub use tensor::{DType, Heads, Shape, Tensor};
