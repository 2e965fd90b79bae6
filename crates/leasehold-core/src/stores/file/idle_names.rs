//! The names that this process left free, and whose files it will remove.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use crate::Name;

/// The names that this process left free.
#[derive(Debug, Default)]
pub(super) struct IdleNames {
    noted: Mutex<NotedNames>,
    /// Held while the files of names that are due are removed. So a closing store waits for the
    /// removal that is under way.
    removal: Mutex<()>,
}

/// The noted names, each with the round in which it was noted last.
#[derive(Debug, Default)]
struct NotedNames {
    rounds: HashMap<Name, u64>,
    round: u64,
    is_task_running: bool,
    /// Set by tests that change the files of free names.
    #[cfg(test)]
    keeps_files: bool,
}

impl IdleNames {
    #[cfg(test)]
    pub(super) fn keep_files(&self) {
        self.noted.lock().keeps_files = true;
    }

    /// Notes a name. Returns whether the caller must start the task that runs the rounds.
    pub(super) fn note(&self, name: &Name) -> bool {
        let mut noted = self.noted.lock();
        #[cfg(test)]
        if noted.keeps_files {
            return false;
        }
        let round = noted.round;
        match noted.rounds.get_mut(name) {
            Some(last) => *last = round,
            None => {
                noted.rounds.insert(name.clone(), round);
            }
        }
        !std::mem::replace(&mut noted.is_task_running, true)
    }

    /// Begins a round. Returns false if no name is noted. Then the task ends.
    pub(super) fn begin_round(&self) -> bool {
        let mut noted = self.noted.lock();
        noted.round += 1;
        noted.is_task_running = !noted.rounds.is_empty();
        noted.is_task_running
    }

    /// Takes the names that were noted at least a whole round ago.
    pub(super) fn take_due(&self) -> Vec<Name> {
        let mut noted = self.noted.lock();
        let round = noted.round;
        let mut due = Vec::new();
        noted.rounds.retain(|name, last| {
            let is_due = *last + 2 <= round;
            if is_due {
                due.push(name.clone());
            }
            !is_due
        });
        due
    }

    /// Waits for the removal that another thread has begun, and excludes others.
    pub(super) fn lock_removal(&self) -> MutexGuard<'_, ()> {
        self.removal.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_removed_in_the_second_round_after_it_was_noted() {
        let idle = IdleNames::default();
        let name = Name::parse("a").expect("a good name");
        assert!(idle.note(&name), "the task must be started");
        assert!(!idle.note(&name), "the task runs");

        assert!(idle.begin_round());
        assert_eq!(idle.take_due(), []);
        assert!(idle.begin_round());
        assert_eq!(idle.take_due(), [name]);
        assert!(!idle.begin_round());
    }
}
