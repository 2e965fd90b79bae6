//! Puts every specimen through all cases, prints the table, and writes `docs/four-conditions.md` with its picture. Given names of
//! kinds (`Redisson OursRedis`), it does so for those alone, and takes the others' figures from `target/four-conditions.json`, where
//! the last of all are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lab::baselines::Contender;
use lab::conditions::{BaselineTestbed, Row, cases, page, picture};
use lab_servers::Redis;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn main() -> Result<()> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let is_wanted = |kind: &Contender| wanted.is_empty() || wanted.contains(&format!("{kind:?}"));
    ensure!(
        Contender::ALL.iter().any(is_wanted),
        "there are only {:?}",
        Contender::ALL
    );
    let program = env::current_exe()?.with_file_name("baseline");
    ensure!(
        program.exists(),
        "{} is missing: cargo build -p lab --bins",
        program.display()
    );
    let mut rows = Vec::new();
    for kind in Contender::ALL {
        rows.extend(if is_wanted(&kind) {
            Some(measure(&program, kind)?)
        } else {
            last(kind)?
        });
    }
    fs::write(figures()?, serde_json::to_string_pretty(&rows)?)?;
    print(&rows)
}

fn measure(program: &Path, kind: Contender) -> Result<Row> {
    let begun = lab::now();
    eprintln!("{}", kind.title());
    let printed = |case: &str| eprintln!("  {:5.1} s: {case}", seconds(lab::now() - begun));
    let testbed = BaselineTestbed::start(program, kind).with_context(|| kind.title())?;
    cases::all(testbed, printed).with_context(|| kind.title())
}

/// The figures that were measured last, if they ever were.
fn last(kind: Contender) -> Result<Option<Row>> {
    let file = figures()?;
    if !file.exists() {
        return Ok(None);
    }
    let rows: Vec<Row> = serde_json::from_str(&fs::read_to_string(file)?)?;
    Ok(rows.into_iter().find(|row| row.contender == kind))
}

/// The page is for all of them.
fn print(rows: &[Row]) -> Result<()> {
    let page = page(rows, &place());
    println!("{page}");
    if rows.len() < Contender::ALL.len() {
        return Ok(());
    }
    let docs = Path::new(ROOT).join("docs");
    fs::create_dir_all(&docs)?;
    fs::write(docs.join("four-conditions.md"), page)?;
    Ok(fs::write(docs.join("four-conditions.svg"), picture(rows))?)
}

fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

/// What it was measured with.
fn place() -> String {
    let printed = Redis::start().info("server");
    let version = printed
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"))
        .unwrap_or("of some version");
    format!("Redis {}", version.trim())
}

/// Beside `target/bench`.
fn figures() -> Result<PathBuf> {
    Ok(lab::report::folder()?.with_file_name("four-conditions.json"))
}
