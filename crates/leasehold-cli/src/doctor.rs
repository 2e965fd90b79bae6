//! `leasehold doctor`: risks to locks in a store.

use std::io::{Write, stdout};
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use leasehold::{Examination, ExaminedServer, Finding, RoundTrip, Severity, folder_of};
use nix::unistd::{Group, User};
use rustix::fs::{Mode, getxattr};
use serde::Serialize;

use crate::commands::{Origin, Store};
use crate::exit::Exit;

/// Examines the store and prints the findings.
pub(crate) async fn examine(store: &Store, json: bool) -> Result<Exit> {
    store.check()?;
    let examined = leasehold::examine(&store.url).await;
    let examination = examined.map_err(|error| store.origin.explain(error))?;
    if json {
        print_json(&examination)?;
    } else {
        print_text(&examination, &store.url, store.origin)?;
    }

    Ok(match examination.worst() {
        None => Exit::DONE,
        Some(Severity::Warning) => Exit::WARNING,
        Some(_) => Exit::DANGER,
    })
}

fn print_text(examination: &Examination, given: &str, origin: Origin) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(
        out,
        "store    {} ({origin})",
        with_folder(&examination.store)
    )?;
    if let Some(sharers) = sharers(&examination.store, given) {
        writeln!(out, "shared   by processes of {sharers}")?;
    }
    for server in &examination.servers {
        writeln!(out, "server   {}", described(server))?;
    }
    for unknown in &examination.unknown {
        writeln!(out, "unknown  {unknown}")?;
    }
    for finding in &examination.findings {
        let Finding {
            severity,
            code,
            server,
            message,
            ..
        } = finding;
        let severity = severity.to_string();
        writeln!(out, "{severity:<8} {code} ({server}): {message}")?;
        writeln!(out, "         remedy: {}", finding.remedy)?;
    }
    if examination.findings.is_empty() {
        writeln!(out, "nothing found that endangers locks")?;
    }
    Ok(())
}

/// Adds the folder to the URL of a store that does not name it.
fn with_folder(url: &str) -> String {
    let folder = folder_of(url).map(|folder| folder.display().to_string());
    let unnamed = folder.filter(|folder| !url.ends_with(folder));
    unnamed.map_or_else(|| url.to_owned(), |folder| format!("{url} {folder}"))
}

/// Names the users whose processes can use the folder of an opened store. `given` is the URL with its
/// settings, where `mode=` limits the users of the files.
fn sharers(url: &str, given: &str) -> Option<String> {
    let folder = folder_of(url)?;
    let status = std::fs::metadata(&folder).ok()?;
    let owner = User::from_uid(status.uid().into()).ok()?;
    let owner = owner.map_or_else(|| status.uid().to_string(), |owner| owner.name);
    let group = Group::from_gid(status.gid().into()).ok()?;
    let group = group.map_or_else(|| status.gid().to_string(), |group| group.name);

    if getxattr(&folder, ACL, &mut [0_u8; ACL_MAX]).is_ok() {
        return Some(format!(
            "{owner} and of the users that the ACL of {} names",
            folder.display()
        ));
    }

    let stated = given.split_once("mode=").map(|(_, mode)| mode);
    let stated = stated.and_then(|mode| u32::from_str_radix(mode.split('&').next()?, 8).ok());
    let mode = Mode::from_raw_mode(status.mode() & stated.unwrap_or(u32::MAX));
    Some(
        match (mode.contains(Mode::WOTH), mode.contains(Mode::WGRP)) {
            (true, _) => "all users".to_owned(),
            (false, true) => format!("{owner} and of the group {group}"),
            (false, false) => format!("{owner} only"),
        },
    )
}

/// The extended attribute that has the ACL of a folder.
const ACL: &str = "system.posix_acl_access";
/// An entry has 8 bytes. No user of locks has an ACL of more than 500.
const ACL_MAX: usize = 4096;

fn described(server: &ExaminedServer) -> String {
    let version = server.version.as_deref().unwrap_or("of an unknown version");
    let trip = server.round_trip.map_or_else(String::new, |trip| {
        let RoundTrip { p50, p99, .. } = trip;
        format!(", round trip {p50:.0?} (p50) and {p99:.0?} (p99)")
    });
    let clock = server
        .clock_ahead_ms
        .map_or_else(String::new, |ahead| format!(", clock {ahead:+} ms"));
    format!("{}: {version}{trip}{clock}", server.server)
}

fn print_json(examination: &Examination) -> Result<()> {
    let findings = examination.findings.iter().map(|finding| FindingJson {
        severity: finding.severity.to_string(),
        code: finding.code,
        server: &finding.server,
        message: &finding.message,
        remedy: &finding.remedy,
    });
    let servers = examination.servers.iter().map(|server| ExaminedJson {
        server: &server.server,
        version: server.version.as_deref(),
        round_trip_p50_us: server.round_trip.map(|trip| trip.p50.as_micros()),
        round_trip_p99_us: server.round_trip.map(|trip| trip.p99.as_micros()),
        clock_ahead_ms: server.clock_ahead_ms,
    });
    let report = Report {
        store: &examination.store,
        findings: findings.collect(),
        servers: servers.collect(),
        unknown: &examination.unknown,
    };
    writeln!(stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(())
}

#[derive(Serialize)]
struct Report<'a> {
    store: &'a str,
    findings: Vec<FindingJson<'a>>,
    servers: Vec<ExaminedJson<'a>>,
    unknown: &'a [String],
}

#[derive(Serialize)]
struct FindingJson<'a> {
    severity: String,
    code: &'a str,
    server: &'a str,
    message: &'a str,
    remedy: &'a str,
}

#[derive(Serialize)]
struct ExaminedJson<'a> {
    server: &'a str,
    version: Option<&'a str>,
    round_trip_p50_us: Option<u128>,
    round_trip_p99_us: Option<u128>,
    clock_ahead_ms: Option<i64>,
}
