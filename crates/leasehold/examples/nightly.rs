//! Only one of N processes does the nightly work; the others skip it.

/// Skips the work if another process does it.
pub fn main() -> leasehold::Result<()> {
    let locks = leasehold::blocking::open("file:")?;
    let lock = locks.mutex("nightly").label("report");
    match lock.try_acquire()? {
        Ok(guard) => {
            println!("working under token {}", guard.token());
            guard.release()
        }
        Err(refused) => {
            println!("{refused}");
            Ok(())
        }
    }
}
