//! Redlock: three masters, a few acquisitions, messages that are late, lost or overtaken, leases that end at any time.

mod exclusion;
mod tokens;

use super::{breaks, holds};
