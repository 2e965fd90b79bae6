//! Only one of N processes does the nightly work; the others skip it.

/// Skips the work if another process does it.
pub fn main() -> leasehold::Result<()> {
    let locks = leasehold::blocking::open("file:")?;
    let lock = locks.mutex("nightly").label("report");
    let Some(guard) = lock.try_acquire()? else {
        println!("another process does it");
        return Ok(());
    };
    println!("working under token {}", guard.token());
    guard.release()
}
