//! docs/other-languages.md: its programs that call the command.

use crate::sandbox::Sandbox;

const PAGE: &str = include_str!("../../../../docs/other-languages.md");

/// Runs each program beside the line that it prints. The Go function is only parsed: its compiler would
/// compile the standard library first.
const SCRIPT: &str = r#"set -e
for program in 'python3 nightly.py' 'node nightly.js'; do
  case $($program) in "the work, under token "[0-9]*) ;; *) exit 1 ;; esac
done
(echo 'package main'; cat hold.go) > main.go
gofmt -e main.go > formatted.go
for name in deploy build; do
  printf '#!/bin/sh\necho %s "$LEASEHOLD_NAME"\n' "$name" > "$name.sh"
  chmod +x "$name.sh"
done
make --silent deploy release
"#;

#[test]
fn programs_in_other_languages_run() {
    let sandbox = Sandbox::new();
    for (language, file) in [
        ("python", "nightly.py"),
        ("js", "nightly.js"),
        ("go", "hold.go"),
        ("make", "Makefile"),
    ] {
        let (_, block) = PAGE.split_once(&format!("```{language}\n")).unwrap();
        let (block, _) = block.split_once("```").unwrap();
        std::fs::write(sandbox.path(file), block).unwrap();
    }

    let done = sandbox.run_script("sh", SCRIPT);
    done.assert(0, "deploy deploy\nbuild \n", "");
    for name in ["nightly", "deploy", "release"] {
        assert!(sandbox.is_free(name), "{name}");
    }
}
