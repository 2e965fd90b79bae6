//! The password file of PostgreSQL's own clients: `~/.pgpass`, or that of `PGPASSFILE`.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold_core::internal::net::Password;
use leasehold_core::{Error, Result};

/// What a line of the file names: host, port, database and user.
pub(super) type Place = [String; 4];

/// Returns the password of a place, which each connection reads again; `None` if no line names it.
pub(super) fn password(place: Place) -> Option<Password> {
    let path = path()?;
    find(&path, &place).ok().flatten()?;
    Some(Password::from_function(move || {
        find(&path, &place)?.ok_or_else(|| {
            Error::denied(format!(
                "{} has no line for this server any more",
                path.display()
            ))
        })
    }))
}

fn path() -> Option<PathBuf> {
    if let Some(named) = env::var_os("PGPASSFILE") {
        return Some(named.into());
    }
    Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass"))
}

/// Finds the password of a place. As PostgreSQL's clients do, it ignores a file that others may read.
fn find(path: &Path, place: &Place) -> Result<Option<String>> {
    let failed = |error| {
        Error::unavailable(format!("{} cannot be read: {error}", path.display())).caused_by(error)
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the password file is ignored: others may read it; chmod 600");
        return Ok(None);
    }
    let mut text = String::new();
    let mut file = File::open(path).map_err(failed)?.take(LENGTH_MAX);
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text.lines().find_map(|line| password_in(line, place)))
}

/// Returns the password of a line that names the place. A backslash precedes a `:` or `\` of a value,
/// and `*` is any value.
fn password_in(line: &str, place: &Place) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == ':' && fields.len() <= place.len() {
            fields.push(String::new());
            continue;
        }
        let is_escape = character == '\\';
        let meant = if is_escape {
            characters.next()
        } else {
            Some(character)
        };
        fields.last_mut()?.extend(meant);
    }
    let password = fields.pop()?;
    let is_named = fields.len() == place.len()
        && fields
            .iter()
            .zip(place)
            .all(|(field, value)| field == "*" || field == value);
    is_named.then_some(password)
}

const LENGTH_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> Place {
        [host, "5432", "orders", "app"].map(str::to_owned)
    }

    #[test]
    fn line_names_a_place_with_escapes_and_wildcards() {
        let found = |line| password_in(line, &place("db"));
        assert_eq!(
            found("db:5432:orders:app:secret"),
            Some("secret".to_owned())
        );
        assert_eq!(found("*:*:*:app:a:b\\:c\\\\"), Some("a:b:c\\".to_owned()));
        assert_eq!(found("db:5432:orders:other:secret"), None);
        assert_eq!(found("db:5433:orders:app:secret"), None);
        assert_eq!(found("#db:5432:orders:app:secret"), None);
        assert_eq!(found("db:5432:orders:secret"), None);

        let line = "fe80\\:\\:1:5432:orders:app:secret";
        assert_eq!(
            password_in(line, &place("fe80::1")),
            Some("secret".to_owned())
        );
    }
}
