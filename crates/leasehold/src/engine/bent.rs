//! A store in memory that a test bends where it wants to.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

use crate::stores::Memory;
use crate::{Claim, Entered, Line, Name, Patience, Promises, Result, Standing, Store};

/// What becomes of the steps of a store: nothing else than usual, unless said.
#[async_trait]
pub(super) trait Bend: Debug + Send + Sync + 'static {
    fn straight(&self) -> &Memory;

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        self.straight().enter(claim, patience).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.straight().changed(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.straight().renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.straight().leave(claim).await
    }
}

#[derive(Debug)]
pub(super) struct Bent<B>(pub(super) B);

#[async_trait]
impl<B: Bend> Store for Bent<B> {
    fn promises(&self) -> Promises {
        self.0.straight().promises()
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        self.0.enter(claim, patience).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.0.changed(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.0.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.0.leave(claim).await
    }

    fn anchors(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        self.0.straight().anchors(claim)
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        self.0.straight().look(name).await
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.0.straight().names(prefix, count_max).await
    }
}
