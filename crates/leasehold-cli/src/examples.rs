//! The examples of `--help` and the man pages.

use clap::Command;

/// The examples of one subcommand: what each does, and what to type.
pub(crate) type Examples = &'static [(&'static str, &'static str)];

/// Adds the examples of a subcommand to its help, before the other tables.
pub(crate) fn add_to_help(command: Command) -> Command {
    let examples = of(command.get_name());
    if examples.is_empty() {
        return command;
    }

    let tables = command
        .get_after_long_help()
        .map_or_else(String::new, |tables| format!("\n{tables}"));
    command.after_long_help(format!("{}{tables}", text(examples)))
}

/// Returns the examples of leasehold itself or of a subcommand.
pub(crate) fn of(subcommand: &str) -> Examples {
    let found = EXAMPLES.iter().find(|(name, _)| *name == subcommand);
    found.map_or(&[], |(_, examples)| *examples)
}

fn text(examples: Examples) -> String {
    let examples = examples
        .iter()
        .map(|(purpose, line)| format!("  # {purpose}\n  {line}\n"));
    format!("Examples:\n{}", examples.collect::<String>())
}

const EXAMPLES: &[(&str, Examples)] = &[
    (
        "leasehold",
        &[
            (
                "Run a job under a lock of this machine",
                "leasehold run nightly -- /usr/local/bin/nightly.sh",
            ),
            (
                "The same on many machines, with a Redis server",
                "LEASEHOLD_STORE=redis://host:6379 leasehold run nightly -- nightly.sh",
            ),
            ("See who holds and who waits", "leasehold show nightly"),
        ],
    ),
    (
        "run",
        &[
            (
                "Wait for the lock, then run a job",
                "leasehold run backup -- /usr/local/bin/backup.sh --full",
            ),
            (
                "Skip this run if the one before is not done; cron sends no mail",
                "leasehold run -nq -E 0 report -- report.sh",
            ),
            (
                "Wait at most 30 seconds, then run a line of a shell",
                "leasehold run -w 30 deploy -c 'git pull && make install'",
            ),
            (
                "One of several machines runs the job, although their clocks differ",
                "leasehold run -n --store redis://host --hold-at-least 1m nightly -- nightly.sh",
            ),
            (
                "Readers share the lock, a writer excludes all",
                "leasehold run --shared tables -- report.sh",
            ),
            (
                "At most four conversions at once, each with a number from 0 to 3",
                "leasehold run --slots 4 gpu -c 'convert --device $LEASEHOLD_SLOT'",
            ),
            (
                "Hold two locks",
                "leasehold run accounts orders -- migrate.sh",
            ),
        ],
    ),
    (
        "elect",
        &[(
            "Run the scheduler on one of several machines",
            "leasehold elect scheduler --address \"$(hostname):8080\" -- ./scheduler",
        )],
    ),
    (
        "hold",
        &[
            (
                "Hold a lock while a program runs that is already started",
                "leasehold hold maintenance --while-pid 4711",
            ),
            (
                "Hold a lock in a coprocess of bash",
                "coproc L { leasehold hold deploy; }; read -u ${L[0]} token",
            ),
        ],
    ),
    (
        "acquire",
        &[(
            "Hold a lock for several commands of a script",
            "token=$(leasehold acquire deploy --while-pid $$) || exit",
        )],
    ),
    (
        "release",
        &[(
            "Release what `acquire` has acquired",
            "leasehold release deploy --token \"$token\"",
        )],
    ),
    (
        "wait",
        &[(
            "Wait until a deployment is over, for ten minutes at most",
            "leasehold wait -w 10m deploy",
        )],
    ),
    (
        "ls",
        &[
            (
                "All locks whose names begin with orders/",
                "leasehold ls orders/",
            ),
            (
                "The names of all locks in use",
                "leasehold ls --json | jq -r '.[].name'",
            ),
        ],
    ),
    (
        "show",
        &[
            ("Holders and waiters", "leasehold show backup"),
            (
                "Whether a lock is in use, in a script",
                "if ! leasehold show --exit-code backup >/dev/null; then echo busy; fi",
            ),
        ],
    ),
    (
        "watch",
        &[(
            "Follow a lock as JSON, one line per change",
            "leasehold watch --json backup",
        )],
    ),
    (
        "break",
        &[(
            "Revoke a hold, with the token that `show` prints",
            "leasehold break backup --token 42",
        )],
    ),
    (
        "doctor",
        &[(
            "Check the store before a deployment",
            "leasehold doctor --store redis://host:6379",
        )],
    ),
    (
        "serve",
        &[
            (
                "Open http://127.0.0.1:7354/ on this machine",
                "leasehold serve --store redis://host:6379",
            ),
            (
                "For a network, with a token that only its owner may read",
                "(umask 077; openssl rand -hex 32 > token)\n  \
                 leasehold serve --listen 0.0.0.0:7354 --token-file token",
            ),
        ],
    ),
    (
        "gc",
        &[(
            "Remove the files that crashed processes have left, daily",
            "leasehold gc --store system:",
        )],
    ),
    (
        "setup-system",
        &[(
            "Let root and the users of the group deploy share locks",
            "leasehold setup-system --group deploy",
        )],
    ),
    (
        "man",
        &[
            ("Read a page", "leasehold man run | man -l -"),
            (
                "Install all pages",
                "leasehold man --all /usr/local/share/man/man1",
            ),
        ],
    ),
    (
        "completions",
        &[(
            "Completions of bash, for this user",
            "leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold",
        )],
    ),
];
