//! Help, man pages and completions, from one table.

use crate::place::Place;

const COMMANDS: [&str; 7] = ["run", "ls", "show", "watch", "break", "man", "completions"];
const FLAGS: [&str; 15] = [
    "--store",
    "--wait",
    "--lease",
    "--fixed",
    "--max-hold",
    "--hold-at-least",
    "--shared",
    "--slots",
    "--take",
    "--on-lost",
    "--grace",
    "--label",
    "--reentrant",
    "--quiet",
    "--help",
];

#[track_caller]
fn has_all<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) {
    words.into_iter().for_each(|word| assert!(text.contains(word), "{word} is missing from:\n{text}"));
}

#[test]
fn help_is_no_error_and_tells_all() {
    let place = Place::new();
    let done = place.done(&["--help"]);
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    has_all(&done.out, COMMANDS);
    has_all(&done.out, ["  64 ", "  69 ", "  75 ", "  76 ", "  77 ", "  126 ", "  127 ", "  128+n ", "LEASEHOLD_LOG"]);
    assert!(!done.out.contains("__child"));
    has_all(&place.done(&["run", "--help"]).out, FLAGS);
    has_all(&place.done(&["show", "--help"]).out, ["last_token", "holders", "waiters", "--json"]);
    for command in COMMANDS {
        assert_eq!(place.done(&[command, "--help"]).code(), 0, "{command}");
    }
    assert_eq!(place.done(&["--version"]).out, concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn help_does_not_tell_a_password() {
    let place = Place::new();
    let mut help = place.leasehold(&["run", "--help"]);
    let out = help.env("LEASEHOLD_STORE", "redis://me:secret@host").output().unwrap().stdout;
    assert!(!String::from_utf8(out).unwrap().contains("secret"));
}

#[test]
fn man_pages() {
    let place = Place::new();
    let page = place.done(&["man"]).out;
    has_all(&page, [".TH leasehold 1", "leasehold\\-run(1)", "Exit codes:"]);
    let page = place.done(&["man", "run"]).out.replace('\\', "");
    has_all(&page, FLAGS);
    has_all(&page, ["128+n"]);
}

#[test]
fn completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        has_all(&place.done(&["completions", shell]).out, ["run", "hold-at-least"]);
    }
}

/// Whoever changes what help says sees it here, and puts it there with `TRYCMD=overwrite`.
#[test]
fn help_as_it_is_printed() {
    trycmd::TestCases::new().env("COLUMNS", "100").case("tests/command/*.trycmd");
}

/// Every console block of the README does what it shows.
#[test]
fn readme() {
    let place = Place::new();
    let here = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap().to_owned();
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let cases = trycmd::TestCases::new();
    cases.env("PATH", path).env("LEASEHOLD_STORE", place.url()).env("LEASEHOLD_HELD", "");
    cases.case("../../README.md");
}
