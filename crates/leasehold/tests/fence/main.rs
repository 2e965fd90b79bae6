//! Resources that reject late writers: files, keys of a real Redis server, tables of a real
//! PostgreSQL server and of SQLite.

#[cfg(feature = "file")]
mod file;
#[cfg(feature = "file")]
mod file_users;
mod postgres;
mod redis;
mod sqlite;

#[cfg(all(feature = "redis", feature = "file"))]
use {
    lab_servers::Redis,
    postgres::{database, session},
    redis::{assert_late, fenced_as},
};

/// Tokens of all sizes. The script must not read a token as a number of Lua, which has 53 bits.
const TOKENS: [&str; 7] = [
    "1",
    "9",
    "10",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
];

const CLAIM: &str = "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d";
const OTHER_CLAIM: &str = "0b7d1e5a3c9f4826b1d0e4f7a2c85936";

/// A server and its replica, which became a master too. Their last token is ahead of their clocks.
/// So both servers continue from this token and grant the same next token.
///
/// Shows G-19.
#[cfg(all(feature = "redis", feature = "file"))]
#[tokio::test]
async fn split_brain_grants_one_token_twice_and_resource_accepts_one_claim() {
    use leasehold::fence::File;

    let master = Redis::start();
    let replica = Redis::setup().replica_of(&master).start();
    let last = format!("{}~", master.time() + 3_600_000_000);
    master.command(&["SET", "leasehold:{a}", &last, "PX", "86400000"]);
    replica.in_step_with(&master);
    replica.command(&["REPLICAOF", "NO", "ONE"]);

    let mut guards = Vec::new();
    for server in [&master, &replica] {
        let locks = leasehold::open(&server.url())
            .await
            .expect("the store opens");
        guards.push(locks.mutex("a").acquire().await.expect("granted"));
    }
    let [first, second] =
        [0, 1].map(|at: usize| guards[at].fencing_token().expect("the store has tokens"));
    assert_eq!(
        first.token(),
        second.token(),
        "the two servers grant different tokens"
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = File::open(folder.path(), "a").expect("opened");
    file.seal(first).expect("the first holder seals");
    assert!(
        file.seal(second)
            .expect_err("two holders have sealed the resource")
            .is_lost()
    );
    file.write(first, b"first").expect("written");
    assert!(
        file.write(second, b"second")
            .expect_err("two holders have written")
            .is_lost()
    );

    let seal = |server: &Redis, token: leasehold::FencingToken, command: &[&str]| {
        fenced_as(
            server,
            &token.token().to_string(),
            &token.claim().to_string(),
            command,
        )
    };
    let resource = Redis::start();
    assert_eq!(
        seal(&resource, first, &["SET", "{a}", "first"]).text(),
        "OK"
    );
    assert_late(
        &seal(&resource, second, &["SET", "{a}", "second"]),
        "another claim",
    );

    let database = database();
    let mut one = session(&database);
    let mut seal = |token: leasehold::FencingToken| {
        one.run(&format!(
            "EXECUTE seal('a', {}, '{}')",
            token.token(),
            token.claim()
        ))
    };
    assert_eq!(seal(first), [first.token().to_string()]);
    assert_eq!(
        seal(second),
        [""; 0],
        "two holders have sealed the resource"
    );
}
