//! Short messages of a fixed size on a local socket.

use std::io::{self, ErrorKind};

use tokio::net::UnixStream;

/// Reads a message of `N` bytes.
///
/// # Cancel safety
/// A dropped call loses the bytes that it has read.
pub(super) async fn read<const N: usize>(stream: &UnixStream) -> io::Result<[u8; N]> {
    let mut message = [0; N];
    let mut filled = 0;

    while filled < N {
        stream.readable().await?;
        match stream.try_read(&mut message[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(message)
}

/// Writes a message.
///
/// # Cancel safety
/// A dropped call may have sent part of the message.
pub(super) async fn write(stream: &UnixStream, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        stream.writable().await?;
        match stream.try_write(message) {
            Ok(count) => message = &message[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
