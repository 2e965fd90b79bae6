//! Measures the latency that a wire adds, and the precision of its delays: `cargo bench -p
//! lab-servers`.

use std::time::{Duration, Instant};

use lab_servers::{Raw, Redis, Wire, request};

const TRIPS: usize = 5_000;

fn main() {
    let redis = Redis::start();
    let wire = Wire::to(redis.address());
    println!(
        "{:24} {:>9} {:>9} {:>9} {:>9}   µs per round trip",
        "", "p1", "p50", "p90", "p99"
    );
    tell("no wire", &mut redis.connection());
    tell("no wire, Unix socket", &mut redis.socket_connection());

    for delay in [0, 100, 500, 2_000] {
        wire.delay(Duration::from_micros(delay));
        tell(
            &format!("a wire of {delay} µs"),
            &mut Raw::connect(wire.address()).expect("a wire accepts connections"),
        );
    }
}

fn tell<S: std::io::Read + std::io::Write>(what: &str, client: &mut Raw<S>) {
    let ping = request(&["PING"]);
    let trip = |_| {
        let begun = Instant::now();
        client.request_bytes(&ping).expect("the server replies");
        begun.elapsed()
    };
    let mut trips: Vec<Duration> = (0..TRIPS).map(trip).collect();
    trips.sort_unstable();
    let [p1, p50, p90, p99] =
        [1, 50, 90, 99].map(|part| trips[TRIPS * part / 100].as_secs_f64() * 1e6);
    println!("{what:24} {p1:9.1} {p50:9.1} {p90:9.1} {p99:9.1}");
}
