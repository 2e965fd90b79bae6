//! Closing the session of another client.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use super::{TIMEOUT, ZooKeeper};

/// The secret from which the server makes the password of a session, together with the session's id
/// (`ZooKeeperServer.superSecret`).
const SECRET: i64 = 0xB341_5C00;
const CLOSE_SESSION: i32 = -11;

impl ZooKeeper {
    /// The ids of all sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        let printed = self.request("cons").expect("a living server replies");
        let mut ids: Vec<i64> = printed
            .lines()
            .filter_map(|line| line.split("sid=0x").nth(1)?.split([',', ')']).next())
            .filter_map(|id| u64::from_str_radix(id, 16).ok())
            .map(u64::cast_signed)
            .filter(|id| *id != 0)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Takes a session over and closes it. Returns whether the session existed.
    ///
    /// # Errors
    /// Fails if the server does not reply.
    pub fn close_session(&self, session: i64) -> io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;

        let timeout: i32 = 10_000;
        let password = password(session);
        let size = i32::try_from(password.len()).expect("16 bytes");
        let greeting = [
            &0_i32.to_be_bytes()[..],
            &0_i64.to_be_bytes(),
            &timeout.to_be_bytes(),
            &session.to_be_bytes(),
            &size.to_be_bytes(),
            &password,
            &[0],
        ];
        send(&mut stream, &greeting.concat())?;

        // The server closes the connection if the session does not exist.
        let reply = receive(&mut stream).unwrap_or_default();
        // Version and timeout precede the id of the session that the server grants, or 0.
        let is_there = reply.get(8..16) == Some(&session.to_be_bytes());
        if is_there {
            close(&mut stream)?;
        }
        Ok(is_there)
    }
}

fn close(stream: &mut TcpStream) -> io::Result<()> {
    send(
        stream,
        &[1_i32.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat(),
    )?;
    // The server closes the connection, with a reply or without one.
    let _ = receive(stream);
    Ok(())
}

fn send(stream: &mut TcpStream, packet: &[u8]) -> io::Result<()> {
    let size = i32::try_from(packet.len()).expect("a small packet");
    stream.write_all(&[&size.to_be_bytes()[..], packet].concat())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let mut packet = vec![
        0;
        usize::try_from(i32::from_be_bytes(size))
            .expect("the size of a packet is not negative")
    ];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

/// Computes the password of a session as servers do: the first 16 bytes of `java.util.Random` with
/// a seed made from the session's id.
fn password(session: i64) -> [u8; 16] {
    const FACTOR: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = ((session ^ SECRET).cast_unsigned() ^ FACTOR) & MASK;
    let mut password = [0; 16];
    for bytes in password.chunks_mut(4) {
        state = (state.wrapping_mul(FACTOR) + 0xB) & MASK;
        let word = u32::try_from(state >> 16).expect("48 bits less 16");
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    password
}
