//! A memory store whose methods a test replaces.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::Extensions;
use crate::stores::Memory;
use crate::{Claim, Entered, Guarantees, LockState, Name, OnContention, Result, Standing, Store};

/// The steps of a store; each forwards to the memory store unless a test replaces it.
#[async_trait]
pub(super) trait Intercept: Debug + Send + Sync + 'static {
    fn inner(&self) -> &Memory;

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.inner().enter(claim, on_contention).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.inner().changed(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.inner().renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.inner().leave(claim).await
    }
}

/// The store of an [`Intercept`].
#[derive(Debug)]
pub(super) struct Intercepted<I>(pub(super) I);

#[async_trait]
impl<I: Intercept> Store for Intercepted<I> {
    fn guarantees(&self) -> Guarantees {
        self.0.inner().guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.0.enter(claim, on_contention).await
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

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.0.inner().inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.0.inner().list(prefix, count_max).await
    }

    fn extensions(&self) -> Extensions<'_> {
        self.0.inner().extensions()
    }
}
