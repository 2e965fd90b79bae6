//! The program `elected`: three replicas, one of which does the work.

use std::collections::BTreeSet;

use lab_servers::Redis;
use nix::sys::signal::Signal;

use crate::program::{Program, post, until};

/// The key of the election on Redis.
const KEY: &str = "leasehold:{replicas}:queue";

struct Replica {
    program: Program,
    url: String,
}

/// A reply to a request for work: which replica has done it, and under which token.
#[derive(Clone, Debug, PartialEq)]
struct Done {
    address: String,
    token: u64,
}

impl Replica {
    async fn start(redis: &Redis) -> Self {
        let store = format!("{}?crash-grace=2s", redis.url());
        let settings = [("LEASEHOLD_STORE", &*store), ("LISTEN", "127.0.0.1:0")];
        let mut program = Program::start(env!("CARGO_BIN_EXE_elected"), &settings);

        let url = program.url().await;
        Self { program, url }
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    async fn is_ready(&self) -> bool {
        let reply = reqwest::get(format!("{}/ready", self.url)).await;
        reply.expect("it listens").status().is_success()
    }

    /// Requests work until a leader has done it.
    async fn work(&self) -> Done {
        let url = format!("{}/work", self.url);
        until("work to be done", async || {
            let (status, body) = post(&url).await?;
            let (address, token) = body.split_once(' ').filter(|_| status == 200)?;
            let address = address.to_owned();
            let token = token.parse().expect("it is a token");
            Some(Done { address, token })
        })
        .await
    }
}

async fn replicas(redis: &Redis) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(Replica::start(redis).await);
    }
    for replica in &replicas {
        until("a replica to be ready", async || {
            replica.is_ready().await.then_some(())
        })
        .await;
    }
    replicas
}

/// Requests work from each replica, and returns the one that has done it all.
async fn leader_of(replicas: &[Replica]) -> Done {
    let mut leaders = BTreeSet::new();
    let mut last = None;
    for replica in replicas {
        let done = replica.work().await;
        leaders.insert((done.address.clone(), done.token));
        last = Some(done);
    }

    assert_eq!(leaders.len(), 1, "two replicas have led: {leaders:?}");
    last.expect("there is a replica")
}

fn position_of(replicas: &[Replica], done: &Done) -> usize {
    let is_leader = |replica: &Replica| replica.address() == done.address;
    replicas
        .iter()
        .position(is_leader)
        .expect("it is a replica")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_works_and_another_takes_over_after_a_kill() {
    let redis = Redis::start();
    let mut replicas = replicas(&redis).await;
    let first = leader_of(&replicas).await;

    let killed = replicas.remove(position_of(&replicas, &first));
    killed.program.signal(Signal::SIGKILL);
    drop(killed);

    let second = replicas[0].work().await;
    assert_ne!(second.address, first.address, "a killed replica has worked");
    assert!(second.token > first.token);
    assert_eq!(leader_of(&replicas).await, second);
}

/// The next replica leads before the crash detection could have removed the first one: its grace is
/// two seconds, and the program ends only when its leadership has left the store.
#[tokio::test(flavor = "multi_thread")]
async fn terminated_leader_resigns() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let mut replicas = replicas(&redis).await;
    let first = leader_of(&replicas).await;

    let mut leader = replicas.remove(position_of(&replicas, &first));
    leader.program.signal(Signal::SIGTERM);
    assert!(leader.program.ended().await.success());

    let election = locks.election("replicas");
    let next = election.leader().await.expect("the server replies");
    assert_ne!(
        next.as_ref().map(leasehold::Leader::address),
        Some(&*first.address)
    );
    assert!(replicas[0].work().await.token > first.token);
}

/// The key of the election has a foreign value, so no replica can lead.
#[tokio::test(flavor = "multi_thread")]
async fn replica_that_knows_no_leader_is_not_ready() {
    let redis = Redis::start();
    redis.command(&["SET", KEY, "foreign"]);
    let mut replica = Replica::start(&redis).await;
    replica.program.line("cannot acquire").await;
    assert!(!replica.is_ready().await);
    let reply = post(&format!("{}/work", replica.url)).await;
    assert_eq!(reply, Some((503, String::new())));

    redis.command(&["DEL", KEY]);

    until("the replica to lead", async || {
        replica.is_ready().await.then_some(())
    })
    .await;
    assert_eq!(replica.work().await.address, replica.address());
}
