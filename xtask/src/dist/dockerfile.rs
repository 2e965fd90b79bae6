//! The rules for the Dockerfile of a release.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

/// The instructions that a Dockerfile of this repository may have.
const INSTRUCTIONS: [&str; 7] = ["FROM", "COPY", "ENV", "LABEL", "USER", "ENTRYPOINT", "CMD"];

/// Fails if the Dockerfile breaks a rule.
pub(super) fn check(path: &Path) -> Result<()> {
    let violations = violations(&fs::read_to_string(path)?);

    let list = violations.join("\n  ");
    ensure!(violations.is_empty(), "{}:\n  {list}", path.display());
    Ok(())
}

/// Lists what is wrong with a Dockerfile. Each rule has its counterpart in hadolint.
fn violations(text: &str) -> Vec<String> {
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let arguments = |instruction: &str| {
        let found = lines.iter().find(|(name, _)| *name == instruction);
        found.map(|(_, arguments)| *arguments)
    };

    let mut violations = Vec::new();
    let mut rule = |holds: bool, text: &str| {
        if !holds {
            violations.push(text.to_owned());
        }
    };

    let is_known = |(name, _): &(&str, &str)| INSTRUCTIONS.contains(name);
    rule(lines.iter().all(is_known), "an instruction is not allowed");
    rule(lines.len() <= 5, "it has more than five instructions");
    rule(
        lines.first().is_some_and(|(name, _)| *name == "FROM"),
        "FROM is not the first instruction",
    );

    let base = arguments("FROM").unwrap_or_default();
    let is_pinned = base == "scratch" || base.contains("@sha256:");
    rule(is_pinned, "the base image has no digest");

    let user = arguments("USER").unwrap_or_default();
    let is_number = |id: &str| id.parse::<u32>().is_ok_and(|id| id > 0);
    rule(
        !user.is_empty() && user.split(':').all(is_number),
        "USER is not a number other than root's",
    );

    for instruction in ["ENTRYPOINT", "CMD"] {
        let form = arguments(instruction).unwrap_or_default();
        let is_list = serde_json::from_str::<Vec<String>>(form).is_ok();
        rule(is_list, &format!("{instruction} is not a JSON array"));
    }

    let copies = lines.iter().filter(|(name, _)| *name == "COPY");
    let has_absolute_target = |(_, arguments): &(&str, &str)| arguments.contains(" /");
    rule(
        copies.clone().all(has_absolute_target),
        "COPY has no absolute target",
    );
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    #[test]
    fn dockerfile_of_the_release_keeps_the_rules() -> Result<()> {
        check(&repository::root().join("packaging/Dockerfile"))
    }

    #[test]
    fn each_broken_rule_is_reported() -> Result<()> {
        let good = fs::read_to_string(repository::root().join("packaging/Dockerfile"))?;
        let broken = [
            ("FROM scratch", "FROM debian:latest", "digest"),
            ("USER 65534:65534", "USER root", "USER"),
            ("USER 65534:65534", "USER 0", "USER"),
            ("USER 65534:65534", "RUN true", "not allowed"),
            (r#"["--help"]"#, "--help", "CMD"),
            (" /usr/bin/leasehold\n", " leasehold\n", "absolute"),
            ("CMD", "ENV A=b\nCMD", "five"),
        ];

        for (from, to, reported) in broken {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            let found = violations(&text);
            assert!(
                found.iter().any(|rule| rule.contains(reported)),
                "{to}: {found:?}"
            );
        }
        Ok(())
    }
}
