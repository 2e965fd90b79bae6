//! Who is in a line, for people.

use std::sync::OnceLock;
use std::time::SystemTime;

use crate::{Error, Result};

/// Who holds or waits, for people to read in `show` and `ls`; no decision rests on it.
///
/// ```
/// let note = leasehold::ClaimantInfo::here("nightly report")?;
/// assert_eq!(note.pid, std::process::id());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimantInfo {
    /// The machine's host name, cut to [`ClaimantInfo::HOST_MAX`] bytes.
    pub host: String,
    /// The process, as its own machine or container numbers it.
    pub pid: u32,
    /// The file name of the program, cut to [`ClaimantInfo::PROGRAM_MAX`] bytes.
    pub program: String,
    /// What the user said of this claim; empty if nothing.
    pub label: String,
    /// Since when the claim has had its present standing, by the wall clock of the process that made it so.
    pub since: SystemTime,
}

impl ClaimantInfo {
    /// The longest host name kept, in bytes.
    pub const HOST_MAX: usize = 64;
    /// The longest program name kept, in bytes.
    pub const PROGRAM_MAX: usize = 32;
    /// The longest label allowed, in bytes.
    pub const LABEL_MAX: usize = 64;

    /// The note of this process, from now.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the label is longer than [`LABEL_MAX`](Self::LABEL_MAX) bytes.
    pub fn here(label: &str) -> Result<Self> {
        if label.len() > Self::LABEL_MAX {
            let max = Self::LABEL_MAX;
            return Err(Error::invalid(format!(
                "a label has at most {max} bytes, this one {}",
                label.len()
            )));
        }
        let (host, program) = this_process();
        Ok(Self {
            host: host.clone(),
            pid: std::process::id(),
            program: program.clone(),
            label: label.to_owned(),
            since: SystemTime::now(),
        })
    }
}

fn this_process() -> &'static (String, String) {
    static THIS_PROCESS: OnceLock<(String, String)> = OnceLock::new();
    THIS_PROCESS.get_or_init(|| {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let program = std::env::current_exe().ok();
        let program = program
            .as_deref()
            .and_then(|path| path.file_name())
            .unwrap_or_default()
            .to_string_lossy();
        (
            truncate(&host, ClaimantInfo::HOST_MAX),
            truncate(&program, ClaimantInfo::PROGRAM_MAX),
        )
    })
}

/// At most `max` bytes of `text`, ending between characters.
fn truncate(text: &str, max: usize) -> String {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_keeps_whole_characters() {
        assert_eq!(truncate("abc", 8), "abc");
        assert_eq!(truncate("ääää", 3), "ä");
        assert!(
            ClaimantInfo::here(&"x".repeat(65))
                .unwrap_err()
                .is_invalid()
        );
    }
}
