//! What the programs in `src/bin` share. Copy what you need.

pub mod failure;
pub mod lock_layer;
pub mod settings;
pub mod signals;
