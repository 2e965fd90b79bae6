//! Reads the tables of docs/operate.md.

/// The rows of all tables of a section whose first cell is code, each as the texts of its cells.
pub(crate) fn rows(section: &str) -> Vec<Vec<String>> {
    let page = include_str!("../../../../docs/operate.md");
    let heading = format!("\n## {section}\n");
    let (_, text) = page.split_once(&heading).expect("the section exists");

    text.lines()
        .take_while(|line| !line.starts_with("## "))
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
