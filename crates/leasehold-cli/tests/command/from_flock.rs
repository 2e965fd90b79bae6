//! docs/from-flock.md, whose rows for flock run beside flock itself.

use crate::sandbox::Sandbox;

const PAGE: &str = include_str!("../../../../docs/from-flock.md");
const SCRIPT: &str = include_str!("../beside_flock.sh");

/// The first column of the table in the section of flock.
fn flock_rows() -> Vec<&'static str> {
    let (_, section) = PAGE.split_once("\n## flock\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();

    section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split("` |").next())
        .collect()
}

/// A row that flock or leasehold contradicts fails, and so does a row without a check.
#[test]
fn every_flock_row_is_what_flock_and_leasehold_do() {
    let sandbox = Sandbox::new();
    let done = sandbox.run_script("sh", SCRIPT);

    let checked: Vec<_> = flock_rows()
        .into_iter()
        .map(|row| format!("ok: {row}"))
        .collect();
    let printed: Vec<_> = done.out.lines().collect();
    assert_eq!(printed, checked, "{}", done.err);
    assert_eq!(done.code(), 0, "{done:?}");
}
