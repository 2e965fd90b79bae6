//! `SET lock value NX EX seconds` with a value nobody else has, the work, and a script that deletes the key if the value is its own.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Reply;

use super::bare::{COMPARE_AND_DELETE, Server, poll, value};
use super::{Specimen, Terms};

pub(super) struct CompareDelete {
    server: Server,
    key: String,
    value: String,
    seconds: String,
}

impl CompareDelete {
    pub(super) fn new(terms: &Terms) -> Self {
        let seconds = terms.lease().as_secs().to_string();
        Self { server: Server::new(&terms.place), key: terms.name.clone(), value: value(), seconds }
    }

    fn try_once(&mut self) -> Result<bool> {
        Ok(self.server.ask(&["SET", &self.key, &self.value, "NX", "EX", &self.seconds])? == Reply::from("OK"))
    }
}

impl Specimen for CompareDelete {
    fn begin(&mut self) -> Result<()> {
        self.try_once().map(drop)
    }

    fn acquire(&mut self, patience: Duration) -> Result<Option<u64>> {
        poll(patience, || self.try_once())
    }

    fn holds(&mut self) -> bool {
        true
    }

    fn release(&mut self) -> Result<()> {
        self.server.script_is_one(COMPARE_AND_DELETE, &self.key, &[&self.value]).map(drop)
    }
}
