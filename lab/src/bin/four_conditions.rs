//! Runs all cases of the four conditions with every contender, and prints the table.
//!
//! With names of contenders as arguments, such as `redisson redis`, it runs only these. If it runs
//! all of them, it also writes the table into `docs/four-conditions.md`, and draws its picture.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lab::baselines::{CONTENDERS, Contender, contender_named};
use lab::conditions::cases::{self, Row};
use lab::conditions::{BaselineTestbed, draw, table, update};

fn main() -> Result<()> {
    let names: Vec<String> = env::args().skip(1).collect();
    let chosen: Vec<&Contender> = names
        .iter()
        .map(|name| contender_named(name))
        .collect::<Result<_>>()?;
    let is_complete = chosen.is_empty();
    let wanted = if is_complete {
        CONTENDERS.iter().collect()
    } else {
        chosen
    };

    let program = env::current_exe()?.with_file_name("baseline");
    let mut rows = Vec::new();
    for contender in wanted {
        eprintln!("{}", contender.name);
        rows.push(measure(&program, contender).context(contender.title)?);
    }
    println!("{}", table(&rows));

    if is_complete {
        let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
        let page = docs.join("four-conditions.md");
        fs::write(&page, update(&fs::read_to_string(&page)?, &rows)?)?;
        draw(&docs.join("four-conditions.svg"), &rows)?;
    }
    Ok(())
}

fn measure(program: &Path, contender: &'static Contender) -> Result<Row> {
    cases::all(BaselineTestbed::start(program, contender)?)
}
