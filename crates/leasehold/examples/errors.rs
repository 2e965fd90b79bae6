//! Seven mistakes, and one `match` that decides what to do about each.
//!
//! A busy lock is none of them: `try_acquire` then returns who holds it, as a `Refused`.

use leasehold::{Error, ErrorKind};

/// Makes the mistakes.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::open("memory:").await?;
    let _reader = locks.rwlock("config").shared().acquire().await?;
    let mutex = locks.mutex("report").acquire().await?;
    let broken = locks.mutex("broken").acquire().await?;
    locks.break_hold("broken", broken.token()).await?;
    let twice = locks.multi_lock(["account/3", "account/3"]);

    let mistakes = [
        leasehold::open("redsi://host").await.err(),
        locks.mutex("").acquire().await.err(),
        twice.acquire().await.err(),
        locks.semaphore("config", 4).acquire().await.err(),
        mutex.downgrade().await.err(),
        broken.check().err(),
        leasehold::open("redis://127.0.0.1:1").await.err(),
    ];

    let errors: Vec<Error> = mistakes.into_iter().flatten().collect();
    for error in &errors {
        println!("{error}\n=> {}", what_to_do(error.kind()));
    }
    let kinds: Vec<&str> = errors.iter().map(|error| error.kind().as_str()).collect();
    let expected = "invalid invalid invalid mismatch unsupported lost unavailable";
    assert_eq!(kinds.join(" "), expected);
    Ok(())
}

fn what_to_do(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Lost => "stop the work, and repeat it under a new token",
        ErrorKind::Unavailable => "try again later",
        ErrorKind::Invalid | ErrorKind::Mismatch => "correct the program",
        ErrorKind::Unsupported => "use another store, or do without",
        // Denied, damaged, and what later versions add.
        _ => "call an operator",
    }
}
