//! The user and the password of a client. A password may be in a file, or come from a function of
//! the program.

use std::error::Error as StdError;
use std::fmt::Display;
use std::sync::Arc;
use std::{fs, io};

use super::host::io_reason;
use super::tls_settings::absolute_path;
use crate::runtime::background::BlockingSteps;
use crate::stores::url::StoreUrl;
use crate::{Error, Result};

/// The user and the password of a URL, without the empty ones.
#[derive(Clone)]
pub struct Login {
    pub user: Option<String>,
    pub password: Option<Password>,
}

impl Login {
    /// Returns the login of a URL. A file of `password-file=` replaces the password of the URL.
    pub fn of_url(url: &StoreUrl) -> Result<Self> {
        let credentials = url.credentials.as_ref();
        let user = credentials.map(|stated| stated.user.clone());
        let password = credentials.and_then(|stated| stated.password.clone());
        let is_given = |text: &String| !text.is_empty();
        Ok(Self {
            user: user.filter(is_given),
            password: match url.settings.get("password-file") {
                Some(path) => Some(Password::in_file(path)?),
                None => password.filter(is_given).map(Password::new),
            },
        })
    }
}

/// A password, and where a new connection finds the present one.
#[derive(Clone)]
pub struct Password {
    /// Empty if a function returns it.
    text: String,
    source: Source,
    steps: BlockingSteps,
}

#[derive(Clone)]
enum Source {
    Url,
    File(String),
    Function(Arc<dyn Fn() -> Result<String> + Send + Sync>),
}

impl Password {
    pub fn new(text: String) -> Self {
        Self {
            text,
            source: Source::Url,
            steps: BlockingSteps::default(),
        }
    }

    /// Reads the password in a file.
    pub fn in_file(path: &str) -> Result<Self> {
        Ok(Self {
            text: read(path)?,
            source: Source::File(absolute_path(path)),
            steps: BlockingSteps::default(),
        })
    }

    /// Calls a function for the password of each connection.
    pub fn from_function<E>(
        function: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let function = move || {
            function().map_err(|error| {
                let error: Box<dyn StdError + Send + Sync> = error.into();
                Error::unavailable(format!("the function for the password failed: {error}"))
            })
        };
        Self {
            text: String::new(),
            source: Source::Function(Arc::new(function)),
            steps: BlockingSteps::default(),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the password that its file or its function has now.
    ///
    /// If the file cannot be read, the password stays as it was when the store was opened: a new
    /// file may be about to replace the old one.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if the function fails: an earlier password may have
    /// expired.
    pub async fn current(&self, server: &(impl Display + Sync)) -> Result<Self> {
        let path = match &self.source {
            Source::Url => return Ok(self.clone()),
            Source::File(path) => path.clone(),
            Source::Function(function) => {
                let function = Arc::clone(function);
                let called = self
                    .steps
                    .run("the function for the password", move || function());
                let text = called.await??;
                return Ok(Self::new(without_line_break(&text)));
            }
        };

        let reading = move || Self::in_file(&path);
        let read = self.steps.run("the password file", reading);
        match read.await.flatten() {
            Ok(password) => Ok(password),
            Err(error) => {
                tracing::warn!(
                    %server,
                    %error,
                    "the password file cannot be read; connecting with the earlier password"
                );
                Ok(self.clone())
            }
        }
    }
}

/// Reads a file without the line break at its end.
///
/// Each connection reads it again. A pipe would have nothing left then, or would block.
fn read(path: &str) -> Result<String> {
    let failed = |error: io::Error| {
        let reason = io_reason(&error);
        Error::invalid(format!(
            "the password file {path:?} cannot be read: {reason}"
        ))
        .caused_by(error)
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        let message = format!("the password file {path:?} is not a regular file");
        return Err(Error::invalid(message).help("write the password into a file"));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Ok(without_line_break(&text))
}

fn without_line_break(text: &str) -> String {
    text.trim_end_matches(['\r', '\n']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::poll;
    use parking_lot::Mutex;

    use super::*;
    use crate::runtime::background::STEPS_OF_ONE;

    /// Each attempt to connect calls the function, and is given up.
    #[tokio::test]
    async fn function_that_hangs_takes_a_few_threads_only() {
        let (calling, calls) = channel();
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let password = Password::from_function(move || {
            calling.send(()).expect("the test counts");
            released.lock().recv().map(|()| String::new())
        });

        for _ in 0..3 * STEPS_OF_ONE {
            let mut attempt = Box::pin(password.current(&"the server"));
            assert!(poll!(&mut attempt).is_pending());
        }
        let error = password.current(&"the server").await.map(drop);
        let error = error.expect_err("it hangs");
        let named = "the function for the password does not return: 16 calls are under way";
        assert!(error.to_string().contains(named), "{error}");
        // The senders of the calls end with the last of them.
        drop((release, password));
        assert_eq!(calls.into_iter().count(), STEPS_OF_ONE);
    }

    /// Opening a FIFO would block until somebody writes into it.
    #[test]
    fn password_in_a_pipe_is_refused() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("made");
        let path = path.to_str().expect("it is UTF-8");
        let error = Password::in_file(path).map(drop).expect_err("refused");
        let is_named = error.to_string().contains("is not a regular file");
        assert!(error.is_invalid() && is_named, "{error}");
    }
}
