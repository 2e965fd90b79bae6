//! The tower layer, around a service of the test.

use std::convert::Infallible;
use std::time::Duration;

use http::Request;
use leasehold::stores::Memory;
use leasehold::{FencingToken, Locks};
use leasehold_examples::lock_layer::LockLayer;
use tokio::sync::{mpsc, oneshot};
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, ServiceExt, service_fn};

use crate::program::{until, until_lock};

const WAIT: Duration = Duration::from_secs(60);

/// A request that the inner service has received: its token, and where its reply is sent.
type Call = (FencingToken, oneshot::Sender<&'static str>);
type Layered = BoxCloneService<Request<()>, &'static str, BoxError>;

/// Returns a service under locks, and the calls of its inner service, which the test replies to.
fn service(locks: &Locks, wait: Duration) -> (Layered, mpsc::UnboundedReceiver<Call>) {
    let (sender, calls) = mpsc::unbounded_channel();
    let inner = service_fn(move |request: Request<()>| {
        let sender = sender.clone();
        async move {
            let token = request.extensions().get().copied().expect("a token");
            let (reply, replied) = oneshot::channel();
            sender.send((token, reply)).expect("the test receives");
            Ok::<_, Infallible>(replied.await.expect("the test replies"))
        }
    });

    let locks = locks.clone();
    let lock_of = move |request: &Request<()>| locks.mutex(request.uri().path());
    let layered = LockLayer::new(lock_of, wait).layer(inner);
    (BoxCloneService::new(layered), calls)
}

fn request(path: &str) -> Request<()> {
    Request::get(path).body(()).expect("a valid request")
}

#[tokio::test]
async fn requests_of_one_name_run_one_after_the_other() {
    let locks = leasehold::open("memory:").await.expect("it opens");
    let (service, mut calls) = service(&locks, WAIT);

    let first = tokio::spawn(service.clone().oneshot(request("/a")));
    let (first_token, first_reply) = calls.recv().await.expect("a call");
    let second = tokio::spawn(service.clone().oneshot(request("/a")));
    until_lock(&locks, "/a", |state| state.waiters().count() == 1).await;
    assert!(calls.try_recv().is_err(), "two calls overlap");

    first_reply.send("one").expect("the service waits");
    let (second_token, second_reply) = calls.recv().await.expect("a call");
    second_reply.send("two").expect("the service waits");

    assert_eq!(first.await.expect("no panic").expect("a reply"), "one");
    assert_eq!(second.await.expect("no panic").expect("a reply"), "two");
    assert!(second_token.token() > first_token.token());
    until_lock(&locks, "/a", |state| state.entries.is_empty()).await;
}

#[tokio::test]
async fn request_whose_lock_is_not_granted_in_time_is_busy() {
    let locks = leasehold::open("memory:").await.expect("it opens");
    let (service, mut calls) = service(&locks, Duration::from_millis(20));
    let guard = locks.mutex("/a").acquire().await.expect("granted");

    let error = service
        .oneshot(request("/a"))
        .await
        .expect_err("it is held");

    assert!(error.is::<leasehold::Refused>(), "{error}");
    assert!(calls.try_recv().is_err(), "a call without the lock");
    guard.release().await.expect("it was not lost");
}

#[tokio::test]
async fn request_is_dropped_when_its_lock_is_lost() {
    let store = Memory::new();
    let locks = Locks::from_store(store.clone(), "memory:").expect("it opens");
    let (service, mut calls) = service(&locks, WAIT);
    let request = tokio::spawn(service.oneshot(request("/a")));
    let (_, reply) = calls.recv().await.expect("a call");

    assert_eq!(store.revoke("/a"), 1);

    let error = request
        .await
        .expect("no panic")
        .expect_err("it is lost")
        .downcast::<leasehold::Error>()
        .expect("its type");
    assert!(error.is_lost(), "{error}");
    until("the call to be dropped", async || {
        reply.is_closed().then_some(())
    })
    .await;
}
