//! Models of Redlock: three masters and a few acquisitions. Messages are late, lost or overtaken,
//! and leases end at any time.

mod exclusion;
mod tokens;

use super::{breaks, holds};
