//! A wire does what a test asks of it.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lab_servers::{Raw, Redis, Traffic, Wire, request, until};

/// A server behind a wire, and a client of it.
struct Line {
    redis: Redis,
    wire: Wire,
    client: Raw,
}

impl Line {
    fn new() -> Self {
        let redis = Redis::start();
        let wire = Wire::to(redis.address());
        let client = connect(&wire);
        Self { redis, wire, client }
    }

    fn pings(&mut self) {
        pings(&mut self.client);
    }

    /// Nothing is heard for a moment.
    fn is_silent(&mut self) {
        self.client.wait_at_most(Duration::from_millis(20)).expect("a moment is something");
        assert_eq!(self.client.hear().expect_err("nothing passes").kind(), ErrorKind::WouldBlock);
        self.client.wait_at_most(Duration::from_secs(60)).expect("a minute is something");
    }

    fn send(&mut self, words: &[&str]) {
        self.client.send(&request(words)).expect("the connection stays");
    }

    fn until(&self, what: &str, is_so: impl Fn(Traffic) -> bool) {
        until(what, || Ok(is_so(self.wire.traffic()).then_some(()))).expect("it comes");
    }
}

fn connect(wire: &Wire) -> Raw {
    Raw::connect(wire.address()).expect("a wire takes connections")
}

fn pings(client: &mut Raw) {
    assert_eq!(client.ask(&["PING"]).expect("it is answered").text(), "PONG");
}

/// The connection is over, in whichever way.
fn is_cut(client: &mut Raw) {
    let error = client.ask(&["PING"]).expect_err("it is cut");
    assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
}

/// A new connection is closed at once. The reset may come so soon that connecting fails already.
fn is_refused(wire: &Wire) {
    if let Ok(mut refused) = Raw::connect(wire.address()) {
        is_cut(&mut refused);
    }
}

#[test]
fn it_carries_everything_and_counts_it() {
    let mut line = Line::new();
    assert_eq!(line.wire.url_of("redis"), format!("redis://127.0.0.1:{}", line.wire.port()));
    let big = "x".repeat(5_000_000);
    let echo = request(&["ECHO", &big]);
    let answer = line.client.ask_bytes(&echo).expect("it is answered").len();
    pings(&mut connect(&line.wire));
    let traffic = line.wire.traffic();
    assert_eq!(traffic.connections, 2);
    assert_eq!(traffic.to_server, (echo.len() + request(&["PING"]).len()) as u64);
    assert_eq!(traffic.to_client, (answer + "+PONG\r\n".len()) as u64);
    assert_eq!((traffic.lost, traffic.waiting_to_server, traffic.waiting_to_client), (0, 0, 0));
    line.until("the one that went to be forgotten", |traffic| traffic.present == 1);
    line.pings();
}

#[test]
fn an_end_passes_either_way() {
    let mut line = Line::new();
    let mut other = connect(&line.wire);
    other.send(&request(&["PING"])).expect("it is there");
    other.stream().shutdown(std::net::Shutdown::Write).expect("it is there");
    assert_eq!(other.hear().expect("what was asked is answered").text(), "PONG");
    assert_eq!(other.hear().expect_err("the server ends too").kind(), ErrorKind::UnexpectedEof);
    line.pings();
    line.redis.kill();
    is_cut(&mut line.client);
    is_refused(&line.wire);
    line.redis.restart();
    line.client = connect(&line.wire);
    line.pings();
}

#[test]
fn a_delay_is_kept_each_way_and_costs_no_throughput() {
    const DELAY: Duration = Duration::from_millis(20);
    const REQUESTS: u32 = 200;
    let mut line = Line::new();
    line.wire.delay(DELAY);
    let begun = Instant::now();
    line.pings();
    assert!(begun.elapsed() >= 2 * DELAY, "{:?}", begun.elapsed());
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        line.send(&["PING"]);
    }
    for _ in 0..REQUESTS {
        assert_eq!(line.client.hear().expect("it is answered").text(), "PONG");
    }
    // One after the other, they would take a hundred times as long.
    let elapsed = begun.elapsed();
    assert!(elapsed >= 2 * DELAY && elapsed < REQUESTS * DELAY, "{elapsed:?}");
    line.wire.delay(Duration::ZERO);
    line.pings();
}

#[test]
fn jitter_keeps_the_order() {
    const LEAST: Duration = Duration::from_millis(2);
    const REQUESTS: u32 = 50;
    let mut line = Line::new();
    line.wire.jitter(LEAST..10 * LEAST);
    let begun = Instant::now();
    for number in 0..REQUESTS {
        line.send(&["ECHO", &number.to_string()]);
    }
    for number in 0..REQUESTS {
        assert_eq!(line.client.hear().expect("it is answered").text(), number.to_string());
    }
    assert!(begun.elapsed() >= 2 * LEAST, "{:?}", begun.elapsed());
    line.wire.delay(Duration::ZERO);
    line.pings();
}

#[test]
fn what_a_lossy_wire_loses_comes_late_and_in_order() {
    let mut line = Line::new();
    line.wire.lossy(0.3);
    let (mut number, begun) = (0, Instant::now());
    while line.wire.traffic().resent == 0 {
        assert_eq!(line.client.ask(&["ECHO", &number.to_string()]).expect("it is answered").text(), number.to_string());
        number += 1;
    }
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(line.wire.traffic().lost, 0);
    line.wire.delay(Duration::ZERO);
    line.pings();
}

#[test]
fn what_dribbles_comes_whole_and_slowly() {
    let mut line = Line::new();
    line.wire.dribble(true);
    let (text, begun) = ("0123456789".repeat(30), Instant::now());
    assert_eq!(line.client.ask(&["ECHO", &text]).expect("it is answered").text(), text);
    // Three bytes at a time, each way, and a tenth of a millisecond after each.
    assert!(begun.elapsed() >= Duration::from_millis(20), "{:?}", begun.elapsed());
    line.wire.dribble(false);
    line.pings();
}

/// Half of the round trips are this exact even beside other tests; `cargo bench -p lab-servers` tells how exact alone.
#[test]
fn a_short_delay_is_short() {
    const DELAY: Duration = Duration::from_micros(500);
    let mut line = Line::new();
    line.wire.delay(DELAY);
    let trip = |_| {
        let begun = Instant::now();
        line.pings();
        begun.elapsed()
    };
    let mut trips: Vec<Duration> = (0..500).map(trip).collect();
    trips.sort_unstable();
    let (shortest, median) = (trips[0], trips[trips.len() / 2]);
    assert!(shortest >= 2 * DELAY, "{shortest:?}");
    assert!(median < 2 * DELAY + Duration::from_millis(1), "{median:?}");
}

#[test]
fn cut_it_takes_new_connections() {
    let mut line = Line::new();
    let mut other = connect(&line.wire);
    pings(&mut other);
    line.pings();
    line.wire.cut();
    assert_eq!(line.wire.traffic().present, 0);
    is_cut(&mut line.client);
    is_cut(&mut other);
    line.client = connect(&line.wire);
    line.pings();
    assert_eq!(line.wire.traffic().connections, 3);
}

#[test]
fn what_is_on_its_way_when_it_is_cut_never_arrives() {
    let mut line = Line::new();
    line.wire.delay(Duration::from_secs(3600));
    line.send(&["SET", "name", "7"]);
    line.until("the request to be on its way", |traffic| traffic.waiting_to_server > 0);
    line.wire.cut();
    is_cut(&mut line.client);
    assert!(line.redis.command(&["GET", "name"]).is_nil());
}

#[test]
fn cut_while_a_sender_waits_for_room_it_lets_go_of_it() {
    let mut line = Line::new();
    line.redis.pause();
    let address = line.wire.address();
    let sender = std::thread::spawn(move || {
        let mut client = Raw::connect(address).expect("a wire takes connections");
        let value = request(&["SET", "name", &"x".repeat(1_000_000)]);
        while client.send(&value).is_ok() {}
    });
    // More than this fits no socket, so it waits for the server, which stands still.
    let mut seen = 0;
    until("the sender to be stuck", || {
        let now = line.wire.traffic().to_server;
        let stuck = now > 0 && now == std::mem::replace(&mut seen, now);
        Ok(stuck.then_some(()))
    })
    .expect("sockets are finite");
    line.wire.cut();
    sender.join().expect("it is let go");
    line.redis.resume();
    line.client = connect(&line.wire);
    line.pings();
}

#[test]
fn refusing_it_keeps_what_is_there() {
    let mut line = Line::new();
    line.pings();
    line.wire.refuse(true);
    is_refused(&line.wire);
    line.pings();
    line.until("the refusal to be counted", |traffic| traffic.refused == 1);
    line.wire.refuse(false);
    pings(&mut connect(&line.wire));
    assert_eq!(line.wire.traffic().connections, 2);
}

#[test]
fn frozen_nothing_passes_until_it_thaws() {
    let mut line = Line::new();
    line.pings();
    line.wire.freeze(true);
    line.send(&["PING"]);
    let mut late = connect(&line.wire);
    late.send(&request(&["INCR", "count"])).expect("it is taken");
    line.until("a request to be kept", |traffic| traffic.waiting_to_server > 0 && traffic.connections == 2);
    line.is_silent();
    assert!(line.redis.command(&["GET", "count"]).is_nil());
    line.wire.freeze(false);
    assert_eq!(line.client.hear().expect("it thaws").text(), "PONG");
    assert_eq!(late.hear().expect("it thaws").int(), 1);
}

#[test]
fn frozen_not_even_an_end_passes() {
    let mut line = Line::new();
    line.pings();
    line.wire.freeze(true);
    line.redis.kill();
    line.is_silent();
    let mut late = connect(&line.wire);
    line.until("the late one to be taken", |traffic| traffic.connections == 2);
    line.wire.cut();
    is_cut(&mut line.client);
    is_cut(&mut late);
    line.wire.freeze(false);
    line.redis.restart();
    pings(&mut connect(&line.wire));
}

#[test]
fn held_replies_come_later() {
    let mut line = Line::new();
    line.wire.hold_replies(true);
    line.send(&["INCR", "count"]);
    line.until("a reply to be held", |traffic| traffic.waiting_to_client > 0);
    assert_eq!(line.redis.command(&["GET", "count"]).text(), "1");
    line.send(&["INCR", "count"]);
    line.is_silent();
    line.wire.hold_replies(false);
    assert_eq!(line.client.hear().expect("it was held").int(), 1);
    assert_eq!(line.client.hear().expect("it was held").int(), 2);
    line.until("nothing to be kept", |traffic| traffic.waiting_to_client == 0);
    line.pings();
}

#[test]
fn a_lost_reply_was_a_request_that_was_done() {
    let mut line = Line::new();
    line.pings();
    line.wire.lose_replies(true);
    for client in [&mut line.client, &mut connect(&line.wire)] {
        client.send(&request(&["INCR", "count"])).expect("it is taken");
    }
    line.until("two replies to be lost", |traffic| traffic.lost == 8);
    assert_eq!(line.redis.command(&["GET", "count"]).text(), "2");
    line.wire.lose_replies(false);
    pings(&mut connect(&line.wire));
    // No stream goes on behind a gap.
    line.send(&["PING"]);
    line.is_silent();
    line.wire.cut();
    is_cut(&mut line.client);
}

#[test]
fn deaf_are_only_those_that_are_there() {
    let mut line = Line::new();
    line.pings();
    line.wire.deafen();
    pings(&mut connect(&line.wire));
    line.send(&["INCR", "count"]);
    line.until("a reply to be lost", |traffic| traffic.lost == 4);
    line.is_silent();
}

#[test]
fn as_many_replies_are_dropped_as_was_said() {
    let mut line = Line::new();
    line.pings();
    line.wire.drop_replies(1);
    line.send(&["INCR", "count"]);
    line.until("a reply to be lost", |traffic| traffic.lost == 4);
    pings(&mut connect(&line.wire));
    line.is_silent();
}

#[test]
fn dropped_it_is_gone() {
    let mut line = Line::new();
    line.pings();
    let address = line.wire.address();
    drop(line.wire);
    is_cut(&mut line.client);
    TcpStream::connect(address).expect_err("nobody listens");
}

#[test]
fn many_connections_at_once() {
    let line = Line::new();
    for delay in [0, 500] {
        line.wire.delay(Duration::from_micros(delay));
        let count = |mut client: Raw| move || (0..50).for_each(|_| drop(client.ask(&["INCR", "count"])));
        let clients: Vec<_> = (0..20).map(|_| std::thread::spawn(count(connect(&line.wire)))).collect();
        for client in clients {
            client.join().expect("each ends");
        }
    }
    assert_eq!(line.redis.command(&["GET", "count"]).text(), "2000");
}
