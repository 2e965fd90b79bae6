//! What only the ZooKeeper store promises, on real servers.
#![cfg(feature = "zookeeper")]
#![allow(missing_docs)]

use std::fmt::Debug;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab_servers::{Ensemble, Wire, ZooKeeper, ZooKeeperRelease};
use leasehold::{
    Claim, ClaimId, ClaimantInfo, Guard, Locks, LossReason, Name, OnContention, Share, Standing,
    Store, stores,
};
use zookeeper_client::{Acls, Client, CreateMode};

/// The longest that a test waits for what must come.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server for those who do it no harm.
static SERVER: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::setup().tick(500).tls().start());

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

/// A folder of its own for a test, on the server that all share.
fn folder(test: &str) -> String {
    format!("{}/{test}", SERVER.url())
}

/// A client of another make, without any folder.
async fn bare(server: &ZooKeeper) -> Client {
    Client::connect(&server.address())
        .await
        .expect("it connects")
}

async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

async fn waiters(locks: &Locks, name: &str, count: usize) {
    while locks.inspect(name).await.expect("looked").waiters().count() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn empty(locks: &Locks, name: &str) {
    while !locks
        .inspect(name)
        .await
        .expect("looked")
        .entries
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn held_for(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

/// Without an answer to its first question a claim is found by its id, and only once.
#[tokio::test]
async fn claim_with_lost_reply_is_found_once() {
    let wire = Wire::to(SERVER.address());
    let (ours, theirs) = (
        open(&format!("{}/lost", wire.url_of("zookeeper"))).await,
        open(&folder("lost")).await,
    );
    for _ in 0..10 {
        wire.drop_replies(1);
        let held = within_timeout("granted", ours.mutex("a").acquire())
            .await
            .expect("granted");
        let lock_state = theirs.inspect("a").await.expect("looked");
        assert_eq!(
            (lock_state.entries.len(), lock_state.last_token),
            (1, Some(held.token()))
        );
        held.release().await.expect("released");
        empty(&theirs, "a").await;
    }
}

/// The token of a grant is the number of the transaction that made its node, and goes on rising when the servers have cleared
/// the lock's node away and the digits begin anew.
#[tokio::test]
async fn tokens_increase_over_a_deleted_lock_node() {
    let (locks, client) = (open(&folder("cleared")).await, bare(&SERVER).await);
    let first = locks.mutex("a").acquire().await.expect("granted");
    let token = first.token();
    first.release().await.expect("released");
    client
        .delete("/cleared/a", None)
        .await
        .expect("nobody is in line");
    let second = locks.mutex("a").acquire().await.expect("granted");
    let nodes = client
        .list_children("/cleared/a")
        .await
        .expect("it is there again");
    assert!(
        nodes.len() == 1 && nodes[0].ends_with("-lock-0000000000"),
        "{nodes:?}"
    );
    let stat = client
        .check_stat(&format!("/cleared/a/{}", nodes[0]))
        .await
        .expect("asked")
        .expect("it is there");
    assert_eq!(
        second.token().get(),
        u64::try_from(stat.czxid).expect("above zero")
    );
    assert!(second.token() > token);
}

/// The lock's node is one that the servers clear away when nobody is in line; for kazoo, which counts on it, it stays.
#[tokio::test]
async fn empty_lock_nodes_are_removed() {
    let server = ZooKeeper::setup()
        .property("znode.container.checkIntervalMs", "100")
        .start();
    let locks = open(&format!("{}/locks", server.url())).await;
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let client = bare(&server).await;
    let cleared = async {
        while client
            .check_stat("/locks/a")
            .await
            .expect("asked")
            .is_some()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within_timeout("it is cleared away", cleared).await;
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
}

/// A downgraded writer keeps its place and its token in the node that stands in place of the first.
#[tokio::test]
async fn downgraded_writer_keeps_its_token() {
    let locks = open(&folder("downgraded")).await;
    let held = locks
        .rwlock("a")
        .exclusive()
        .acquire()
        .await
        .expect("granted");
    held.downgrade().await.expect("downgraded");
    let lock_state = locks.inspect("a").await.expect("looked");
    assert_eq!(lock_state.entries[0].token(), Some(held.token()));
    assert_eq!(lock_state.entries[0].share, leasehold::Share::READER);
    let broken = locks.break_hold("a", held.token()).await.expect("asked");
    assert!(broken.is_some() && held.check().expect_err("broken").is_lost());
}

/// What is in the way is said, with the cure, and nothing of ours is left there.
#[tokio::test]
async fn foreign_nodes_are_refused_with_help() {
    let client = bare(&SERVER).await;
    let (curator, kazoo) = (
        open(&folder("foreign")).await,
        open(&format!("{}?dialect=kazoo", folder("foreign"))).await,
    );
    let held = curator.mutex("a").acquire().await.expect("granted");
    let error = kazoo.mutex("a").try_acquire().await.expect_err("refused");
    assert!(
        error.is_mismatch() && error.to_string().contains("dialect=curator"),
        "{error}"
    );
    held.release().await.expect("released");
    let held = kazoo.mutex("b").acquire().await.expect("granted");
    let error = curator.mutex("b").acquire().await.expect_err("refused");
    assert!(
        error.is_mismatch() && error.to_string().contains("dialect=kazoo"),
        "{error}"
    );
    held.release().await.expect("released");
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client
        .mkdir("/foreign/c/leases", &persistent)
        .await
        .expect("made");
    let error = curator.mutex("c").acquire().await.expect_err("refused");
    assert!(
        error.is_mismatch() && error.to_string().contains("semaphore of Curator's"),
        "{error}"
    );
    assert_eq!(
        client.list_children("/foreign/c").await.expect("asked"),
        ["leases"]
    );
    assert!(curator.list("", 10).await.expect("listed").is_empty());
}

/// Somebody else's hold is shown, and broken by its token; a later one of his by the same id is not.
#[tokio::test]
async fn foreign_lock_can_be_inspected_and_broken() {
    let (locks, client) = (open(&folder("others")).await, bare(&SERVER).await);
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let path = "/others/a/_c_79e1da5a-36b5-4c33-8d0f-a0b1c2d3e4f5-lock-";
    let (stat, _) = client
        .create(path, b"10.0.0.7", &options)
        .await
        .expect("made");
    let lock_state = locks.inspect("a").await.expect("looked");
    let token = lock_state.entries[0].token().expect("it holds");
    assert_eq!(
        (token.get().cast_signed(), &*lock_state.entries[0].info.host),
        (stat.czxid, "10.0.0.7")
    );
    assert!(
        locks
            .mutex("a")
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    assert!(locks.break_hold("a", token).await.expect("asked").is_some());
    client
        .create(path, b"10.0.0.7", &options)
        .await
        .expect("made");
    assert!(locks.break_hold("a", token).await.expect("asked").is_none());
    assert!(
        locks
            .mutex("a")
            .try_acquire()
            .await
            .expect("asked")
            .is_none(),
        "the later one is still there"
    );
}

/// A lease is kept by its session, so one may be longer, renewed or fixed.
#[tokio::test]
async fn fixed_lease_can_outlast_the_session_timeout() {
    let locks = open(&format!("{}?session=1s", folder("fixed"))).await;
    let lease = Duration::from_secs(3);
    let held = locks
        .mutex("a")
        .lease(lease)
        .no_renewal()
        .acquire()
        .await
        .expect("granted");
    held_for(&held, Duration::from_secs(2)).await;
    assert_eq!(
        within_timeout("it ends", held.lost()).await,
        LossReason::LeaseExpired
    );
    let _later = within_timeout("the next holds", locks.mutex("a").acquire())
        .await
        .expect("granted");
}

/// What a store cannot confirm it does not promise: a server that falls silent costs the lock before the session can end.
#[tokio::test]
async fn unresponsive_server_ends_the_hold_in_time() {
    let server = ZooKeeper::start();
    let locks = open(&format!("{}?session=4s", server.url())).await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    assert!(held.remaining() <= Duration::from_secs(4));
    server.pause();
    assert_eq!(
        within_timeout("it is lost", held.lost()).await,
        LossReason::RenewalTimedOut
    );
    server.resume();
    let _later = within_timeout("a later claim is granted", locks.mutex("a").acquire())
        .await
        .expect("granted");
}

/// A session that has ended is followed by another, and what it held is gone.
#[tokio::test]
async fn ended_session_is_replaced() {
    let server = ZooKeeper::start();
    let wire = Wire::to(server.address());
    let theirs = open(&server.url()).await;
    let ours = open(&format!("{}?session=1s", wire.url_of("zookeeper"))).await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    wire.refuse(true);
    wire.partition();
    within_timeout("it is lost", held.lost()).await;
    let next = within_timeout("the next holds", theirs.mutex("a").acquire())
        .await
        .expect("granted");
    assert!(next.token() > held.token());
    wire.refuse(false);
    let lock = ours.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    within_timeout("it waits again", waiters(&theirs, "a", 1)).await;
    next.release().await.expect("released");
    let _later = within_timeout("it holds again", waiting)
        .await
        .expect("it runs")
        .expect("granted");
}

/// A connection that breaks and comes back within the session costs no lock and no place in line.
#[tokio::test]
async fn lock_survives_disconnect_shorter_than_grace() {
    let wire = Wire::to(SERVER.address());
    let (ours, theirs) = (
        open(&format!("{}/break", wire.url_of("zookeeper"))).await,
        open(&folder("break")).await,
    );
    let held = ours.mutex("a").acquire().await.expect("granted");
    let other = theirs.mutex("b").acquire().await.expect("granted");
    let lock = ours.mutex("b");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "b", 1).await;
    let later = theirs.mutex("b");
    let behind = tokio::spawn(async move { later.acquire().await });
    waiters(&theirs, "b", 2).await;
    for _ in 0..3 {
        wire.partition();
        held_for(&held, Duration::from_millis(500)).await;
    }
    wire.partition();
    other.release().await.expect("released");
    let served = within_timeout("it is served in its turn", waiting)
        .await
        .expect("it runs")
        .expect("granted");
    assert!(!behind.is_finished());
    served.release().await.expect("released");
    let _later = within_timeout("the next is served", behind)
        .await
        .expect("it runs")
        .expect("granted");
}

/// Nodes are for those alone who show the same user and password.
#[tokio::test]
async fn private_nodes_are_denied_to_others() {
    let at = |user: &str| {
        format!(
            "zookeeper://{user}:secret@{}/private?acl=creator",
            SERVER.address()
        )
    };
    let (ours, theirs) = (open(&at("me")).await, open(&at("you")).await);
    let held = ours.mutex("a").acquire().await.expect("granted");
    for error in [
        theirs.mutex("a").try_acquire().await.expect_err("denied"),
        theirs
            .break_hold("a", held.token())
            .await
            .expect_err("denied"),
    ] {
        assert!(
            error.is_denied() && !format!("{error:?}").contains("secret"),
            "{error:?}"
        );
    }
    let again = open(&at("me")).await;
    assert!(
        again
            .mutex("a")
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    held_for(&held, Duration::from_secs(3)).await;
}

/// With TLS the server is always verified.
#[cfg(feature = "tls")]
#[tokio::test]
async fn untrusted_certificates_are_refused() {
    let at = |ca: std::path::PathBuf| format!("{}/tls?ca={}", SERVER.tls_url(), ca.display());
    let locks = open(&at(SERVER.ca_file())).await;
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let error = leasehold::open(&at(SERVER.other_ca_file()))
        .await
        .expect_err("refused");
    assert!(
        error.is_denied() && error.to_string().contains("certificate is not accepted"),
        "{error}"
    );
    let elsewhere = at(SERVER.ca_file()).replace("localhost", "[::ffff:127.0.0.1]");
    let error = leasehold::open(&elsewhere).await.expect_err("not its name");
    assert!(
        error.is_denied() && error.to_string().contains("certificate is not accepted"),
        "{error}"
    );
    let error = leasehold::open(&elsewhere.replace("[::ffff:127.0.0.1]", "127.1"))
        .await
        .expect_err("no name");
    assert!(error.is_invalid(), "{error}");
    let error = leasehold::open(&at("/nowhere".into()))
        .await
        .expect_err("refused");
    assert!(error.is_invalid(), "{error}");
    let error = leasehold::open(&at(SERVER.folder().join("zoo.cfg")))
        .await
        .expect_err("no PEM");
    assert!(error.is_invalid(), "{error}");
}

/// A server may let in those alone who show a certificate.
#[cfg(feature = "tls")]
#[tokio::test]
async fn client_certificate_is_presented() {
    let server = ZooKeeper::setup().client_certificates().start();
    let file = |name: &str| server.folder().join(name).display().to_string();
    let at = |more: &str| format!("{}?ca={}{more}", server.tls_url(), file("ca.crt"));
    let with = |certificate: &str, key: &str| {
        at(&format!("&cert={}&key={}", file(certificate), file(key)))
    };
    let locks = open(&with("client.crt", "client.key")).await;
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    for denied in [at(""), with("other.crt", "other.key")] {
        let error = leasehold::open(&denied).await.expect_err("refused");
        assert!(
            error.is_denied() && error.to_string().contains("the client certificate"),
            "{denied}: {error}"
        );
    }
    let half = at(&format!("&cert={}", file("client.crt")));
    for invalid in [
        half,
        with("client.crt", "server.key"),
        with("client.crt", "zoo.cfg"),
        with("nothing", "client.key"),
    ] {
        let error = leasehold::open(&invalid).await.expect_err("refused");
        assert!(error.is_invalid(), "{invalid}: {error}");
    }
}

/// One change in line wakes one waiter, however many there are: each grant is one notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_are_woken_one_by_one() {
    const WAITERS: u64 = 200;
    let server = ZooKeeper::setup().tick(1_000).start();
    let locks = open(&server.url()).await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let mut waiting = tokio::task::JoinSet::new();
    for at in 1..=WAITERS {
        let lock = locks.mutex("a");
        waiting.spawn(async move {
            let held = lock.acquire().await.expect("granted");
            (at, held.token(), held.release().await.expect("released"))
        });
        waiters(&locks, "a", usize::try_from(at).expect("few")).await;
    }
    let before = server.count("zk_sum_node_deleted_watch_count");
    let children = server.count("zk_sum_node_children_watch_count");
    held.release().await.expect("released");
    let mut order = Vec::new();
    while let Some(done) = within_timeout("all are served", waiting.join_next()).await {
        let (at, token, ()) = done.expect("no task fails");
        order.push((token, at));
    }
    order.sort_unstable();
    assert!(order.iter().map(|(_, at)| *at).eq(1..=WAITERS), "{order:?}");
    assert_eq!(
        server.count("zk_sum_node_deleted_watch_count") - before,
        WAITERS
    );
    assert_eq!(server.count("zk_sum_node_children_watch_count"), children);
}

fn claim(name: &str) -> Claim {
    Claim {
        name: Name::parse(name).expect("a good name"),
        id: ClaimId::draw(),
        share: Share::MUTEX,
        lease: Duration::from_secs(30),
        auto_renew: true,
        info: ClaimantInfo::here("").expect("a good label").into(),
    }
}

/// Waits until one of a server's files, whose name begins so, has this text in it.
async fn is_written(server: &ZooKeeper, begins: &str, text: &str) {
    let has = |data: &[u8]| data.windows(text.len()).any(|part| part == text.as_bytes());
    let look = || {
        let folder = std::fs::read_dir(server.folder().join("version-2")).expect("it writes");
        let mut files = folder.filter_map(|entry| Some(entry.ok()?.path()));
        let is_meant = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(begins))
        };
        files.any(|path| is_meant(&path) && std::fs::read(path).is_ok_and(|data| has(&data)))
    };
    while !look() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A leader that is killed while it writes what nobody else has may keep that for ever, and show it to its clients: it saves
/// all it has when it is elected again, and takes nothing of it back if nobody follows. Whoever finds his node there must
/// not count on it.
#[tokio::test]
async fn node_on_a_single_server_is_not_a_grant() {
    let setup = ZooKeeper::setup()
        .config("maxSessionTimeout", "60000")
        .release(ZooKeeperRelease::Newest);
    let mut ensemble = Ensemble::of(&setup);
    let one = ensemble.leader();
    let others = [(one + 1) % 3, (one + 2) % 3];
    let url = |ensemble: &Ensemble, server: usize| {
        format!("{}?session=60s", ensemble.server(server).url())
    };
    open(&url(&ensemble, one))
        .await
        .mutex("x")
        .acquire()
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
    let deceived = stores::ZooKeeper::builder(&url(&ensemble, one))
        .expect("a URL")
        .connect()
        .await
        .expect("it connects");

    // One alone writes the node of who asks, before all are killed.
    ensemble.freeze(one);
    let claim = claim("x");
    let requested = tokio::spawn(async move {
        while deceived.enter(&claim, OnContention::Queue).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (
            deceived.enter(&claim, OnContention::Queue).await,
            deceived,
            claim,
        )
    });
    let node = "-lock-0000000001";
    within_timeout(
        "the leader writes",
        is_written(ensemble.server(one), "log.", node),
    )
    .await;
    (0..3).for_each(|server| ensemble.server_mut(server).kill());

    // It is elected, and nobody follows.
    ensemble.heal();
    ensemble.isolate(one);
    ensemble.server_mut(one).start_after_kill();
    ensemble.server_mut(others[0]).start_after_kill();
    within_timeout(
        "it saves all",
        is_written(ensemble.server(one), "snapshot.", node),
    )
    .await;
    ensemble.server_mut(one).kill();

    // The others go on without it.
    ensemble.heal();
    ensemble.server_mut(others[1]).start_after_kill();
    let leader = ensemble.leader_without(one);
    ensemble.server_mut(one).restart();
    let theirs = open(&url(&ensemble, leader)).await;
    theirs
        .mutex("x")
        .acquire()
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
    let guard = theirs.mutex("x").acquire().await.expect("free");
    let shown = bare(ensemble.server(one))
        .await
        .list_children("/leasehold/x")
        .await
        .expect("there");
    assert!(shown.iter().any(|child| child.ends_with(node)), "{shown:?}");

    let (entered, deceived, claim) = within_timeout("an answer", requested)
        .await
        .expect("no panic");
    let mut standing = entered.expect("an answer").standing;
    assert!(matches!(standing, Standing::Queued { .. }), "{standing:?}");
    guard.check().expect("held");
    guard.release().await.expect("held");
    // What it alone showed goes with the session, and is in nobody's way there.
    while standing.token().is_none() {
        standing = within_timeout("the lock", deceived.changed(&claim, standing))
            .await
            .expect("an answer");
    }
    let shown = bare(ensemble.server(one))
        .await
        .list_children("/leasehold/x")
        .await
        .expect("there");
    assert_eq!(shown.len(), 1, "{shown:?}");
}

/// The share that a name's only entry has, as another client reads it.
async fn share_of_only_entry(locks: &Locks, name: &str, share: Share) {
    while locks
        .inspect(name)
        .await
        .expect("looked")
        .entries
        .first()
        .map(|entry| entry.share)
        != Some(share)
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A store and a claim of it whose downgrade was executed, and whose reply was lost with the
/// connection.
async fn downgraded_without_reply(
    wire: &Wire,
    folder: &str,
    theirs: &Locks,
) -> (stores::ZooKeeper, Claim, Standing) {
    let url = format!("{}/{folder}", wire.url_of("zookeeper"));
    let store = stores::ZooKeeper::builder(&url)
        .expect("a URL")
        .connect()
        .await
        .expect("it connects");

    loop {
        let writer = Claim {
            share: Share::WRITER,
            ..claim("a")
        };
        let held = store
            .enter(&writer, OnContention::Queue)
            .await
            .expect("granted")
            .standing;
        let reader = Claim {
            share: Share::READER,
            ..writer
        };

        // Other clients see the downgrade while its reply is on its way.
        wire.delay(Duration::from_millis(300));
        let downgrade = store.enter(&reader, OnContention::Fail);
        let cut = async {
            share_of_only_entry(theirs, "a", Share::READER).await;
            wire.partition();
        };
        let (downgraded, ()) =
            within_timeout("the downgrade", async { tokio::join!(downgrade, cut) }).await;
        wire.delay(Duration::ZERO);

        match downgraded {
            Err(error) if error.is_unavailable() => return (store, reader, held),
            // On a busy machine the reply may be faster.
            Ok(_) => assert!(store.leave(&reader).await.expect("left")),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A downgrade whose reply was lost is found by the claim's id, and is not reported as a loss.
#[tokio::test]
async fn downgrade_without_reply_is_not_reported_as_loss() {
    let wire = Wire::to(SERVER.address());
    let theirs = open(&folder("replyless-downgrade")).await;
    let (store, claim, held) =
        downgraded_without_reply(&wire, "replyless-downgrade", &theirs).await;

    let changed = tokio::time::timeout(Duration::from_secs(1), store.changed(&claim, held)).await;
    assert!(changed.is_err(), "{changed:?}");
    assert_eq!(
        store
            .enter(&claim, OnContention::Fail)
            .await
            .expect("repeated")
            .standing,
        held
    );

    assert!(store.leave(&claim).await.expect("left"));
    assert!(
        theirs
            .inspect("a")
            .await
            .expect("looked")
            .entries
            .is_empty()
    );
}

/// A hold that is broken after a downgrade whose reply was lost is not renewed.
#[tokio::test]
async fn broken_hold_after_downgrade_without_reply_is_not_renewed() {
    let wire = Wire::to(SERVER.address());
    let theirs = open(&folder("replyless-broken")).await;
    let (store, claim, held) = downgraded_without_reply(&wire, "replyless-broken", &theirs).await;

    let token = held.token().expect("it was granted");
    assert!(
        theirs
            .break_hold("a", token)
            .await
            .expect("asked")
            .is_some()
    );
    let claims = std::slice::from_ref(&claim);
    let renewed = within_timeout("a renewal", async {
        loop {
            match store.renew(claims).await {
                Ok(renewed) => return renewed,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    assert_eq!(renewed.await, [None]);
    assert_eq!(
        store.changed(&claim, held).await.expect("asked"),
        Standing::Gone
    );
}

/// A claim whose number is this or larger is not granted.
const WORN_OUT_FROM: i32 = i32::MAX - (1 << 20) + 1;

/// Restarts a server with these counters of the locks of a folder.
async fn wear_out(server: &mut ZooKeeper, folder: &str, settings: &str, counters: &[(&str, i32)]) {
    let locks = open(&format!("{}/{folder}{settings}", server.url())).await;
    for (name, _) in counters {
        locks
            .mutex(name)
            .acquire()
            .await
            .expect("granted")
            .release()
            .await
            .expect("released");
    }
    drop(locks);

    let paths: Vec<String> = counters
        .iter()
        .map(|(name, _)| format!("/{folder}/{name}"))
        .collect();
    let numbers = counters.iter().map(|(_, number)| *number);
    let counters: Vec<(&str, i32)> = paths.iter().map(String::as_str).zip(numbers).collect();
    server.restart_with_child_counters(&counters);
}

/// Clients contend while the numbers of the lock's node are used up: no two hold at once, tokens
/// rise, and all are granted, the first three with the last numbers of the old node, the others
/// with numbers of a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contended_lock_goes_on_in_a_new_node_when_numbers_are_used_up() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 10;
    static IS_HELD: AtomicBool = AtomicBool::new(false);

    let mut server = ZooKeeper::start();
    wear_out(&mut server, "worn", "", &[("a", WORN_OUT_FROM - 3)]).await;
    let client = bare(&server).await;
    let before = client
        .check_stat("/worn/a")
        .await
        .expect("asked")
        .expect("it is there");

    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let locks = open(&format!("{}/worn", server.url())).await;
        clients.spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..ROUNDS {
                let held = locks.mutex("a").acquire().await.expect("granted");
                assert!(!IS_HELD.swap(true, Ordering::SeqCst), "two hold at once");
                tokens.push(held.token());
                tokio::task::yield_now().await;
                IS_HELD.store(false, Ordering::SeqCst);
                held.release().await.expect("released");
            }
            tokens
        });
    }

    let mut tokens = Vec::new();
    while let Some(done) = within_timeout("all are granted", clients.join_next()).await {
        let of_one = done.expect("no client fails");
        assert!(of_one.is_sorted(), "{of_one:?}");
        tokens.extend(of_one);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), CLIENTS * ROUNDS);

    let after = client
        .check_stat("/worn/a")
        .await
        .expect("asked")
        .expect("it is there");
    assert!(
        before.cversion < 0 && after.czxid > before.czxid && after.cversion >= 0,
        "{before:?} {after:?}"
    );
    let granted_later = tokens
        .iter()
        .filter(|token| token.get().cast_signed() > after.czxid)
        .count();
    assert_eq!(granted_later, CLIENTS * ROUNDS - 3);
}

/// A holder with the last number keeps its lock, and those who wait get it afterwards, without an
/// error.
#[tokio::test]
async fn waiters_outlast_the_holder_of_the_last_number() {
    let mut server = ZooKeeper::start();
    wear_out(&mut server, "last", "", &[("a", WORN_OUT_FROM - 1)]).await;
    let (ours, theirs) = (
        open(&format!("{}/last", server.url())).await,
        open(&format!("{}/last", server.url())).await,
    );

    let held = ours.mutex("a").acquire().await.expect("granted");
    let token = held.token();
    assert!(
        theirs
            .mutex("a")
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    let expired = theirs
        .mutex("a")
        .try_acquire_for(Duration::from_millis(100))
        .await;
    assert!(expired.expect("asked").is_none());

    // Longer than one wait for the node to become empty.
    let lock = theirs.mutex("a");
    let mut waiting = std::pin::pin!(lock.acquire());
    let granted = tokio::time::timeout(Duration::from_secs(4), &mut waiting).await;
    assert!(granted.is_err(), "{granted:?}");

    held.release().await.expect("it was held throughout");
    let next = within_timeout("the waiter is granted", waiting)
        .await
        .expect("granted");
    assert!(next.token() > token);
    assert!(
        ours.mutex("a")
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    next.release().await.expect("released");
}

/// Clients that go on with the last numbers keep others out, whether those numbers are theirs alone
/// or not.
#[tokio::test]
async fn claims_of_other_clients_with_the_last_numbers_are_refused_with_the_cure() {
    let mut server = ZooKeeper::start();
    wear_out(
        &mut server,
        "others",
        "",
        &[("a", WORN_OUT_FROM), ("b", i32::MAX)],
    )
    .await;
    let (locks, client) = (
        open(&format!("{}/others", server.url())).await,
        bare(&server).await,
    );
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let create = async |name: &str, id: u32| {
        let path = format!("/others/{name}/_c_79e1da5a-36b5-4c33-8d0f-0000000000{id:02}-lock-");
        client
            .create(&path, b"10.0.0.7", &options)
            .await
            .expect("made")
            .1
            .into_i64()
    };

    let number = create("a", 1).await;
    assert_eq!(number, i64::from(WORN_OUT_FROM));
    let error = locks.mutex("a").try_acquire().await.expect_err("refused");
    assert!(
        error.is_unavailable() && error.to_string().contains("delete its node"),
        "{error}"
    );
    assert_eq!(
        client
            .list_children("/others/a")
            .await
            .expect("listed")
            .len(),
        1
    );

    let numbers = [create("b", 2).await, create("b", 3).await];
    assert_eq!(
        numbers,
        [i64::from(i32::MAX); 2],
        "the server gives the last number twice"
    );
    let error = locks.mutex("b").try_acquire().await.expect_err("refused");
    assert!(
        error.is_damaged() && error.to_string().contains("delete its node"),
        "{error}"
    );
    assert_eq!(
        client
            .list_children("/others/b")
            .await
            .expect("listed")
            .len(),
        2
    );
}

/// A node that is not to be removed refuses claims for ever, and leaves none: in kazoo's layout,
/// and where the node has data.
#[tokio::test]
async fn worn_out_nodes_that_must_stay_are_refused_with_the_cure() {
    let mut server = ZooKeeper::start();
    wear_out(
        &mut server,
        "kazoo",
        "?dialect=kazoo",
        &[("a", WORN_OUT_FROM - 1)],
    )
    .await;
    let (client, kazoo) = (
        bare(&server).await,
        open(&format!("{}/kazoo?dialect=kazoo", server.url())).await,
    );
    kazoo
        .mutex("a")
        .acquire()
        .await
        .expect("the last number")
        .release()
        .await
        .expect("released");
    for _ in 0..2 {
        let error = kazoo.mutex("a").acquire().await.expect_err("refused");
        assert!(
            error.is_damaged() && error.to_string().contains("delete its node"),
            "{error}"
        );
    }
    assert!(
        client
            .list_children("/kazoo/a")
            .await
            .expect("listed")
            .is_empty()
    );
    client.delete("/kazoo/a", None).await.expect("the cure");
    kazoo
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");

    wear_out(&mut server, "data", "", &[("a", WORN_OUT_FROM)]).await;
    let (client, curator) = (
        bare(&server).await,
        open(&format!("{}/data", server.url())).await,
    );
    client
        .set_data("/data/a", b"of an operator", None)
        .await
        .expect("written");
    let error = curator.mutex("a").try_acquire().await.expect_err("refused");
    assert!(
        error.is_damaged() && error.to_string().contains("/data/a"),
        "{error}"
    );
    assert!(
        client
            .list_children("/data/a")
            .await
            .expect("listed")
            .is_empty()
    );
}
