//! Runs models of critical decisions: the functions and scripts of a store, and all events in
//! every order.
//!
//! Each model has broken twins that must fail. Without them a passing model would prove nothing.
//! The seeded bugs in lab/mutants break the scripts.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// Runs a model to its end: all that can happen was tried.
pub(crate) fn holds<M>(model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{} states, each once: {}",
        checker.state_count(),
        checker.unique_state_count()
    );
    checker.assert_properties();
}

/// Runs a broken twin until this property is found to be broken.
pub(crate) fn breaks<M>(model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let found = HasDiscoveries::AnyOf([property].into_iter().collect());
    let checker = model
        .checker()
        .threads(2)
        .finish_when(found)
        .spawn_bfs()
        .join();
    assert!(
        checker.discovery(property).is_some(),
        "the twin is as good: {property}"
    );
}
