//! Runs all cases of the four conditions with every contender, and prints the table.
//!
//! It also writes `docs/four-conditions.md` and its picture. With names of contenders as arguments,
//! such as `Redisson LeaseholdRedis`, it runs only these. It takes the figures of the others from
//! `target/four-conditions.json`, which keeps the last figures of each contender.

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
    let is_wanted =
        |contender: &Contender| wanted.is_empty() || wanted.contains(&format!("{contender:?}"));
    ensure!(
        Contender::ALL.iter().any(is_wanted),
        "unknown contender; choose from {:?}",
        Contender::ALL
    );

    let program = env::current_exe()?.with_file_name("baseline");
    ensure!(
        program.exists(),
        "{} is missing: cargo build -p lab --bins",
        program.display()
    );

    let mut rows = Vec::new();
    for contender in Contender::ALL {
        rows.extend(if is_wanted(&contender) {
            Some(measure(&program, contender)?)
        } else {
            last(contender)?
        });
    }

    fs::write(figures()?, serde_json::to_string_pretty(&rows)?)?;
    print(&rows)
}

fn measure(program: &Path, contender: Contender) -> Result<Row> {
    let begun = lab::now();
    eprintln!("{}", contender.title());
    let printed = |case: &str| eprintln!("  {:5.1} s: {case}", seconds(lab::now() - begun));
    let testbed = BaselineTestbed::start(program, contender).with_context(|| contender.title())?;
    cases::all(testbed, printed).with_context(|| contender.title())
}

/// Returns the figures of the last measurement, if there was one.
fn last(contender: Contender) -> Result<Option<Row>> {
    let file = figures()?;
    if !file.exists() {
        return Ok(None);
    }
    let rows: Vec<Row> = serde_json::from_str(&fs::read_to_string(file)?)?;
    Ok(rows.into_iter().find(|row| row.contender == contender))
}

/// Prints the page. The documents are written only if all contenders have figures.
fn print(rows: &[Row]) -> Result<()> {
    let page = page(rows, &server_version());
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

/// Returns the name and version of the Redis server.
fn server_version() -> String {
    let printed = Redis::start().info("server");
    let version = printed
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"))
        .unwrap_or("(unknown version)");
    format!("Redis {}", version.trim())
}

/// Returns the path of the figures, beside `target/bench`.
fn figures() -> Result<PathBuf> {
    Ok(lab::report::folder()?.with_file_name("four-conditions.json"))
}
