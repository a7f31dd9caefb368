//! Opens any checkpoint under canonical names.
