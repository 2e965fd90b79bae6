//! Locks on five independent masters, of which some fail or forget.

mod majority;
mod quarantine;
