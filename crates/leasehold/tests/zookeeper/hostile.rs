//! A server that sends invalid replies, and records the requests.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use leasehold::Locks;
use leasehold::store::Store as _;
use leasehold::stores::ZooKeeper;
use leasehold_conformance::support::claim;
use rustix::net::sockopt::set_socket_linger;
use tokio::time::timeout;

/// The server's protocol, a timeout that each test replaces, a session with its password, and
/// whether it is read-only.
const CONNECTED: &[u8] = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\x10pppppppppppppppp\0";
/// The transaction and no error, which follow the number of the request.
const SUCCESS: &[u8] = b"\0\0\0\0\0\0\0\x09\0\0\0\0";
const EMPTY_PATH: &[u8] = b"\0\0\0\0";
const ROOT: &[u8] = b"\0\0\0\x01/";
/// The kinds of requests.
const LIST: u8 = 8;
const SYNC: u8 = 9;
const PING: u8 = 11;
const MULTI: u8 = 14;

/// The client library panics at such a reply.
#[tokio::test]
async fn empty_path_in_a_reply_is_an_error() {
    let (url, _requests) = serve(10_000, EMPTY_PATH);
    let builder = ZooKeeper::builder(&url).expect("the URL is valid");
    let store = builder.connect().await.expect("the server replies");
    let locks = Locks::from_store(store, &url).expect("the machine has a timer");
    let acquired = timeout(Duration::from_secs(30), locks.mutex("job").try_acquire()).await;
    let error = acquired.expect("the acquire ends").expect_err("no path");

    assert!(error.to_string().contains("invalid reply"), "{error}");
}

/// A write alone does not prove a session: see `liveness.rs`.
///
/// Shows G-12.
#[tokio::test]
async fn heartbeat_sends_a_sync_before_its_write() {
    let (url, requests) = serve(1_000, ROOT);
    let builder = ZooKeeper::builder(&url).expect("the URL is valid");
    let _store = builder.connect().await.expect("the server replies");

    let kinds = requests.iter().filter(|kind| *kind != PING);
    assert!(kinds.take(2).eq([SYNC, MULTI]));
}

/// Shows G-28.
#[tokio::test]
async fn connection_that_is_reset_is_reported_as_broken() {
    let (url, _requests) = serve(10_000, ROOT);
    let builder = ZooKeeper::builder(&url).expect("the URL is valid");
    let store = builder.connect().await.expect("the server replies");

    let inspected = store.inspect(&claim("job").name).await;
    let error = inspected.expect_err("it is reset");
    let text = error.to_string();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(text.contains("the connection broke"), "{text}");
}

/// Starts a server of one session, and returns its URL and the kinds of the requests.
fn serve(session_millis: u32, value: &'static [u8]) -> (String, Receiver<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (kinds, requests) = mpsc::channel();
    thread::spawn(move || reply(listener.accept()?.0, session_millis, value, &kinds));
    (format!("zookeeper://{address}/locks"), requests)
}

/// Replies to the request to connect, and to all further ones with a value. Resets the connection
/// at a request for a listing.
fn reply(
    mut stream: TcpStream,
    session_millis: u32,
    value: &[u8],
    kinds: &Sender<u8>,
) -> io::Result<()> {
    read_request(&mut stream)?;
    let mut connected = CONNECTED.to_vec();
    connected[4..8].copy_from_slice(&session_millis.to_be_bytes());
    send(&mut stream, &connected)?;
    loop {
        let request = read_request(&mut stream)?;
        // The first test does not receive them.
        let _ = kinds.send(request[7]);
        if request[7] == LIST {
            set_socket_linger(&stream, Some(Duration::ZERO))?;
            return Ok(());
        }
        send(&mut stream, &[&request[..4], SUCCESS, value].concat())?;
    }
}

fn send(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    let len = u32::try_from(frame.len()).expect("a short frame");
    stream.write_all(&[&len.to_be_bytes(), frame].concat())
}

fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut request = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut request)?;
    Ok(request)
}
