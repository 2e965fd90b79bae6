//! docs/peer-defects.md names a test for each defect, and the tests are there.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::guarantees::{ROOT, sources};

#[test]
fn every_defect_names_existing_tests() -> Result<()> {
    let mut sources_of = sources(&Path::new(ROOT).join("crates"))?;
    sources_of.extend(sources(&Path::new(ROOT).join("lab"))?);

    let page = fs::read_to_string(Path::new(ROOT).join("docs/peer-defects.md"))?;
    for row in (1..=18)
        .map(|number| format!("s{number}"))
        .chain((1..=25).map(|number| format!("u{number}")))
    {
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("| {row} |")));
        let shown_by = line
            .and_then(|line| line.rsplit(" | ").next())
            .unwrap_or_default();
        let tests: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        ensure!(!tests.is_empty(), "{row} has no test");
        for test in tests {
            ensure!(
                sources_of
                    .iter()
                    .any(|source| source.contains(&format!("fn {test}("))),
                "{row}: there is no test {test}"
            );
        }
    }

    Ok(())
}
