//! Raw limits.
