//! Only one of N does the nightly work; the others skip it.

/// Skips the work if somebody else is at it.
pub fn main() -> leasehold::Result<()> {
    let locks = leasehold::blocking::open("file:")?;
    let lock = locks.mutex("nightly").label("report");
    let Some(guard) = lock.try_acquire()? else {
        println!("somebody else is at it");
        return Ok(());
    };
    println!("working under token {}", guard.token());
    guard.release()
}
