//! Downgrades, also those whose reply is lost.

use std::time::Duration;

use futures_util::future::join_all;
use lab_servers::Wire;
use leasehold::store::{Claim, OnContention, Share, Standing, Store};
use leasehold::{Locks, stores};
use zookeeper_client::Client;

use crate::{SERVER, claim, connect_store, open, open_folder, plain_client, within_timeout};

/// A downgraded writer keeps its position and its token in the node that replaces the first one.
///
/// Shows G-07.
#[tokio::test]
async fn downgraded_writer_keeps_its_token() {
    let locks = open_folder("downgraded").await;
    let writer = locks.rwlock("a").exclusive();
    let held = writer.acquire().await.expect("granted");
    held.downgrade().await.expect("downgraded");

    let lock_state = locks.inspect("a").await.expect("inspected");
    assert_eq!(lock_state.entries[0].token(), Some(held.token()));
    assert_eq!(lock_state.entries[0].share, Share::READER);
    let broken = locks.break_hold("a", held.token()).await.expect("sent");
    assert!(broken.is_some());
    assert!(held.check().expect_err("broken").is_lost());
}

/// The node that replaces the first one is as private as it.
///
/// Shows G-28.
#[tokio::test]
async fn downgraded_writer_stays_private() {
    let address = SERVER.address();
    let locks = open(&format!(
        "zookeeper://me:secret@{address}/private-downgrade?acl=creator"
    ))
    .await;
    let writer = locks.rwlock("a").exclusive();
    let held = writer.acquire().await.expect("granted");
    held.downgrade().await.expect("downgraded");

    let connector = Client::connector().with_auth("digest", b"me:secret");
    let ours = connector.connect(&address).await.expect("it connects");
    let theirs = plain_client(&SERVER).await;
    let children = ours.list_children("/private-downgrade/a").await;
    let children = children.expect("listed");
    assert_eq!(children.len(), 1, "{children:?}");
    let path = format!("/private-downgrade/a/{}", children[0]);
    ours.get_data(&path).await.expect("it is ours");
    let denied = theirs.get_data(&path).await.expect_err("it is private");
    assert_eq!(denied, zookeeper_client::Error::NoAuth);
    held.release().await.expect("released");
}

/// A node of kazoo's layout has no name for a writer.
///
/// Shows G-18.
#[tokio::test]
async fn writer_in_the_layout_of_kazoo_is_shown_as_one() {
    let url = format!("{}/kazoo-kinds?dialect=kazoo", SERVER.url());
    let locks = open(&url).await;
    for (lock, share) in [
        (locks.rwlock("a").exclusive(), Share::WRITER),
        (locks.mutex("b"), Share::MUTEX),
    ] {
        let held = lock.acquire().await.expect("granted");
        let lock_state = locks.inspect(lock.name()).await.expect("inspected");
        assert_eq!(lock_state.entries[0].share, share);
        held.release().await.expect("released");
    }
}

/// Shows G-07.
#[tokio::test]
async fn renewal_during_a_downgrade_reports_no_loss() {
    let wire = Wire::to(SERVER.address());
    let store = connect_store(&format!("{}/slow-downgrade", wire.url_of("zookeeper"))).await;
    let mut claim = claim("a");
    claim.share = Share::WRITER;
    let entered = store.enter(&claim, OnContention::Fail).await;
    let held = entered.expect("entered").standing;
    assert!(held.token().is_some(), "{held:?}");

    // A renewal waits for a heartbeat, up to a twelfth of ten seconds.
    wire.delay(Duration::from_millis(600));
    claim.share = Share::READER;
    let downgrading = store.enter(&claim, OnContention::Fail);
    let renewing = (0..40).map(async |number| {
        tokio::time::sleep(number * Duration::from_millis(50)).await;
        store.renew(std::slice::from_ref(&claim)).await
    });
    let both = async { tokio::join!(downgrading, join_all(renewing)) };
    let (downgraded, renewed) = within_timeout("the downgrade", both).await;
    for renewed in renewed {
        assert!(renewed.expect("renewed")[0].is_some(), "it is held");
    }
    assert_eq!(downgraded.expect("downgraded").standing, held);
}

/// A downgrade whose reply was lost is found by the claim's id, and is not reported as a loss.
///
/// Shows G-07.
#[tokio::test]
async fn downgrade_without_reply_is_not_reported_as_loss() {
    let wire = Wire::to(SERVER.address());
    let theirs = open_folder("replyless-downgrade").await;
    let downgraded = downgrade_without_reply(&wire, "replyless-downgrade", &theirs).await;
    let Downgraded { store, claim, held } = downgraded;

    let token = held.token().expect("it was granted");
    let lost = tokio::time::timeout(Duration::from_secs(1), store.lost(&claim, token)).await;
    assert!(lost.is_err(), "{lost:?}");
    let repeated = store.enter(&claim, OnContention::Fail).await;
    assert_eq!(repeated.expect("repeated").standing, held);

    assert!(store.leave(&claim).await.expect("left"));
    let lock_state = theirs.inspect("a").await.expect("inspected");
    assert!(lock_state.entries.is_empty());
}

/// A hold that is broken after a downgrade whose reply was lost is not renewed.
///
/// Shows G-12.
#[tokio::test]
async fn broken_hold_after_downgrade_without_reply_is_not_renewed() {
    let wire = Wire::to(SERVER.address());
    let theirs = open_folder("replyless-broken").await;
    let downgraded = downgrade_without_reply(&wire, "replyless-broken", &theirs).await;
    let Downgraded { store, claim, held } = downgraded;

    let token = held.token().expect("it was granted");
    let broken = theirs.break_hold("a", token).await;
    assert!(broken.expect("sent").is_some());

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
    store.lost(&claim, token).await.expect("read");
}

/// A call that waits for the loss during a downgrade returns when the reader's hold is broken, also
/// without a renewal.
///
/// Shows G-12.
#[tokio::test]
async fn loss_after_a_downgrade_is_reported_to_a_call_from_before_it() {
    let theirs = open_folder("awaited-downgrade").await;
    let store = connect_store(&format!("{}/awaited-downgrade", SERVER.url())).await;
    let mut writer = claim("a");
    writer.share = Share::WRITER;
    let entered = store.enter(&writer, OnContention::Queue).await;
    let held = entered.expect("granted").standing;
    let mut reader = writer.clone();
    reader.share = Share::READER;

    let token = held.token().expect("granted");
    let lost = store.lost(&writer, token);
    let broken = async {
        let downgraded = store.enter(&reader, OnContention::Fail).await;
        assert_eq!(downgraded.expect("downgraded").standing, held);
        theirs.break_hold("a", token).await.expect("sent")
    };
    let both = async { tokio::join!(lost, broken) };
    let (lost, broken) = within_timeout("the loss is reported", both).await;
    lost.expect("read");
    assert!(broken.is_some());
}

/// A store, and its claim after a downgrade that was executed and whose reply was lost.
struct Downgraded {
    store: stores::ZooKeeper,
    claim: Claim,
    held: Standing,
}

async fn downgrade_without_reply(wire: &Wire, folder: &str, theirs: &Locks) -> Downgraded {
    let store = connect_store(&format!("{}/{folder}", wire.url_of("zookeeper"))).await;
    loop {
        let mut writer = claim("a");
        writer.share = Share::WRITER;
        let entered = store.enter(&writer, OnContention::Queue).await;
        let held = entered.expect("granted").standing;
        let mut reader = writer.clone();
        reader.share = Share::READER;

        // Other clients see the downgrade while its reply is on its way.
        wire.delay(Duration::from_millis(300));
        let downgrade = store.enter(&reader, OnContention::Fail);
        let cut = async {
            share_of_only_entry(theirs, "a", Share::READER).await;
            wire.partition();
        };
        let both = async { tokio::join!(downgrade, cut) };
        let (downgraded, ()) = within_timeout("the downgrade", both).await;
        wire.delay(Duration::ZERO);

        match downgraded {
            Err(error) if error.is_unavailable() => {
                return Downgraded {
                    store,
                    claim: reader,
                    held,
                };
            }
            // On a busy machine the reply may be faster.
            Ok(_) => assert!(store.leave(&reader).await.expect("left")),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until another client sees this share in the only entry of a name.
async fn share_of_only_entry(locks: &Locks, name: &str, share: Share) {
    loop {
        let lock_state = locks.inspect(name).await.expect("inspected");
        if lock_state.entries.first().map(|entry| entry.share) == Some(share) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
