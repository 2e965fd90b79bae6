//! `cargo xtask dist`: the files of a release, in target/dist.

mod debian;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::repository;
use crate::step::Step;

const PACKAGE: &str = "leasehold-cli";
const PROGRAM: &str = "leasehold";

/// The longest binary that may be released. Every machine that runs a job downloads it.
const BYTES_MAX: u64 = 14_000_000;

/// What the Dockerfile must contain.
const IMAGE: [&str; 3] = [
    "FROM scratch",
    "USER 65534:65534",
    r#"ENTRYPOINT ["/usr/bin/leasehold"]"#,
];

/// The shells, and the names of files in which they look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "leasehold.bash"),
    ("zsh", "_leasehold"),
    ("fish", "leasehold.fish"),
];

/// The folder of a release, and what its files have in common.
struct Dist {
    folder: PathBuf,
    version: String,
}

/// Builds the static binary and everything that is published with it.
pub(crate) fn dist() -> Result<()> {
    let root = repository::root();
    check_image(&root)?;

    let built = build_static()?;
    let dist = Dist::create(&root.join("target/dist"), &built)?;
    dist.write_man_pages()?;
    dist.write_completions()?;
    dist.copy(&root.join("packaging/Dockerfile"), "Dockerfile")?;
    debian::build(&dist)?;
    dist.write_checksums()?;

    println!("xtask: the release is in {}", dist.folder.display());
    Ok(())
}

/// Fails if the image would have a base, run as root, or need a shell.
fn check_image(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join("packaging/Dockerfile"))?;

    for line in IMAGE {
        let is_present = text.lines().any(|present| present == line);
        ensure!(is_present, "packaging/Dockerfile has no line: {line}");
    }
    Ok(())
}

/// Builds the command without shared libraries, and returns the binary's path.
fn build_static() -> Result<PathBuf> {
    let target = host_target()?;

    // Without --target, the flags would apply to procedural macros, which cannot be static.
    Step::cargo("static binary", "build --profile dist --locked")
        .args(["--package", PACKAGE, "--target", &target])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .run_printed()?;

    let metadata = repository::metadata()?;
    let folder = metadata["target_directory"]
        .as_str()
        .context("metadata has no target_directory")?;
    Ok(Path::new(folder).join(target).join("dist").join(PROGRAM))
}

/// The target for which rustc builds by default.
fn host_target() -> Result<String> {
    let version = Step::program("rustc").arg("-vV").output()?;

    let target = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(target.context("rustc -vV prints no host")?.to_owned())
}

/// A field of the package in Cargo.toml, after inheritance.
fn package_field(field: &str) -> Result<String> {
    let package = repository::package(PACKAGE)?;

    let value = package[field].as_str();
    Ok(value
        .with_context(|| format!("{PACKAGE} has no {field}"))?
        .to_owned())
}

impl Dist {
    /// Creates the folder with the binary in it. What an earlier release left there is deleted.
    fn create(folder: &Path, built: &Path) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;

        let dist = Self {
            folder: folder.to_owned(),
            version: package_field("version")?,
        };
        dist.copy(built, PROGRAM)?;
        dist.check_static()?;
        dist.check_size()?;
        Ok(dist)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        fs::copy(from, self.path(to)).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    }

    /// The released program itself.
    fn program(&self) -> Step {
        Step::program(&self.path(PROGRAM).to_string_lossy())
    }

    /// Fails if the binary needs a dynamic loader. It would not run in an empty image.
    fn check_static(&self) -> Result<()> {
        let headers = Step::program("readelf")
            .args(["--program-headers", "--wide"])
            .arg(&self.path(PROGRAM).to_string_lossy())
            .output()?;

        ensure!(!headers.contains("INTERP"), "the binary is not static");
        Ok(())
    }

    fn check_size(&self) -> Result<()> {
        let bytes = fs::metadata(self.path(PROGRAM))?.len();
        println!("xtask: the binary has {bytes} bytes");

        ensure!(
            bytes <= BYTES_MAX,
            "the binary has more than {BYTES_MAX} bytes"
        );
        Ok(())
    }

    fn write_man_pages(&self) -> Result<()> {
        let folder = self.path("man");

        self.program()
            .args(["man", "--all", &folder.to_string_lossy()])
            .run()
    }

    fn write_completions(&self) -> Result<()> {
        fs::create_dir(self.path("completions"))?;

        for (shell, file) in COMPLETIONS {
            let script = self.program().args(["completions", shell]).output()?;
            fs::write(self.path("completions").join(file), script)?;
        }
        Ok(())
    }

    /// Writes SHA256SUMS, as `sha256sum --check` reads it.
    fn write_checksums(&self) -> Result<()> {
        let sums = Step::program("sh")
            .folder(&self.folder)
            .args([
                "-c",
                "find . -type f ! -name SHA256SUMS | sort | xargs sha256sum",
            ])
            .output()?;

        fs::write(self.path("SHA256SUMS"), sums)?;
        Ok(())
    }
}
