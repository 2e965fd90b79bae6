//! Libraries in other languages that benchmarks compare with, and that tests share locks with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::needs::run;

/// Installs what the files of peers ask for in their first lines, and what is not there yet: `# needs: PACKAGE==VERSION …` in
/// Python, `// needs: PACKAGE@VERSION …` in JavaScript and Go.
pub(crate) fn fetch() -> Result<()> {
    fetch_for("lab/benches/redis/peers", in_python)?;
    fetch_for_tests()
}

/// Those that only benchmarks need wait until one is run.
pub(crate) fn fetch_for_tests() -> Result<()> {
    fetch_for("lab/tests/interop/peers", in_python)?;
    fetch_for("lab/tests/interop/clients", str::to_owned)
}

fn in_python(_file: &str) -> String {
    "python".to_owned()
}

/// What the files in a folder need goes to `target/peers/`, for each into the folder that `place` makes of its name: two that need
/// different versions of one package need a folder each.
fn fetch_for(files: &str, place: impl Fn(&str) -> String) -> Result<()> {
    for entry in fs::read_dir(workspace().join(files))? {
        let file = entry?.path();
        let stem = file.file_stem().and_then(|stem| stem.to_str()).context("all names here are text")?;
        let folder = workspace().join("target/peers").join(place(stem));
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("py") => once(&folder, &needs_of(&file, "# needs: ")?, pip)?,
            Some("js") => once(&folder, &needs_of(&file, "// needs: ")?, npm)?,
            Some("go") => go(&folder, &needs_of(&file, "// needs: ")?, &file)?,
            _ => {}
        }
    }
    Ok(())
}

fn needs_of(file: &Path, mark: &str) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let needs = text.lines().next().and_then(|line| line.strip_prefix(mark));
    Ok(needs.with_context(|| format!("{} does not say what it needs", file.display()))?.to_owned())
}

/// A file in the folder remembers what is there.
fn once(folder: &Path, packages: &str, install: impl Fn(&str, &[&str]) -> Result<()>) -> Result<()> {
    let done = folder.join(format!(".{packages}"));
    if done.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    install(folder.to_str().context("the workspace's path is not text")?, &packages.split(' ').collect::<Vec<_>>())?;
    Ok(fs::write(done, "")?)
}

fn npm(folder: &str, packages: &[&str]) -> Result<()> {
    let terms = ["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix", folder];
    run("npm", &[&terms[..], packages].concat())
}

/// The program is built beside its modules, and anew if it has changed.
fn go(folder: &Path, modules: &str, file: &Path) -> Result<()> {
    let program = fs::read_to_string(file)?;
    let main = folder.join("main.go");
    if folder.join("client").exists() && fs::read_to_string(&main).is_ok_and(|built| built == program) {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("go.mod"), "module client\n\ngo 1.19\n")?;
    fs::write(main, program)?;
    let folder = folder.to_str().context("the workspace's path is not text")?;
    let modules: Vec<&str> = modules.split(' ').collect();
    // Of the modules these need, and of Go itself, the versions they name.
    run("env", &[&["-C", folder, "GOTOOLCHAIN=local", "go", "get"], &modules[..]].concat())?;
    run("env", &["-C", folder, "GOTOOLCHAIN=local", "go", "build", "-mod=mod", "-o", "client", "."])
}

fn pip(folder: &str, packages: &[&str]) -> Result<()> {
    let terms = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
        "--upgrade",
        "--target",
        folder,
    ];
    run("python3", &[&terms[..], packages].concat())
}

fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
