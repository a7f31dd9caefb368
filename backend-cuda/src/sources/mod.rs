//! The kernel files, embedded. Each list belongs to the ops that launch its kernels.

mod base;
mod linear;
mod mix;

/// Texts of the headers that kernels include.
pub const HEADERS: &[(&str, &str)] = &[("common.cuh", include_str!("../../../kernels/common.cuh"))];

/// A kernel file.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// File name without extension.
    pub name: &'static str,
    /// Text.
    pub text: &'static str,
    /// On the path of every token: a register spill fails the tests.
    pub hot: bool,
}

macro_rules! source {
    ($name:literal) => {
        $crate::sources::source!($name, hot = false)
    };
    ($name:literal, hot) => {
        $crate::sources::source!($name, hot = true)
    };
    ($name:literal, hot = $hot:literal) => {
        $crate::sources::Source {
            name: $name,
            text: include_str!(concat!("../../../kernels/", $name, ".cu")),
            hot: $hot,
        }
    };
}
use source;

/// Every kernel file.
pub fn all() -> Vec<Source> {
    [base::SOURCES, linear::SOURCES, mix::SOURCES].concat()
}
