//! Many clients read a file and one replaces it. The writer then reads on as a reader, and no other
//! writer comes in between.

/// Writes as the writer and reads as a reader.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("file:").await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");

    let guard = locks.rwlock("config").exclusive().acquire().await?;
    std::fs::write(&path, "colour = blue")?;

    guard.downgrade().await?;
    assert_eq!(std::fs::read_to_string(&path)?, "colour = blue");

    guard.release().await?;
    Ok(())
}
