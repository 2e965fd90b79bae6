//! The replies of a hostile ZooKeeper server.
//!
//! An input is a list of frames, each after its length in two bytes. The first one replies to the
//! request to connect, and each further one to the next request. In a frame, `xid?` at the begin is
//! the number of that request. A frame that begins with `raw?` is sent without its length.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leasehold::Locks;
use leasehold::stores::ZooKeeper;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// A client that waits for a reply longer than this has passed all parsers.
const OPERATION_MAX: Duration = Duration::from_millis(100);
/// A longer request is not one of a client.
const REQUEST_MAX: usize = 1024 * 1024;

pub(super) fn run(input: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let server = serve(listener, frames(input));

    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime is built");
    runtime.block_on(use_store(&format!("zookeeper://{address}/locks")));
    drop(server);
}

fn frames(input: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = input;
    while let Some((len, tail)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len)).min(tail.len());
        let (frame, tail) = tail.split_at(len);
        frames.push(frame.to_vec());
        rest = tail;
    }
    frames
}

async fn use_store(url: &str) {
    let builder = ZooKeeper::builder(url).expect("the URL is valid");
    let Ok(Ok(store)) = timeout(OPERATION_MAX, builder.connect()).await else {
        return;
    };
    let locks = Locks::from_store(store, url).expect("the machine has a timer");

    // Each of them may fail or wait, and none may panic.
    let _guard = timeout(OPERATION_MAX, locks.mutex("job").try_acquire()).await;
    let _state = timeout(OPERATION_MAX, locks.inspect("job")).await;
    let _names = timeout(OPERATION_MAX, locks.list("", 10)).await;
}

/// Serves one connection in a thread, until the frames or the requests end.
fn serve(listener: TcpListener, frames: Vec<Vec<u8>>) -> JoinHandle<()> {
    thread::spawn(move || {
        if let Ok((stream, _)) = listener.accept() {
            // The client closes the connection whenever it likes.
            let _ = reply(stream, &frames);
        }
    })
}

fn reply(mut stream: TcpStream, frames: &[Vec<u8>]) -> io::Result<()> {
    stream.set_read_timeout(Some(OPERATION_MAX * 4))?;
    for frame in frames {
        let request = read_request(&mut stream)?;
        let xid = request.first_chunk::<4>().copied().unwrap_or_default();

        if let Some(raw) = frame.strip_prefix(b"raw?") {
            stream.write_all(raw)?;
            continue;
        }
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let mut message = len.to_be_bytes().to_vec();
        match frame.strip_prefix(b"xid?") {
            Some(rest) => {
                message.extend(xid);
                message.extend(with_short_list(rest));
            }
            None => message.extend(frame),
        }
        stream.write_all(&message)?;
    }
    Ok(())
}

/// Bounds the length of a list of children.
///
/// The client library allocates what a list claims to need, which FOUND.md has as F-151.
fn with_short_list(reply: &[u8]) -> Vec<u8> {
    const AT: usize = 12;
    let mut reply = reply.to_vec();
    if let Some(len) = reply.get_mut(AT..AT + 2) {
        len.fill(0);
    }
    reply
}

fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(REQUEST_MAX);

    let mut request = vec![0; len.min(REQUEST_MAX)];
    stream.read_exact(&mut request)?;
    Ok(request)
}
