//! The program `orders`: a lock for each order, and a clean shutdown.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use lab_servers::Redis;
use nix::sys::signal::Signal;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::program::{self, Program, until, until_lock};

/// A charge that the payment service has received and not replied to.
struct Charge {
    order: u64,
    token: u64,
    reply: oneshot::Sender<()>,
}

/// Starts a payment service, which replies when the test does.
async fn payments() -> (String, UnboundedReceiver<Charge>) {
    let (sender, charges) = unbounded_channel();
    let routes = Router::new()
        .route("/charges/{order}/{token}", post(receive))
        .with_state(sender);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));

    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, charges)
}

async fn receive(
    State(charges): State<UnboundedSender<Charge>>,
    Path((order, token)): Path<(u64, u64)>,
) -> &'static str {
    let (reply, replied) = oneshot::channel();
    let charge = Charge {
        order,
        token,
        reply,
    };

    charges.send(charge).expect("the test receives charges");
    replied.await.expect("the test replies");
    "charged"
}

fn start(redis: &Redis, payments: &str) -> Program {
    let settings = [
        ("LEASEHOLD_STORE", &*redis.url()),
        ("PAYMENTS", payments),
        ("LISTEN", "127.0.0.1:0"),
    ];
    Program::start(env!("CARGO_BIN_EXE_orders"), &settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn charges_of_one_order_follow_each_other_in_all_replicas() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let (payments, mut charges) = payments().await;
    let mut one = start(&redis, &payments);
    let mut two = start(&redis, &payments);
    let one = format!("{}/orders/42/charge", one.url().await);
    let two_url = two.url().await;
    let two = format!("{two_url}/orders/42/charge");
    let other = format!("{two_url}/orders/7/charge");

    let first = tokio::spawn(async move { program::post(&one).await });
    let first_charge = charges.recv().await.expect("the first charge arrives");
    let second = tokio::spawn(async move { program::post(&two).await });
    until_lock(&locks, "orders/42", |state| state.waiters().count() == 1).await;

    let third = tokio::spawn(async move { program::post(&other).await });
    let other_charge = charges.recv().await.expect("another order is charged");
    assert_eq!(other_charge.order, 7, "two charges of one order overlap");
    other_charge.reply.send(()).expect("the service waits");
    first_charge.reply.send(()).expect("the service waits");

    let second_charge = charges.recv().await.expect("the second charge arrives");
    assert!(second_charge.token > first_charge.token);
    second_charge.reply.send(()).expect("the service waits");
    for reply in [first, second, third] {
        let reply = reply.await.expect("it does not panic");
        assert_eq!(reply, Some((200, "charged".to_owned())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_in_use_is_refused_after_the_wait() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let mut service = start(&redis, "http://127.0.0.1:1");
    let url = format!("{}/orders/42/charge", service.url().await);
    let guard = locks.mutex("orders/42").acquire().await.expect("granted");

    let (status, text) = program::post(&url).await.expect("the service replies");

    assert_eq!(status, 423);
    assert!(text.contains("is held by services"), "{text}");
    guard.release().await.expect("it was not lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_request_releases_its_order() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let (payments, mut charges) = payments().await;
    let mut service = start(&redis, &payments);
    let url = format!("{}/orders/42/charge", service.url().await);

    let request = tokio::spawn(async move { program::post(&url).await });
    let charge = charges.recv().await.expect("the charge arrives");
    request.abort();

    until_lock(&locks, "orders/42", |state| state.entries.is_empty()).await;
    drop(charge);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_completes_requests_and_releases_their_locks() {
    let redis = Redis::start();
    let locks = leasehold::open(&redis.url()).await.expect("it opens");
    let (payments, mut charges) = payments().await;
    let mut service = start(&redis, &payments);
    let url = service.url().await;
    let address = url.trim_start_matches("http://").to_owned();
    let request =
        tokio::spawn(async move { program::post(&format!("{url}/orders/42/charge")).await });
    let charge = charges.recv().await.expect("the charge arrives");

    service.signal(Signal::SIGTERM);
    until("the service to refuse connections", async || {
        TcpStream::connect(&address).await.err()
    })
    .await;
    charge.reply.send(()).expect("the service waits");

    let reply = request.await.expect("it does not panic");
    assert_eq!(reply, Some((200, "charged".to_owned())));
    assert!(service.ended().await.success());
    let guard = locks.mutex("orders/42").try_acquire().await;
    assert!(guard.expect("the server replies").is_ok(), "it is held");
}
