//! The patches and their headers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha1_smol::Sha1;

/// A seeded bug, and the command that must find it.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: String,
    /// One sentence.
    pub(super) breaks: String,
    /// The guarantees and invariants of docs/guarantees.toml that it breaks.
    pub(super) guarantees: Vec<String>,
    /// The arguments of cargo.
    pub(super) check: String,
    pub(super) path: PathBuf,
    /// The files that the patch changes.
    pub(super) files: Vec<String>,
}

impl Mutant {
    /// All mutants, by name.
    pub(super) fn all(root: &Path) -> Result<Vec<Self>> {
        let folder = root.join("lab/mutants");
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;

        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "patch")
        });
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Result<Self> {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let header = || text.lines().take_while(|line| !line.starts_with("--- "));
        let field = |name: &str| {
            let value = header()
                .find_map(|line| line.strip_prefix(name))
                .map(str::to_owned);
            value.with_context(|| format!("{} has no line `{name}`", path.display()))
        };

        let breaks = field("breaks: ")?;
        let guarantees = field("guarantees: ")?
            .split(", ")
            .map(str::to_owned)
            .collect();
        let check = field("check: cargo ")?;
        ensure!(
            check.starts_with("test "),
            "{}: a check is a cargo test",
            path.display()
        );

        let files: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("+++ b/"))
            .map(str::to_owned)
            .collect();
        ensure!(!files.is_empty(), "{} changes no file", path.display());

        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self {
            name,
            breaks,
            guarantees,
            check,
            path,
            files,
        })
    }

    /// A digest of the patch and of the files that it changes, as they are in a tree.
    pub(super) fn digest(&self, tree: &Path) -> Result<String> {
        let mut digest = Sha1::new();
        let patch = fs::read(&self.path)?;
        digest.update(Sha1::from(patch).digest().bytes().as_slice());

        for file in &self.files {
            // A file that is gone counts as an empty one: the patch does not apply to either.
            let content = fs::read(tree.join(file)).unwrap_or_default();
            digest.update(file.as_bytes());
            digest.update(Sha1::from(content).digest().bytes().as_slice());
        }
        Ok(digest.digest().to_string())
    }

    /// The packages that the patch changes.
    pub(super) fn packages(&self) -> BTreeSet<&'static str> {
        let packages = [
            ("crates/leasehold/", "leasehold"),
            ("crates/leasehold-cli/", "leasehold-cli"),
            ("lab/servers/", "lab-servers"),
            ("lab/simulation/", "lab-simulation"),
            ("lab/", "lab"),
            ("xtask/", "xtask"),
        ];

        let package_of = |file: &String| {
            let found = packages.iter().find(|(folder, _)| file.starts_with(folder));
            found.map(|(_, package)| *package)
        };
        self.files.iter().filter_map(package_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::repository::{files, root};

    impl Mutant {
        pub(in super::super) fn sample(name: &str) -> Self {
            Self {
                name: name.to_owned(),
                breaks: "A rule is broken".to_owned(),
                guarantees: vec!["G-01".to_owned()],
                check: "test -p leasehold a".to_owned(),
                path: PathBuf::from(format!("{name}.patch")),
                files: vec!["crates/leasehold/src/lib.rs".to_owned()],
            }
        }
    }

    #[test]
    fn every_mutant_applies() -> Result<()> {
        let mutants = Mutant::all(&root())?;
        ensure!(mutants.len() >= 30, "there are only {}", mutants.len());

        for mutant in mutants {
            let mut command = Command::new("git");
            command
                .args(["apply", "--check"])
                .arg(&mutant.path)
                .current_dir(root());
            let output = command.output()?;
            let reason = String::from_utf8_lossy(&output.stderr);
            ensure!(
                output.status.success(),
                "{} does not apply: {reason}",
                mutant.name
            );
        }
        Ok(())
    }

    #[test]
    fn every_mutant_changes_a_known_package() -> Result<()> {
        for mutant in Mutant::all(&root())? {
            ensure!(
                !mutant.packages().is_empty(),
                "{} changes no package",
                mutant.name
            );
        }
        Ok(())
    }

    #[test]
    fn every_check_names_an_existing_test() -> Result<()> {
        let root = root();
        let mut sources = String::new();
        for file in files(&root)? {
            if file.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(root.join(file))?;
            }
        }

        let cells = fs::read_to_string(root.join("lab/tests/matrix/cells.txt"))?;
        for mutant in Mutant::all(&root)? {
            let filter = mutant.check.split_whitespace().last().unwrap_or_default();
            // Some suites run once for each kind of lock.
            let test = filter
                .rsplit("::")
                .find(|part| *part != "mutex")
                .unwrap_or_default();
            // A cell of the matrix is a test.
            let is_cell = cells.lines().any(|line| {
                let cell = line.split(' ').next().unwrap_or_default();
                cell.replace('/', "::").replace('-', "_") == filter
            });
            // A filter of `cargo test` names every test that contains it.
            let exists = is_cell
                || sources
                    .split("fn ")
                    .skip(1)
                    .filter_map(|text| text.split(['(', '<']).next())
                    .any(|name| name.contains(test));
            ensure!(exists, "{}: test {test} does not exist", mutant.name);
        }
        Ok(())
    }

    #[test]
    fn readme_has_one_row_for_every_mutant() -> Result<()> {
        let page = fs::read_to_string(root().join("lab/mutants/README.md"))?;
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let mutants = Mutant::all(&root())?;

        for mutant in &mutants {
            let row = format!("| `{}` | {} | `", mutant.name, mutant.breaks);
            let count = rows.iter().filter(|line| line.starts_with(&row)).count();
            ensure!(count == 1, "{count} rows begin with {row}");
        }
        ensure!(rows.len() == mutants.len(), "a row has no patch");
        Ok(())
    }

    #[test]
    fn header_and_files_are_read_from_a_patch() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.patch");
        let text = "breaks: A rule\nguarantees: G-01, S3\ncheck: cargo test -p lab a\n\n\
                    --- a/lab/src/a.rs\n+++ b/lab/src/a.rs\n@@ -1 +1 @@\n-a\n+b\n";

        fs::write(&path, text)?;
        let mutant = Mutant::read(path.clone())?;
        assert_eq!(mutant.check, "test -p lab a");
        assert_eq!(mutant.guarantees, ["G-01", "S3"]);
        assert_eq!(mutant.files, ["lab/src/a.rs"]);
        assert_eq!(mutant.packages(), BTreeSet::from(["lab"]));

        fs::write(&path, text.replace("breaks: ", ""))?;
        Mutant::read(path.clone()).expect_err("the header is incomplete");
        fs::write(&path, text.replace("cargo test", "cargo run"))?;
        Mutant::read(path).expect_err("the check is not a test");
        Ok(())
    }

    #[test]
    fn digest_changes_with_patch_and_with_changed_files_only() -> Result<()> {
        let tree = tempfile::tempdir()?;
        let mut mutant = Mutant::sample("a");
        mutant.path = tree.path().join("a.patch");
        mutant.files = vec!["a.rs".to_owned()];
        fs::write(&mutant.path, "patch")?;
        fs::write(tree.path().join("a.rs"), "one")?;
        let digest = mutant.digest(tree.path())?;

        fs::write(tree.path().join("other.rs"), "two")?;
        assert_eq!(mutant.digest(tree.path())?, digest);

        fs::write(tree.path().join("a.rs"), "two")?;
        let changed = mutant.digest(tree.path())?;
        assert_ne!(changed, digest);

        fs::write(&mutant.path, "another patch")?;
        assert_ne!(mutant.digest(tree.path())?, changed);
        Ok(())
    }
}
