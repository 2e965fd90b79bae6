//! Reads the tables of a page in docs.

use std::path::Path;

/// The rows of all tables of a page whose first cell is code, each as the texts of its cells.
pub(crate) fn rows(page: &str) -> Vec<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(folder.join(page)).expect("the page exists");
    text.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(cell).collect())
        .collect()
}

/// Splits a cell such as "`a`, `b`"; a dash means none.
pub(crate) fn list(cell: &str) -> Vec<String> {
    let mut items: Vec<String> = cell
        .split(", ")
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect();
    items.sort();
    items
}

fn cell(text: &str) -> String {
    text.trim().replace('`', "")
}
