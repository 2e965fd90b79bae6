//! Counts the masters that have executed a request.

use super::voting::quorum;
use leasehold_core::{Error, Result};

/// Counts successes and failures until a quorum of masters has succeeded, or none can.
#[derive(Debug)]
pub(super) struct QuorumCount {
    masters: usize,
    succeeded: usize,
    /// Failures that a retry cannot fix.
    refused: usize,
    errors: Vec<MissingVote>,
}

/// Why the vote of a master is missing.
#[derive(Debug)]
pub(super) struct MissingVote {
    /// `None` if the text names the masters.
    url: Option<String>,
    text: String,
}

impl MissingVote {
    pub(super) fn of(url: &str, error: &Error) -> Self {
        Self {
            url: Some(url.to_owned()),
            text: error.to_string(),
        }
    }

    pub(super) fn because(text: impl Into<String>) -> Self {
        Self {
            url: None,
            text: text.into(),
        }
    }
}

impl QuorumCount {
    pub(super) fn of(masters: usize) -> Self {
        Self {
            masters,
            succeeded: 0,
            refused: 0,
            errors: Vec::new(),
        }
    }

    pub(super) fn succeed(&mut self) {
        self.succeeded += 1;
    }

    /// Records a failure.
    ///
    /// # Errors
    /// The failure itself, if so many masters refuse that too few remain for a quorum.
    pub(super) fn fail(&mut self, url: &str, error: Error) -> Result<()> {
        self.refused += usize::from(!error.is_unavailable());
        if no_quorum_without(self.refused, self.masters) {
            return Err(error);
        }
        self.note_failure(url, &error);
        Ok(())
    }

    /// Records a failure of any kind.
    pub(super) fn note_failure(&mut self, url: &str, error: &Error) {
        self.errors.push(MissingVote::of(url, error));
    }

    /// Starts again with other successes, and keeps the errors.
    pub(super) fn restart(&mut self, succeeded: usize) {
        self.succeeded = succeeded;
    }

    pub(super) fn is_reached(&self) -> bool {
        self.succeeded >= quorum(self.masters)
    }

    /// Whether the masters that have not failed are too few for a quorum.
    pub(super) fn is_impossible(&self) -> bool {
        no_quorum_without(self.errors.len(), self.masters)
    }

    /// Returns the error that the masters are too few.
    pub(super) fn error(&self) -> Error {
        too_few(self.masters, self.succeeded, &self.errors)
    }
}

/// Whether too few masters for a quorum remain if this number of them is missing.
pub(super) fn no_quorum_without(missing: usize, masters: usize) -> bool {
    missing > masters - quorum(masters)
}

/// Returns the error that only `succeeded` of the masters have replied.
pub(super) fn too_few(masters: usize, succeeded: usize, errors: &[MissingVote]) -> Error {
    let reasons = reasons(errors);
    if masters == 1 {
        return Error::unavailable(format!("the server does not reply{reasons}"));
    }

    let quorum = quorum(masters);
    Error::unavailable(format!(
        "only {succeeded} of {masters} masters vote, and a majority is {quorum}{reasons}"
    ))
    .help("start the other masters, restore the network to them, or wait until their votes count")
}

/// Returns the failures in parentheses. A failure that several masters have in common is named
/// once, after their URLs.
fn reasons(errors: &[MissingVote]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for error in errors {
        match groups.iter_mut().find(|(text, _)| *text == error.text) {
            Some((_, urls)) => urls.extend(error.url.as_deref()),
            None => groups.push((&error.text, Vec::from_iter(error.url.as_deref()))),
        }
    }
    if groups.is_empty() {
        return String::new();
    }

    let groups: Vec<String> = groups
        .iter()
        .map(|(text, urls)| match urls.as_slice() {
            [] => (*text).to_owned(),
            urls => format!("{}: {text}", urls.join(", ")),
        })
        .collect();
    format!(" ({})", groups.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_of_several_masters_is_named_once() {
        let down = || Error::unavailable("the server cannot be reached").help("start it");
        let mut count = QuorumCount::of(3);
        count.note_failure("redis://a", &down());
        count.note_failure("redis://b", &Error::unavailable("the connection broke"));
        count.note_failure("redis://c", &down());

        let text = count.error().to_string();
        let causes = "(redis://a, redis://c: the server cannot be reached; start it; \
                      redis://b: the connection broke)";
        assert!(text.contains(causes), "{text}");
    }
}
