//! The page `docs/services.md` shows parts of the programs.

use std::fs;
use std::path::Path;

/// Returns the blocks of Rust code on a page.
fn blocks(page: &str) -> Vec<&str> {
    let starts = page.split("```rust\n").skip(1);
    starts.filter_map(|rest| rest.split("```").next()).collect()
}

/// The sources of a folder and of its folders, without the indentation of their lines.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it is readable").path();
        if path.is_dir() {
            sources(&path, texts);
        } else {
            texts.push(unindented(&fs::read_to_string(path).expect("it is text")));
        }
    }
}

fn unindented(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("\n")
}

#[test]
fn every_block_of_the_page_is_a_part_of_a_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/services.md")).expect("it exists");
    let mut texts = Vec::new();
    sources(&root.join("src"), &mut texts);
    let blocks = blocks(&page);

    assert!(blocks.len() >= 5, "the page has {} blocks", blocks.len());
    for block in blocks {
        let part = unindented(block.trim());
        let is_part = texts.iter().any(|text| text.contains(&part));
        assert!(is_part, "no program has this part:\n{block}");
    }
}
