//! A connection to a server that replies to each request with its last part.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use futures_util::poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, DuplexStream, duplex};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::client::request::write_part;
use crate::client::session::PushHandler;

fn ignored() -> PushHandler {
    Arc::new(|_, _| {})
}

/// Returns a connection whose driver is not spawned, and the server's end.
fn connected(size: usize) -> (Arc<Wire>, Driver<impl AsyncRead + Unpin>, DuplexStream) {
    let (client, server) = duplex(size);
    let (reader, writer) = tokio::io::split(client);
    let (wire, driver) = Wire::new(reader, writer, Pushes::Marked, ignored());
    wire.logged_in();
    (wire, driver, server)
}

fn open(size: usize) -> (Arc<Wire>, DuplexStream) {
    let (wire, driver, server) = connected(size);
    tokio::spawn(driver.drive());
    (wire, server)
}

fn echo(text: &str) -> Command {
    let mut request = command("ECHO");
    request.arg(text);
    request
}

/// Reads the requests that have arrived; returns the last part of each.
async fn requests(server: &mut DuplexStream, reader: &mut Reader) -> Option<Vec<Vec<u8>>> {
    let count = server
        .read(reader.space())
        .await
        .expect("the client writes");
    reader.add(count);
    let mut parts = Vec::new();
    while let Some(frame) = reader.next(REPLY_MAX).expect("the client writes requests") {
        let Value::Array(mut request) = frame.parse().expect("a request") else {
            panic!("a request is an array");
        };
        match request.pop() {
            Some(Value::Text(text)) => parts.push(text.to_vec()),
            other => panic!("a request ends with {other:?}"),
        }
    }
    (count > 0).then_some(parts)
}

/// Replies to all requests, with a message before each reply.
async fn serve(mut server: DuplexStream) {
    let mut reader = Reader::new();
    while let Some(parts) = requests(&mut server, &mut reader).await {
        for part in parts {
            let mut reply = b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n".to_vec();
            write_part(&mut reply, &part);
            if server.write_all(&reply).await.is_err() {
                return;
            }
        }
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), future)
        .await
        .expect("nothing hangs")
}

/// Many tasks send; some drop their futures at a poll.
async fn send_and_give_up(size: usize) {
    let (wire, server) = open(size);
    tokio::spawn(serve(server));
    let replies = Arc::new(AtomicUsize::new(0));

    let tasks = (0..64).map(|task| {
        let wire = Arc::clone(&wire);
        let replies = Arc::clone(&replies);
        tokio::spawn(async move {
            for number in 0..100 {
                let text = format!("{task}.{number}.{}", "x".repeat(number % 7 * 30));
                let request = echo(&text);
                let mut reply = std::pin::pin!(wire.send(&request));
                if (task + number) % 5 == 0 {
                    for _ in 0..number % 3 {
                        // On another thread the reply may have arrived already.
                        if poll!(&mut reply).is_ready() {
                            break;
                        }
                        yield_now().await;
                    }
                    continue;
                }
                assert_eq!(reply.await.expect("a reply"), Value::Text(text.into()));
                replies.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let ended = soon(join_all(tasks)).await;
    for ended in ended {
        ended.expect("no panic");
    }
    assert_eq!(replies.load(Ordering::Relaxed), 64 * 80);

    // Nothing is left of the calls that were given up.
    wire.send(&echo("last")).await.expect("a reply");
    let state = wire.state.lock();
    assert_eq!(state.expected.len(), 0);
    assert_eq!(state.calls.open(), 0);
    assert_eq!(wire.places.available_permits(), REQUESTS_MAX);
}

#[tokio::test]
async fn every_reply_belongs_to_its_request_on_one_thread() {
    send_and_give_up(1 << 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reply_belongs_to_its_request_on_threads() {
    send_and_give_up(1 << 16).await;
}

/// A write ends within a request, and continues when the server has read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reply_belongs_to_its_request_on_a_full_stream() {
    send_and_give_up(23).await;
}

#[tokio::test]
async fn large_requests_and_replies_pass_each_other() {
    let (wire, server) = open(1 << 12);
    tokio::spawn(serve(server));
    let texts: Vec<String> = (b'a'..=b'h')
        .map(|letter| char::from(letter).to_string().repeat(1 << 20))
        .collect();
    let requests: Vec<Command> = texts.iter().map(|text| echo(text)).collect();
    let replies = soon(join_all(requests.iter().map(|request| wire.send(request)))).await;
    for (reply, text) in replies.into_iter().zip(texts) {
        assert!(reply.expect("a reply") == Value::Text(text.into()));
    }
}

/// TLS keeps what is written until it is flushed.
#[tokio::test]
async fn requests_are_flushed() {
    let (client, server) = duplex(64);
    let (reader, writer) = tokio::io::split(client);
    let writer = BufWriter::with_capacity(4096, writer);
    let (wire, driver) = Wire::new(reader, writer, Pushes::Marked, ignored());
    tokio::spawn(driver.drive());
    tokio::spawn(serve(server));
    for text in ["a", &"b".repeat(1000), &"c".repeat(5000)] {
        let request = echo(text);
        let reply = soon(wire.send(&request)).await;
        assert_eq!(reply.expect("a reply"), Value::Text(text.into()));
    }
}

/// A caller may keep its future and never poll it again, as one does behind a `select!`.
#[tokio::test]
async fn caller_that_is_not_polled_holds_nobody_back() {
    let (wire, mut server) = open(1 << 16);
    let requests_sent = [echo("1"), echo("2"), echo("3")];
    let mut first = std::pin::pin!(wire.send(&requests_sent[0]));
    let mut second = std::pin::pin!(wire.send(&requests_sent[1]));
    let third = wire.send(&requests_sent[2]);
    assert!(poll!(&mut first).is_pending());
    yield_now().await;
    // It is not the first request, so it waits for others of the same turn.
    assert!(poll!(&mut second).is_pending());

    let mut reader = Reader::new();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let arrived = soon(requests(&mut server, &mut reader)).await;
        seen.extend(arrived.expect("the connection is open"));
    }
    assert_eq!(seen, [b"1", b"2"]);

    tokio::spawn(async move {
        server.write_all(b"+1\r\n+2\r\n").await.expect("it reads");
        serve(server).await;
    });
    assert_eq!(
        soon(third).await.expect("a reply"),
        Value::Text(b"3".into())
    );
}

/// Otherwise the connection would look silent, and be closed.
#[tokio::test]
async fn reply_counts_though_its_caller_is_not_polled() {
    let (wire, mut server) = open(1 << 16);
    let request = echo("1");
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    assert_eq!(wire.progress(), (true, 0));

    server.write_all(b"+1\r\n").await.expect("it reads");
    let counted = async {
        while wire.progress() != (false, 1) {
            yield_now().await;
        }
    };
    soon(counted).await;
}

#[tokio::test]
async fn more_requests_than_places_wait() {
    let (wire, server) = open(1 << 16);
    tokio::spawn(serve(server));
    let request = echo("x");
    let sending = (0..REQUESTS_MAX + 500).map(|_| wire.send(&request));
    for reply in soon(join_all(sending)).await {
        reply.expect("a reply");
    }
}

#[tokio::test]
async fn requests_end_with_the_connection() {
    let (wire, mut server) = open(1 << 16);
    let request = echo("x");
    let sending = join_all((0..REQUESTS_MAX + 5).map(|_| wire.send(&request)));
    let mut sending = std::pin::pin!(sending);
    assert!(poll!(&mut sending).is_pending());
    // The server closes the connection after it has replied once.
    let first = server.read_u8().await.expect("a request");
    assert_eq!(first, b'*');
    server.write_all(b"+x\r\n").await.expect("it reads");
    let first_reply = async {
        while wire.state.lock().expected.len() == REQUESTS_MAX {
            yield_now().await;
        }
    };
    soon(first_reply).await;
    drop(server);

    let replies = soon(sending).await;
    assert!(replies[0].is_ok());
    let mut others = replies[1..].iter();
    assert!(others.all(|reply| {
        reply
            .as_ref()
            .is_err_and(RequestError::is_connection_dropped)
    }));
    let later = wire.send(&request).now_or_never().expect("at once");
    assert!(later.is_err_and(|error| error.is_connection_dropped()));
}

/// No task polls the driver, so the request stays in the buffer.
#[tokio::test]
async fn request_that_the_driver_never_sees_fails_when_the_connection_closes() {
    let (wire, _driver, _server) = connected(4096);
    let request = command("PING");
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    wire.fail(RequestError::closed());

    let reply = soon(sending).await;
    assert!(reply.is_err_and(|error| error.is_connection_dropped()));
}

#[tokio::test]
async fn dropped_driver_ends_the_requests() {
    let (wire, driver, _server) = connected(4096);
    let driving = tokio::spawn(driver.drive());
    let request = command("PING");
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    driving.abort();
    let reply = soon(sending).await;
    assert!(reply.is_err_and(|error| error.is_connection_dropped()));
}

#[tokio::test]
async fn reply_without_a_request_ends_the_connection() {
    let (wire, mut server) = open(4096);
    let request = command("PING");
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    server.write_all(b"+1\r\n+2\r\n").await.expect("it reads");
    sending.await.expect("the first reply");
    let error = loop {
        match soon(wire.send(&request)).await {
            Ok(_) => yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(
        error,
        RequestError::Malformed(Malformed::Unrequested)
    ));
}

#[tokio::test]
async fn asking_is_sent_with_its_request() {
    let (wire, mut server) = open(4096);
    let request = echo("x");
    let mut sending = std::pin::pin!(wire.send_asking(&request));
    assert!(poll!(&mut sending).is_pending());

    let mut reader = Reader::new();
    let mut seen = Vec::new();
    while seen.is_empty() {
        seen = soon(requests(&mut server, &mut reader))
            .await
            .expect("open");
    }
    assert_eq!(seen, [&b"ASKING"[..], b"x"]);
    server.write_all(b"+OK\r\n+x\r\n").await.expect("it reads");
    assert_eq!(
        soon(sending).await.expect("a reply"),
        Value::Text(b"x".into())
    );
}

#[tokio::test]
async fn subscription_is_confirmed_by_its_push_alone() {
    let (wire, mut server) = open(4096);
    let request = command("SUBSCRIBE");
    let mut sending = std::pin::pin!(wire.subscribe(&request));
    assert!(poll!(&mut sending).is_pending());
    let pushes = b">3\r\n+message\r\n+a\r\n+b\r\n>2\r\n+invalidate\r\n_\r\n";
    server.write_all(pushes).await.expect("it reads");
    for _ in 0..10 {
        yield_now().await;
        assert!(poll!(&mut sending).is_pending());
    }
    server
        .write_all(b">3\r\n+subscribe\r\n+a\r\n:1\r\n")
        .await
        .expect("it reads");
    soon(sending).await.expect("a confirmation");

    // A confirmation for nobody is no reply to another request.
    let request = echo("x");
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    let confirmed = b">3\r\n+unsubscribe\r\n+a\r\n:0\r\n+x\r\n";
    server.write_all(confirmed).await.expect("it reads");
    assert_eq!(
        soon(sending).await.expect("a reply"),
        Value::Text(b"x".into())
    );
}

/// A server that refuses a client may close the connection before the client has read all.
#[tokio::test]
async fn cut_refusal_is_an_error_of_the_server_during_the_login_only() {
    for is_logged_in in [false, true] {
        let (wire, driver, mut server) = connected(4096);
        wire.state.lock().is_logged_in = is_logged_in;
        tokio::spawn(driver.drive());
        let request = command("HELLO");
        let mut sending = std::pin::pin!(wire.send(&request));
        assert!(poll!(&mut sending).is_pending());
        server.read_u8().await.expect("a request");
        server
            .write_all(b"-DENIED Redis is")
            .await
            .expect("it reads");
        drop(server);

        let reply = soon(sending).await;
        if is_logged_in {
            assert!(reply.is_err_and(|error| error.is_connection_dropped()));
        } else {
            let expected = ServerError::new(b"DENIED Redis is");
            assert_eq!(reply.expect("an error"), Value::Error(expected));
        }
    }
}

/// The runtime has not seen yet what the server wrote before it closed the connection.
///
/// Shows G-25.
#[tokio::test(start_paused = true)]
async fn last_words_that_arrive_after_a_failed_write_are_read() {
    let (reader, mut server) = duplex(4096);
    let (writer, gone) = duplex(4096);
    drop(gone);
    let (wire, driver) = Wire::new(reader, writer, Pushes::None, ignored());
    tokio::spawn(driver.drive());
    yield_now().await;

    let request = command("HELLO");
    let mut reply = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut reply).is_pending());
    yield_now().await;
    assert!(poll!(&mut reply).is_pending());
    server.write_all(b"-ERR full\r\n").await.expect("it fits");
    let expected = ServerError::new(b"ERR full");
    let reply = soon(reply).await;
    assert_eq!(
        reply.expect("an error of the server"),
        Value::Error(expected)
    );

    // The end of the connection is noticed, though nothing more arrives.
    let later = soon(wire.send(&request)).await;
    assert!(later.is_err_and(|error| error.is_connection_dropped()));
}

/// The write fails before the driver has read why the server has closed the connection.
#[tokio::test]
async fn last_words_are_read_after_a_write_has_failed() {
    let (wire, driver, mut server) = connected(4096);
    wire.state.lock().is_logged_in = false;
    tokio::spawn(driver.drive());
    let request = command("HELLO");
    let mut first = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut first).is_pending());
    server.read_u8().await.expect("a request");
    server.write_all(b"-ERR full\r\n").await.expect("it fits");
    drop(server);

    // The last of them does not wait for the driver, and writes.
    let others = join_all((0..FLIGHT).map(|_| wire.send(&request)));
    let mut others = std::pin::pin!(others);
    assert!(poll!(&mut others).is_pending());
    let expected = ServerError::new(b"ERR full");
    let reply = soon(first).await;
    assert_eq!(
        reply.expect("an error of the server"),
        Value::Error(expected)
    );
    for reply in soon(others).await {
        assert!(reply.is_err_and(|error| error.is_connection_dropped()));
    }
}

#[tokio::test]
async fn replies_are_small_before_the_login_is_complete() {
    let sizes = |len: usize| [format!("${len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
    let (wire, mut server) = open(1 << 17);
    let request = command("HELLO");
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    server
        .write_all(&sizes(LOGIN_REPLY_MAX))
        .await
        .expect("it fits");
    soon(sending).await.expect("it is logged in");

    let (wire, driver, mut server) = connected(1 << 17);
    wire.state.lock().is_logged_in = false;
    tokio::spawn(driver.drive());
    let mut sending = std::pin::pin!(wire.send(&request));
    assert!(poll!(&mut sending).is_pending());
    server
        .write_all(&sizes(LOGIN_REPLY_MAX))
        .await
        .expect("it fits");
    let refused = soon(sending).await;
    assert!(matches!(
        refused,
        Err(RequestError::Malformed(Malformed::Size))
    ));
}
