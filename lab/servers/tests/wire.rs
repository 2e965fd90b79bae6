//! Tests of the wire, the proxy that injects network faults.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lab_servers::{Raw, Redis, Reply, Traffic, Wire, request, until};

/// A server behind a wire, and a client that is connected through the wire.
struct Connection {
    redis: Redis,
    wire: Wire,
    client: Raw,
}

impl Connection {
    fn new() -> Self {
        let redis = Redis::start();
        let wire = Wire::to(redis.address());
        let client = connect(&wire);
        Self {
            redis,
            wire,
            client,
        }
    }

    fn pings(&mut self) {
        pings(&mut self.client);
    }

    /// Asserts that the client does not receive a reply for a moment.
    fn is_silent(&mut self) {
        self.client
            .wait_at_most(Duration::from_millis(20))
            .expect("the timeout is not zero");
        assert_eq!(
            self.client
                .receive_reply()
                .expect_err("the wire does not deliver a reply")
                .kind(),
            ErrorKind::WouldBlock
        );

        self.client
            .wait_at_most(Duration::from_secs(60))
            .expect("the timeout is not zero");
    }

    fn send(&mut self, words: &[&str]) {
        self.client
            .send(&request(words))
            .expect("the connection is open");
    }

    fn reply(&mut self) -> Reply {
        let reply = self.client.receive_reply();
        reply.expect("the server replies")
    }

    fn until(&self, what: &str, is_so: impl Fn(Traffic) -> bool) {
        until(what, || Ok(is_so(self.wire.traffic()).then_some(())))
            .expect("the condition becomes true");
    }
}

fn connect(wire: &Wire) -> Raw {
    Raw::connect(wire.address()).expect("a wire accepts connections")
}

fn pings(client: &mut Raw) {
    assert_eq!(
        client
            .request(&["PING"])
            .expect("the server replies")
            .text(),
        "PONG"
    );
}

/// Asserts that the connection has ended, by a reset or by an orderly close.
fn is_cut(client: &mut Raw) {
    let error = client
        .request(&["PING"])
        .expect_err("the connection is cut");
    assert!(
        !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
}

/// Asserts that the wire closes a new connection at once. The reset may arrive so early that the
/// connect itself fails.
fn is_refused(wire: &Wire) {
    if let Ok(mut refused) = Raw::connect(wire.address()) {
        is_cut(&mut refused);
    }
}

#[test]
fn wire_forwards_and_counts_all_bytes() {
    let mut connection = Connection::new();
    assert_eq!(
        connection.wire.url_of("redis"),
        format!("redis://127.0.0.1:{}", connection.wire.port())
    );

    let big = "x".repeat(5_000_000);
    let echo = request(&["ECHO", &big]);
    let reply = connection
        .client
        .request_bytes(&echo)
        .expect("the server replies")
        .len();
    pings(&mut connect(&connection.wire));

    let traffic = connection.wire.traffic();
    assert_eq!(traffic.connections, 2);
    assert_eq!(
        traffic.to_server,
        (echo.len() + request(&["PING"]).len()) as u64
    );
    assert_eq!(traffic.to_client, (reply + "+PONG\r\n".len()) as u64);
    assert_eq!(
        (
            traffic.lost,
            traffic.waiting_to_server,
            traffic.waiting_to_client
        ),
        (0, 0, 0)
    );

    connection.until("the closed connection to be forgotten", |traffic| {
        traffic.present == 1
    });
    connection.pings();
}

#[test]
fn closed_connection_is_forwarded_both_ways() {
    let mut connection = Connection::new();
    let mut other = connect(&connection.wire);
    other
        .send(&request(&["PING"]))
        .expect("the connection is open");
    other
        .stream()
        .shutdown(std::net::Shutdown::Write)
        .expect("the connection is open");
    assert_eq!(
        other
            .receive_reply()
            .expect("the server replies before it closes")
            .text(),
        "PONG"
    );
    assert_eq!(
        other
            .receive_reply()
            .expect_err("the server closes too")
            .kind(),
        ErrorKind::UnexpectedEof
    );

    connection.pings();
    connection.redis.kill();
    is_cut(&mut connection.client);
    is_refused(&connection.wire);
    connection.redis.restart();
    connection.client = connect(&connection.wire);
    connection.pings();
}

#[test]
fn delay_applies_each_way_without_reducing_throughput() {
    const DELAY: Duration = Duration::from_millis(20);
    const REQUESTS: u32 = 200;

    let mut connection = Connection::new();
    connection.wire.delay(DELAY);
    let begun = Instant::now();
    connection.pings();
    assert!(begun.elapsed() >= 2 * DELAY, "{:?}", begun.elapsed());

    let begun = Instant::now();
    for _ in 0..REQUESTS {
        connection.send(&["PING"]);
    }

    for _ in 0..REQUESTS {
        assert_eq!(connection.reply().text(), "PONG");
    }

    // One after the other, they would take a hundred times as long.
    let elapsed = begun.elapsed();
    assert!(
        elapsed >= 2 * DELAY && elapsed < REQUESTS * DELAY,
        "{elapsed:?}"
    );

    connection.wire.delay(Duration::ZERO);
    connection.pings();
}

#[test]
fn jitter_keeps_the_order() {
    const LEAST: Duration = Duration::from_millis(2);
    const REQUESTS: u32 = 50;

    let mut connection = Connection::new();
    connection.wire.jitter(LEAST..10 * LEAST);
    let begun = Instant::now();
    for number in 0..REQUESTS {
        connection.send(&["ECHO", &number.to_string()]);
    }

    for number in 0..REQUESTS {
        assert_eq!(connection.reply().text(), number.to_string());
    }

    assert!(begun.elapsed() >= 2 * LEAST, "{:?}", begun.elapsed());
    connection.wire.delay(Duration::ZERO);
    connection.pings();
}

#[test]
fn lost_packets_arrive_late_and_in_order() {
    let mut connection = Connection::new();
    connection.wire.packet_loss(0.3);

    let mut number = 0;
    let begun = Instant::now();
    while connection.wire.traffic().resent == 0 {
        connection.send(&["ECHO", &number.to_string()]);
        assert_eq!(connection.reply().text(), number.to_string());
        number += 1;
    }

    assert!(
        begun.elapsed() >= Duration::from_millis(200),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(connection.wire.traffic().lost, 0);

    connection.wire.delay(Duration::ZERO);
    connection.pings();
}

#[test]
fn tiny_segments_arrive_complete_and_slowly() {
    let mut connection = Connection::new();
    connection.wire.tiny_segments(true);

    let text = "0123456789".repeat(30);
    let begun = Instant::now();
    connection.send(&["ECHO", &text]);
    assert_eq!(connection.reply().text(), text);
    // The wire forwards three bytes at a time in each direction, and pauses 0.1 ms after each
    // segment.
    assert!(
        begun.elapsed() >= Duration::from_millis(20),
        "{:?}",
        begun.elapsed()
    );

    connection.wire.tiny_segments(false);
    connection.pings();
}

/// A wire that delays one direction only, or rounds a short delay down, fails. `cargo bench -p
/// lab-servers` measures by how much a delay is exceeded.
#[test]
fn round_trip_takes_both_delays() {
    const DELAY: Duration = Duration::from_micros(500);
    let mut connection = Connection::new();
    connection.wire.delay(DELAY);

    let trip = |_| {
        let begun = Instant::now();
        connection.pings();
        begun.elapsed()
    };
    let shortest = (0..500).map(trip).min().expect("there were trips");
    assert!(shortest >= 2 * DELAY, "{shortest:?}");
}

#[test]
fn partitioned_wire_accepts_new_connections() {
    let mut connection = Connection::new();
    let mut other = connect(&connection.wire);
    pings(&mut other);
    connection.pings();
    connection.wire.partition();
    assert_eq!(connection.wire.traffic().present, 0);
    is_cut(&mut connection.client);
    is_cut(&mut other);
    connection.client = connect(&connection.wire);
    connection.pings();
    assert_eq!(connection.wire.traffic().connections, 3);
}

#[test]
fn bytes_in_flight_are_lost_on_partition() {
    let mut connection = Connection::new();
    connection.wire.delay(Duration::from_secs(3600));
    connection.send(&["SET", "name", "7"]);
    connection.until("the request to be in flight", |traffic| {
        traffic.waiting_to_server > 0
    });
    connection.wire.partition();
    is_cut(&mut connection.client);
    assert!(connection.redis.command(&["GET", "name"]).is_nil());
}

#[test]
fn partition_releases_a_blocked_sender() {
    let mut connection = Connection::new();
    connection.redis.pause();

    let address = connection.wire.address();
    let sender = std::thread::spawn(move || {
        let mut client = Raw::connect(address).expect("a wire accepts connections");
        let value = request(&["SET", "name", &"x".repeat(1_000_000)]);
        while client.send(&value).is_ok() {}
    });
    // The value is larger than the socket buffers. So the sender waits for the server, which is
    // paused.
    let mut seen = 0;
    until("the sender to be stuck", || {
        let now = connection.wire.traffic().to_server;
        let stuck = now > 0 && now == std::mem::replace(&mut seen, now);
        Ok(stuck.then_some(()))
    })
    .expect("sockets are finite");
    connection.wire.partition();
    sender.join().expect("the cut releases the sender");
    connection.redis.resume();
    connection.client = connect(&connection.wire);
    connection.pings();
}

#[test]
fn refusing_wire_keeps_existing_connections() {
    let mut connection = Connection::new();
    connection.pings();
    connection.wire.refuse(true);
    is_refused(&connection.wire);
    connection.pings();
    connection.until("the refusal to be counted", |traffic| traffic.refused == 1);
    connection.wire.refuse(false);
    pings(&mut connect(&connection.wire));
    assert_eq!(connection.wire.traffic().connections, 2);
}

#[test]
fn frozen_wire_forwards_nothing_until_thawed() {
    let mut connection = Connection::new();
    connection.pings();
    connection.wire.freeze(true);
    connection.send(&["PING"]);

    let mut late = connect(&connection.wire);
    late.send(&request(&["INCR", "count"]))
        .expect("the connection is open");
    connection.until("a request to be queued", |traffic| {
        traffic.waiting_to_server > 0 && traffic.connections == 2
    });
    connection.is_silent();
    assert!(connection.redis.command(&["GET", "count"]).is_nil());

    connection.wire.freeze(false);
    assert_eq!(connection.reply().text(), "PONG");
    assert_eq!(late.receive_reply().expect("the wire is thawed").int(), 1);
}

#[test]
fn frozen_wire_does_not_forward_a_close() {
    let mut connection = Connection::new();
    connection.pings();
    connection.wire.freeze(true);
    connection.redis.kill();
    connection.is_silent();

    let mut late = connect(&connection.wire);
    connection.until("the late connection to be accepted", |traffic| {
        traffic.connections == 2
    });
    connection.wire.partition();
    is_cut(&mut connection.client);
    is_cut(&mut late);
    connection.wire.freeze(false);
    connection.redis.restart();
    pings(&mut connect(&connection.wire));
}

#[test]
fn held_replies_arrive_later() {
    let mut connection = Connection::new();
    connection.wire.hold_replies(true);
    connection.send(&["INCR", "count"]);
    connection.until("a reply to be held", |traffic| {
        traffic.waiting_to_client > 0
    });
    assert_eq!(connection.redis.command(&["GET", "count"]).text(), "1");

    connection.send(&["INCR", "count"]);
    connection.is_silent();
    connection.wire.hold_replies(false);
    assert_eq!(connection.reply().int(), 1);
    assert_eq!(connection.reply().int(), 2);

    connection.until("the queue of replies to be empty", |traffic| {
        traffic.waiting_to_client == 0
    });
    connection.pings();
}

#[test]
fn lost_reply_follows_an_executed_request() {
    let mut connection = Connection::new();
    connection.pings();
    connection.wire.lose_replies(true);

    for client in [&mut connection.client, &mut connect(&connection.wire)] {
        client
            .send(&request(&["INCR", "count"]))
            .expect("the connection is open");
    }

    connection.until("two replies to be lost", |traffic| traffic.lost == 8);
    assert_eq!(connection.redis.command(&["GET", "count"]).text(), "2");
    connection.wire.lose_replies(false);
    pings(&mut connect(&connection.wire));
    // A TCP stream does not continue after a gap.
    connection.send(&["PING"]);
    connection.is_silent();
    connection.wire.partition();
    is_cut(&mut connection.client);
}

#[test]
fn deafen_affects_only_existing_connections() {
    let mut connection = Connection::new();
    connection.pings();
    connection.wire.drop_replies_silently();
    pings(&mut connect(&connection.wire));
    connection.send(&["INCR", "count"]);
    connection.until("a reply to be lost", |traffic| traffic.lost == 4);
    connection.is_silent();
}

#[test]
fn exact_number_of_replies_is_dropped() {
    let mut connection = Connection::new();
    connection.pings();
    connection.wire.drop_replies(1);
    connection.send(&["INCR", "count"]);
    connection.until("a reply to be lost", |traffic| traffic.lost == 4);
    pings(&mut connect(&connection.wire));
    connection.is_silent();
}

#[test]
fn dropped_wire_closes_its_port() {
    let mut connection = Connection::new();
    connection.pings();
    let address = connection.wire.address();
    drop(connection.wire);
    is_cut(&mut connection.client);
    TcpStream::connect(address).expect_err("no server listens");
}
