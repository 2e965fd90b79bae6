//! docs/recipes.md: its commands run, and its units are valid.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::sandbox::{Finished, Sandbox};
use crate::scripts::BIN;

const PAGE: &str = include_str!("../../../../docs/recipes.md");

/// The scripts that the page starts, by their names in /usr/local/bin or in the repository.
const SCRIPTS: [&str; 6] = [
    "report.sh",
    "import.sh",
    "backup.sh",
    "deploy.sh",
    "scheduler",
    "app",
];

/// The code blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = PAGE.split(fence.as_str()).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

fn unit(name: &str) -> &'static str {
    let head = format!("# {name}\n");
    let units = blocks("ini");
    units
        .into_iter()
        .find(|unit| unit.starts_with(&head))
        .unwrap()
}

/// The command of a unit.
pub(crate) fn exec_start(name: &str) -> &'static str {
    let command = unit(name)
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    command.unwrap()
}

/// Creates a sandbox with the scripts of the page. Each writes its name into the file `ran`.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();

    for script in SCRIPTS {
        let path = sandbox.path(script);
        let ran = sandbox.path("ran");
        let text = format!("#!/bin/sh\necho {script} >> {}\n", ran.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(BIN, sandbox.path("leasehold")).unwrap();
    sandbox
}

/// Runs a line of a crontab as cron does, except that the folders of the crontab are the sandbox.
fn run_as_cron(sandbox: &Sandbox, crontab: &str, line: &str) -> Finished {
    const PATH_OF_CRON: &str = "/usr/bin:/bin";

    let folder = sandbox.path("");
    let in_sandbox = |text: &str| {
        let folder = folder.to_str().unwrap().trim_end_matches('/');
        let text = text.replace("/home/me/.cargo/bin", folder);
        text.replace("/usr/local/bin", folder)
    };
    let set = crontab.lines().find_map(|line| line.strip_prefix("PATH="));
    let line = in_sandbox(line);

    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &line])
        .env_clear()
        .env("SHELL", "/bin/sh")
        .env("LOGNAME", "root")
        .env("HOME", &folder)
        .env("PATH", in_sandbox(set.unwrap_or(PATH_OF_CRON)))
        .current_dir(&folder)
        .stdin(Stdio::null());
    shell.output().unwrap().into()
}

/// The commands of a crontab, without comments and times.
fn cron_commands(crontab: &str) -> Vec<String> {
    crontab
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit() || first == '*'))
        .map(|line| {
            line.split_whitespace()
                .skip(5)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

/// Without a holder the script runs. With one, nothing reports it: cron sends no mail.
#[test]
fn crontab_lines_run_and_skip_without_output() {
    let crontab = blocks("cron")[0];
    let commands = cron_commands(crontab);
    assert_eq!(commands.len(), 4);

    for command in commands {
        let sandbox = sandbox();
        run_as_cron(&sandbox, crontab, &command).assert(0, "", "");
        let ran = sandbox.read("ran");
        assert!(ran.ends_with(".sh\n"), "{command}: {ran}");

        // A shorter wait shows the same as ten minutes.
        let command = command.replace("-w 600", "-w 0.2");
        let name = command.split(' ').find(|word| ran_name(word)).unwrap();
        let nested = format!("leasehold run {name} -- env -u LEASEHOLD_HELD {command}");
        run_as_cron(&sandbox, crontab, &nested).assert(0, "", "");
        assert_eq!(sandbox.read("ran"), ran, "{command} ran while it was held");
    }
}

/// Whether a word is the name of a lock on the page.
fn ran_name(word: &str) -> bool {
    ["report", "import", "backup", "cleanup"].contains(&word)
}

/// The second machine starts the job after the first one is done. A day that was missed is one line.
#[test]
fn crontab_of_several_machines_runs_the_job_once() {
    let crontab = blocks("cron")[1];
    assert!(crontab.contains("\nLEASEHOLD_STORE=redis://"));
    // cron replaces an escaped percent sign.
    let commands = cron_commands(crontab).into_iter();
    let commands: Vec<_> = commands.map(|line| line.replace("\\%", "%")).collect();
    let [job, missed] = &commands[..] else {
        panic!("{commands:?}");
    };

    let sandbox = sandbox();
    let never = run_as_cron(&sandbox, crontab, missed);
    assert_eq!(
        (never.code(), never.err.lines().count()),
        (3, 1),
        "{never:?}"
    );
    run_as_cron(&sandbox, crontab, &format!("{job} & {job}; wait; {job}")).assert(0, "", "");
    assert_eq!(sandbox.read("ran"), "report.sh\n");
    run_as_cron(&sandbox, crontab, missed).assert(0, "", "");
}

#[test]
fn timer_of_several_machines_runs_the_job_once() {
    // systemd replaces the doubled signs.
    let command = exec_start("report.service").replace("/usr/bin/leasehold", "leasehold");
    let command = command.replace("$$", "$").replace("%%", "%");

    let sandbox = sandbox();
    let path = "PATH=/usr/local/bin:/usr/bin:/bin";
    run_as_cron(
        &sandbox,
        path,
        &format!("{command} & {command}; wait; {command}"),
    )
    .assert(0, "", "report is done: ");
    assert_eq!(sandbox.read("ran"), "report.sh\n");
}

/// The readme installs the command with cargo.
#[test]
fn crontab_of_the_readme_runs_as_cron_runs_it() {
    for readme in ["../../README.md", "../../README.zh-CN.md"] {
        let readme = fs::read_to_string(readme).unwrap();
        let mut blocks = readme.split("```");
        let crontab = blocks.find(|block| block.contains("*/5")).unwrap();
        let command = &cron_commands(crontab)[0];

        let sandbox = sandbox();
        run_as_cron(&sandbox, crontab, command).assert(0, "", "");
        assert_eq!(sandbox.read("ran"), "report.sh\n");
    }
}

#[test]
fn container_command_runs_once_for_each_job() {
    let manifest = blocks("yaml")[0];
    let command = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("command: "))
        .unwrap();
    let words: Vec<String> = serde_json::from_str(command).unwrap();
    assert_eq!(words[0], "leasehold");

    let sandbox = sandbox();
    let script = sandbox.path("report.sh").display().to_string();
    let words: Vec<&str> = words[1..]
        .iter()
        .map(|word| match word.as_str() {
            "/usr/local/bin/report.sh" => &script,
            word => word,
        })
        .collect();
    sandbox.done(&words).assert(0, "", "");

    sandbox.done(&words).assert(0, "", "report is done: ");
    assert_eq!(sandbox.read("ran"), "report.sh\n");
}

#[test]
fn steps_of_ci_run_under_the_lock() {
    let steps: Vec<_> = blocks("yaml")[1..]
        .iter()
        .flat_map(|block| block.lines())
        .filter_map(|line| line.find("leasehold run").map(|at| &line[at..]))
        .collect();
    assert_eq!(steps.len(), 2);

    for step in steps {
        let sandbox = sandbox();
        let numbered = format!("GITHUB_RUN_ID=7 CI_JOB_ID=7; {step}");
        sandbox.run_script("bash", &numbered).assert(0, "", "");
        assert_eq!(sandbox.read("ran"), "deploy.sh\n");
    }
}

/// systemd-analyze(1) reports unknown settings, wrong times and programs that do not exist.
#[test]
fn units_are_valid() {
    let sandbox = sandbox();
    let path = sandbox.path("");
    let folder = path.to_str().unwrap().trim_end_matches('/');
    let units = blocks("ini");
    assert_eq!(units.len(), 5);

    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in units {
        let (name, unit) = unit.strip_prefix("# ").unwrap().split_once('\n').unwrap();
        let unit = unit
            .replace("/usr/local/bin", folder)
            .replace("/usr/bin/leasehold", BIN);
        fs::write(sandbox.path(name), unit).unwrap();
        verify.arg(sandbox.path(name));
    }

    let done: Finished = verify.output().unwrap().into();
    let own: Vec<_> = done
        .err
        .lines()
        .filter(|line| {
            [folder, "report.", "leader.", "app."]
                .iter()
                .any(|own| line.contains(own))
        })
        .collect();
    assert!(own.is_empty() && done.status.success(), "{done:?}");
}
