//! A server that sends invalid replies.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use leasehold::Locks;
use leasehold::stores::ZooKeeper;
use tokio::time::timeout;

/// The server's protocol, a timeout of ten seconds, a session with its password, and whether it is
/// read-only.
const CONNECTED: &[u8] = b"\0\0\0\0\0\0\x27\x10\0\0\0\0\0\0\0\x07\0\0\0\x10pppppppppppppppp\0";
/// The transaction and no error, which follow the number of the request.
const SUCCESS: &[u8] = b"\0\0\0\0\0\0\0\x09\0\0\0\0";
const EMPTY_PATH: &[u8] = b"\0\0\0\0";

/// The client library panics at such a reply.
#[tokio::test]
async fn empty_path_in_a_reply_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!(
        "zookeeper://{}/locks",
        listener.local_addr().expect("it is bound")
    );
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        reply(stream)
    });

    let builder = ZooKeeper::builder(&url).expect("the URL is valid");
    let store = builder.connect().await.expect("the server replies");
    let locks = Locks::from_store(store, &url).expect("the machine has a timer");
    let acquired = timeout(Duration::from_secs(30), locks.mutex("job").try_acquire()).await;
    let error = acquired.expect("the acquire ends").expect_err("no path");

    assert!(error.to_string().contains("invalid reply"), "{error}");
}

/// Replies to the request to connect, to the first request without a value, and to all further
/// ones with an empty path.
fn reply(mut stream: TcpStream) -> io::Result<()> {
    read_request(&mut stream)?;
    send(&mut stream, CONNECTED)?;
    let first = read_request(&mut stream)?;
    send(&mut stream, &[&first[..4], SUCCESS].concat())?;
    loop {
        let request = read_request(&mut stream)?;
        send(&mut stream, &[&request[..4], SUCCESS, EMPTY_PATH].concat())?;
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
