//! A password, which may be in a file.

use std::fmt::Display;

use super::{absolute_path, io_reason};
use crate::runtime::background;
use crate::{Error, Result};

/// A password, and its file if it is not in the URL.
#[derive(Clone)]
pub struct Password {
    text: String,
    file: Option<String>,
}

impl Password {
    pub fn new(text: String) -> Self {
        Self { text, file: None }
    }

    /// Reads the password in a file.
    pub fn in_file(path: &str) -> Result<Self> {
        Ok(Self {
            text: read(path)?,
            file: Some(absolute_path(path)),
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the password that its file has now.
    ///
    /// If the file cannot be read, the password stays as it was when the store was opened: a new
    /// file may be about to replace the old one.
    pub async fn current(&self, server: &(impl Display + Sync)) -> Self {
        let Some(path) = self.file.clone() else {
            return self.clone();
        };

        let reading = background::handle().spawn_blocking(move || Self::in_file(&path));
        let read = reading.await.map_err(|error| error.to_string());
        match read.and_then(|read| read.map_err(|error| error.to_string())) {
            Ok(password) => password,
            Err(error) => {
                tracing::warn!(
                    %server,
                    %error,
                    "the password file cannot be read; connecting with the earlier password"
                );
                self.clone()
            }
        }
    }
}

/// Reads a file without the line break at its end.
fn read(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let reason = io_reason(&error);
        Error::invalid(format!(
            "the password file {path:?} cannot be read: {reason}"
        ))
        .caused_by(error)
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
