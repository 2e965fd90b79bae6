//! Decisions worth a proof: the very functions the library uses, and everything that can happen to them. Each model has broken twins
//! that must fail, or it proves nothing.
#![forbid(unsafe_code)]

mod redlock;
