//! What a test program prints.

use std::collections::BTreeMap;

/// The tests of one run of a program.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) is_success: bool,
    pub(crate) passed: usize,
    /// The tests that failed, each with what it printed.
    pub(crate) failed: BTreeMap<String, String>,
    /// The test whose output is being read.
    current: Option<String>,
}

impl Report {
    /// Reads a line. Returns whether it says more than that a test passed.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        if let Some((test, outcome)) = outcome(line) {
            if outcome == "ok" {
                self.passed += 1;
                return false;
            }
            self.failed.entry(test.to_owned()).or_default();
        } else if let Some(test) = heading(line) {
            self.failed.entry(test.to_owned()).or_default();
            self.current = Some(test.to_owned());
        } else if line == "failures:" {
            self.current = None;
        } else if let Some(test) = &self.current {
            let text = self.failed.entry(test.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
        true
    }
}

/// Whether a failed test saw two holds of one lock. All checks of exclusion use these words.
pub(crate) fn has_two_holds(text: &str) -> bool {
    ["hold at once", "held at once"]
        .iter()
        .any(|words| text.contains(words))
}

/// The test and the outcome of `test NAME ... OUTCOME`.
fn outcome(line: &str) -> Option<(&str, &str)> {
    let (test, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let test = test.trim_end();
    let test = test.strip_suffix(" - should panic").unwrap_or(test);

    matches!(outcome, "ok" | "FAILED").then_some((test, outcome))
}

/// The test of `---- NAME stdout ----`.
fn heading(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;

    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> (Report, Vec<&str>) {
        let mut report = Report::default();
        let shown = text.lines().filter(|line| report.read(line)).collect();
        (report, shown)
    }

    #[test]
    fn failures_are_kept_with_their_output() {
        let (report, shown) = report(
            "running 3 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\
             test three      ... FAILED\n\nfailures:\n\n---- a::two stdout ----\nit is late\n\n\
             ---- three ----\ntwo hold at once\n\nfailures:\n    a::two\n    three\n\n\
             test result: FAILED.\n",
        );

        assert_eq!(report.passed, 1);
        let names: Vec<&str> = report.failed.keys().map(String::as_str).collect();
        assert_eq!(names, ["a::two", "three"]);
        assert_eq!(report.failed["a::two"], "it is late\n\n");
        assert!(!has_two_holds(&report.failed["a::two"]));
        assert!(has_two_holds(&report.failed["three"]));
        assert!(!shown.contains(&"test a::one ... ok"), "{shown:?}");
        assert!(shown.contains(&"it is late"), "{shown:?}");
    }

    #[test]
    fn test_whose_line_was_mixed_up_is_found_by_its_heading() {
        let (report, _) = report("test a ... noise FAILED\n\n---- a stdout ----\nwrong\n");

        assert!(report.failed.contains_key("a"));
    }

    #[test]
    fn output_that_looks_like_a_result_is_not_a_test() {
        let (report, shown) = report("test it ... again\ntest result: ok. 5 passed\n");

        assert_eq!((report.passed, report.failed.len()), (0, 0));
        assert_eq!(shown.len(), 2);
    }
}
