//! Help, man pages and completions, which are generated from one table.

use crate::sandbox::{Finished, Sandbox};

const COMMANDS: [&str; 18] = [
    "run",
    "hold",
    "acquire",
    "check",
    "release",
    "wait",
    "ls",
    "show",
    "watch",
    "break",
    "doctor",
    "serve",
    "gc",
    "setup-system",
    "setup-postgres",
    "man",
    "completions",
    "elect",
];
const FLAGS: [&str; 15] = [
    "--store",
    "--wait",
    "--lease",
    "--max-hold",
    "--hold-at-least",
    "--shared",
    "--slots",
    "--permits",
    "--on-lost",
    "--kill-after",
    "--until-all-end",
    "--label",
    "--reentrant",
    "--quiet",
    "--help",
];

#[track_caller]
fn has_all<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) {
    words
        .into_iter()
        .for_each(|word| assert!(text.contains(word), "{word} is missing from:\n{text}"));
}

#[test]
fn help_exits_0_and_lists_everything() {
    let sandbox = Sandbox::new();
    let done = sandbox.done(&["--help"]);
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    has_all(&done.out, COMMANDS);
    has_all(
        &done.out,
        [
            "  64 ",
            "  69 ",
            "  75 ",
            "  76 ",
            "  77 ",
            "  126 ",
            "  127 ",
            "  128+n ",
            "LEASEHOLD_LOG",
        ],
    );
    assert!(!done.out.contains("__child"));
    has_all(&sandbox.done(&["run", "--help"]).out, FLAGS);
    has_all(
        &sandbox.done(&["show", "--help"]).out,
        ["last_token", "holders", "waiters", "--json"],
    );
    for command in COMMANDS {
        assert_eq!(sandbox.done(&[command, "--help"]).code(), 0, "{command}");
    }
    assert_eq!(
        sandbox.done(&["--version"]).out,
        concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn help_does_not_show_the_password() {
    let sandbox = Sandbox::new();
    let mut help = sandbox.leasehold(&["run", "--help"]);
    let out = help
        .env("LEASEHOLD_STORE", "redis://me:secret@host")
        .output()
        .unwrap()
        .stdout;
    assert!(!String::from_utf8(out).unwrap().contains("secret"));
}

#[test]
fn man_pages_list_all_flags() {
    let sandbox = Sandbox::new();
    let page = sandbox.done(&["man"]).out;
    has_all(
        &page,
        [
            ".TH LEASEHOLD 1 20",
            concat!("\"leasehold ", env!("CARGO_PKG_VERSION"), "\""),
            "leasehold\\-run(1)",
            ".SH \"ENVIRONMENT\"",
        ],
    );
    assert!(!page.contains("EXTRA"), "{page}");
    let page = sandbox.done(&["man", "run"]).out.replace('\\', "");
    has_all(&page, FLAGS);
    has_all(&page, ["128+n"]);
}

#[test]
fn help_and_man_page_of_every_subcommand_have_examples() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        let help = sandbox.done(&[command, "--help"]).out;
        has_all(&help, ["Examples:\n  # ", &format!("leasehold {command} ")]);

        let page = sandbox.done(&["man", command]).out;
        let (_, examples) = page.split_once(".SH EXAMPLES\n").unwrap();
        let escaped = command.replace('-', r"\-");
        has_all(examples, [format!("leasehold {escaped} ").as_str()]);
    }
    has_all(&sandbox.done(&["--help"]).out, ["Examples:\n"]);
    has_all(&sandbox.done(&["man"]).out, [".SH EXAMPLES\n"]);
}

/// Fails when an option in an example was renamed: the parser knows every line.
#[test]
fn examples_of_run_are_accepted_by_the_parser() {
    let sandbox = Sandbox::new();
    let help = sandbox.done(&["run", "--help"]).out;
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let lines = examples
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.trim().strip_prefix("leasehold "));

    let mut count = 0;
    for line in lines {
        count += 1;
        // The unknown store ends the run after its arguments have been read.
        let leasehold = env!("CARGO_BIN_EXE_leasehold");
        let elsewhere = line.replace("--store redis://host", "--store none://host");
        let line = format!("{leasehold} --store none://host {elsewhere}");
        let done: Finished = std::process::Command::new("sh")
            .args(["-c", &line])
            .output()
            .unwrap()
            .into();
        done.assert(64, "", "the URL scheme \"none\" is unknown");
    }
    assert!(count >= 5, "{help}");
}

#[test]
fn man_pages_are_written_to_a_folder_and_tables_keep_their_lines() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("pages/man1");
    sandbox
        .done(&["man", "--all", folder.to_str().unwrap()])
        .assert(0, "", "");

    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut expected: Vec<_> = COMMANDS.map(|name| format!("leasehold-{name}.1")).into();
    expected.push("leasehold.1".to_owned());
    expected.sort();
    assert_eq!(files, expected);

    let page: Finished = std::process::Command::new("man")
        .arg("-l")
        .arg(folder.join("leasehold-show.1"))
        .env("MANWIDTH", "80")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap()
        .into();
    let is_whole = |line: &str| {
        line.contains("  holders           array: token, share, weight, capacity, since, ")
            && line.ends_with("age_seconds, host, pid,")
    };
    assert!(page.out.lines().any(is_whole), "{}", page.out);
}

/// Each exit code is a paragraph of its own: joined to one, the table cannot be read.
#[test]
fn man_page_lists_each_exit_code_in_a_row_of_its_own() {
    let sandbox = Sandbox::new();
    for (arguments, codes) in [
        (
            &["man"][..],
            "0 1 2 3 64 69 70 75 76 77 126 127 128+n other",
        ),
        (&["man", "run"], "0 64 69 70 75 76 77 126 127 128+n other"),
        (&["man", "show"], "0 1 3 64 69 70 77"),
    ] {
        let page = sandbox.done(arguments).out;
        let (_, table) = page.split_once(".SH \"EXIT STATUS\"\n").unwrap();
        let (table, _) = table.split_once(".SH").unwrap();
        let rows = table
            .lines()
            .filter_map(|line| line.strip_prefix(r"\fB")?.strip_suffix(r"\fR"));
        let mut listed: Vec<_> = rows.collect();
        listed.dedup();
        assert_eq!(listed.join(" "), codes, "{table}");
    }
}

/// The URLs are in one place, so that the help of a subcommand fits on a screen.
#[test]
fn urls_of_stores_are_listed_once() {
    let sandbox = Sandbox::new();
    let stores = sandbox.done(&["help", "stores"]);
    assert_eq!((stores.code(), stores.err.as_str()), (0, ""));
    has_all(
        &stores.out,
        ["file:/some/folder", "redis+cluster://", "zookeeper+tls://"],
    );
    has_all(
        &sandbox.done(&["man"]).out,
        [".SH \"STORES\"", "redis+cluster://"],
    );
    for command in COMMANDS {
        let help = sandbox.done(&[command, "--help"]).out;
        assert!(!help.contains("redis+cluster://"), "{command}");
        // A package has no folder with documents.
        assert!(!help.contains("docs/"), "{command}");
    }
    let short = sandbox.done(&["run", "-h"]).out;
    assert!(short.lines().count() <= 40, "{short}");
    let example = "Example:  leasehold run backup -- /usr/local/bin/backup.sh --full\n\nHold NAME ";
    assert!(short.starts_with(example), "{short}");
    has_all(&short, ["--once <ID>", "LEASEHOLD_STORE"]);
    let short = sandbox.done(&["wait", "-h"]).out;
    let (_, waiting) = short.split_once("\nWaiting:\n").expect("a heading");
    has_all(waiting, ["-w, --wait", "-n, --nonblock", "-E, --busy"]);
}

#[test]
fn completions_exist_for_every_shell() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        has_all(
            &sandbox.done(&["completions", shell]).out,
            ["run", "hold-at-least"],
        );
    }
}

/// Fails when the help, or a message about wrong usage, differs from the recorded text.
/// `TRYCMD=overwrite` updates the files.
#[test]
fn help_and_messages_match_the_recorded_text() {
    let sandbox = Sandbox::new();
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .env("LEASEHOLD_STORE", sandbox.url())
        .case("tests/command/*.trycmd");
}

/// Every console block of the README, in both languages, and of the guide does what it shows.
#[test]
fn console_blocks_of_documents_run_as_shown() {
    for document in ["README.md", "README.zh-CN.md", "docs/guide.md"] {
        run_console_blocks(document);
    }
}

/// Each document has a store of its own, because blocks in different documents use the same locks.
fn run_console_blocks(document: &str) {
    let sandbox = Sandbox::new();
    let here = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"))
        .parent()
        .unwrap()
        .to_owned();
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());

    let cases = trycmd::TestCases::new();
    cases
        .env("PATH", path)
        .env("LEASEHOLD_STORE", sandbox.url())
        .env("LEASEHOLD_HELD", "");
    cases.case(format!("../../{document}"));
    cases.run();
}

/// Every bash block of the guide is a script that holds the lock `backup`, and gives it back.
#[test]
fn bash_blocks_of_the_guide_hold_the_lock() {
    let guide = include_str!("../../../../docs/guide.md");
    let scripts: Vec<_> = guide
        .split("```bash\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(scripts.len(), 3);

    for script in scripts {
        let sandbox = Sandbox::new();
        let seen = "leasehold show --exit-code backup > seen; echo $? > code\necho \"the second";
        let script = script.replacen("echo \"the second", seen, 1);
        let path = sandbox.path("script");
        std::fs::write(&path, &script).unwrap();
        let run = || -> Finished {
            let mut shell = sandbox.script("bash", "chmod +x script; exec ./script");
            shell.output().unwrap().into()
        };

        let done = run();
        assert_eq!(
            (done.code(), done.out.lines().count()),
            (0, 2),
            "{done:?}\n{script}"
        );
        assert_eq!(sandbox.read("code"), "1\n", "not held by:\n{script}");
        assert!(
            sandbox.is_free("backup") && sandbox.flock("backup"),
            "{script}"
        );

        let holder = sandbox.holder("backup", &[]);
        let busy = run();
        assert_eq!(
            (busy.code(), busy.out.as_str()),
            (75, ""),
            "{busy:?}\n{script}"
        );
        holder.end().assert(0, "", "");
    }
}
