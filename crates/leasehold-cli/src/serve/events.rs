//! Server-sent events: the state, then each change.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, stream};
use hyper::body::{Bytes, Frame};
use serde::Serialize;
use tokio::time::sleep;

use super::Site;
use super::changes::Changes;
use super::scanner::FRESH_MIN;
use super::snapshot::Snapshot;

/// Returns an event `locks` with the whole state, and then an event `change` for each difference.
pub(super) fn of(
    site: Arc<Site>,
    prefix: String,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let subscriber = Subscriber {
        site,
        prefix,
        seen: None,
        sent: Instant::now(),
    };
    stream::unfold(subscriber, |mut subscriber| async move {
        let text = subscriber.next().await;
        Some((Ok(Frame::data(Bytes::from(text))), subscriber))
    })
}

struct Subscriber {
    site: Arc<Site>,
    prefix: String,
    seen: Option<Arc<Snapshot>>,
    /// When the last text was sent.
    sent: Instant,
}

impl Subscriber {
    async fn next(&mut self) -> String {
        let text = loop {
            if let Some(text) = self.poll().await {
                break text;
            }
            if self.sent.elapsed() > SILENCE_MAX {
                break ":\n\n".to_owned();
            }
            sleep(FRESH_MIN).await;
        };
        self.sent = Instant::now();
        text
    }

    /// Returns the event for what has changed since the last one.
    async fn poll(&mut self) -> Option<String> {
        let snapshot = self.site.scanner.current().await;
        let text = match &self.seen {
            None => Some(event("locks", &snapshot.json(&self.prefix))),
            Some(seen) if Arc::ptr_eq(seen, &snapshot) => None,
            Some(seen) => Changes::between(seen, &snapshot, &self.prefix)
                .map(|changes| event("change", &changes)),
        };
        self.seen = Some(snapshot);
        text
    }
}

/// An event. JSON has no line breaks outside strings, and escapes those inside.
fn event(kind: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("the keys are strings");
    format!("event: {kind}\ndata: {data}\n\n")
}

/// A comment is sent after this time, so that proxies keep the connection, and so that a browser
/// that has gone is noticed.
const SILENCE_MAX: Duration = Duration::from_secs(15);
