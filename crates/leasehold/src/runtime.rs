//! What every layer runs on: the background thread, futures that run to completion, and the clock.

pub(crate) mod background;
pub(crate) mod clock;
