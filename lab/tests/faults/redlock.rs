//! Five masters that know nothing of each other, and what becomes of locks when some of them fail or forget.

mod majority;
mod quarantine;
