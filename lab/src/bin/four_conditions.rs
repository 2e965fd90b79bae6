//! Puts every specimen through all cases, prints the table, and writes `docs/four-conditions.md`, its picture, and
//! `target/four-conditions.json`. Given names of kinds (`Redisson OursRedis`), it does so for those alone and writes nothing but
//! the last.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lab::conditions::{Ground, Row, cases, page, picture};
use lab::specimens::Kind;
use lab_servers::Redis;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn main() -> Result<()> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let is_wanted = |kind: &Kind| wanted.is_empty() || wanted.contains(&format!("{kind:?}"));
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_wanted).collect();
    ensure!(!kinds.is_empty(), "there are only {:?}", Kind::ALL);
    let program = env::current_exe()?.with_file_name("specimen");
    ensure!(program.exists(), "{} is missing: cargo build -p lab --bins", program.display());
    let rows = kinds.into_iter().map(|kind| measure(&program, kind)).collect::<Result<Vec<Row>>>()?;
    let page = page(&rows, &place());
    println!("{page}");
    fs::write(target()?.join("four-conditions.json"), serde_json::to_string_pretty(&rows)?)?;
    if wanted.is_empty() {
        let docs = Path::new(ROOT).join("docs");
        fs::create_dir_all(&docs)?;
        fs::write(docs.join("four-conditions.md"), page)?;
        fs::write(docs.join("four-conditions.svg"), picture(&rows))?;
    }
    Ok(())
}

fn measure(program: &Path, kind: Kind) -> Result<Row> {
    let begun = lab::now();
    eprintln!("{}", kind.title());
    let told = |case: &str| eprintln!("  {:5.1} s: {case}", seconds(lab::now() - begun));
    let ground = Ground::start(program, kind).with_context(|| kind.title())?;
    cases::all(ground, told).with_context(|| kind.title())
}

fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

/// What it was measured with.
fn place() -> String {
    let told = Redis::start().info("server");
    let version = told.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("of some version");
    format!("Redis {}", version.trim())
}

fn target() -> Result<std::path::PathBuf> {
    // Beside `target/bench`.
    Ok(lab::report::folder()?.parent().context("it is in a folder")?.to_owned())
}
