//! What may be used after a panic that its user has caught.
//!
//! No code of the user runs while leasehold changes its state, so that a panic of the user finds it
//! whole. The compiler cannot know that of a store, a recorder of metrics or a mutex of
//! `parking_lot`.

use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::{Error, Guard, Locks, Observer, Owner, ReentrantGuard, Watch};

impl UnwindSafe for Error {}
impl UnwindSafe for Guard {}
impl UnwindSafe for Locks {}
impl UnwindSafe for Observer {}
impl UnwindSafe for Owner {}
impl UnwindSafe for ReentrantGuard {}
impl UnwindSafe for Watch {}

impl RefUnwindSafe for Error {}
impl RefUnwindSafe for Guard {}
impl RefUnwindSafe for Locks {}
impl RefUnwindSafe for Observer {}
impl RefUnwindSafe for Owner {}
impl RefUnwindSafe for ReentrantGuard {}
impl RefUnwindSafe for Watch {}
