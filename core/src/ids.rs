//! Newtypes for ids and positions, so that an index of one kind cannot stand in for another.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
        impl $name {
            /// The id as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A row of the vocabulary.
    TokenId(u32)
);
id!(
    /// A 0-based position in a sequence.
    Position(u32)
);
id!(
    /// A KV block of [`crate::kv::BLOCK_TOKENS`] tokens in the pool.
    BlockId(u32)
);
id!(
    /// A slot for the recurrent and convolution state of one sequence.
    SlotId(u32)
);
id!(
    /// A request inside the engine.
    SequenceId(u64)
);
