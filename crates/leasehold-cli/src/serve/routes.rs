//! The paths, and what each one replies.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;

use super::Site;
use super::access::Refusal;
use super::connections::{Activity, Place};
use super::replies::{self, Reply, TEXT};
use super::{breaking, events, metrics, page};

pub(super) async fn reply(site: Arc<Site>, request: Request<Incoming>, place: &Place) -> Reply {
    if let Err(refusal) = check(&site, &request) {
        return replies::refused(refusal);
    }

    let is_break = request.uri().path() == BREAK;
    match (is_break, request.method()) {
        (true, &Method::POST) | (false, &Method::GET | &Method::HEAD) => {
            route(site, request, place).await
        }
        (true, _) => replies::method_not_allowed("POST"),
        (false, _) => replies::method_not_allowed("GET, HEAD"),
    }
}

/// What the connection of a request does once the head of the request has arrived.
pub(super) fn activity_of(request: &Request<Incoming>) -> Activity {
    match request.uri().path() {
        LOCKS if accepts_events(request) => Activity::Events,
        // Its body has not arrived.
        BREAK => Activity::None,
        _ => Activity::Reply,
    }
}

/// Checks who sends the request.
fn check(site: &Site, request: &Request<Incoming>) -> Result<(), Refusal> {
    site.access.check_host(request.headers())?;
    // Probes of Kubernetes send no token. The reply shows no lock.
    if request.uri().path() == HEALTH {
        return Ok(());
    }
    site.access.check_token(request.headers())
}

async fn route(site: Arc<Site>, request: Request<Incoming>, place: &Place) -> Reply {
    let prefix = prefix_in(request.uri().query().unwrap_or_default());
    match request.uri().path() {
        "/" => page::reply(&site, &prefix).await,
        "/page.css" => replies::text(StatusCode::OK, "text/css", page::STYLE.to_owned()),
        "/page.js" => replies::text(StatusCode::OK, "text/javascript", page::SCRIPT.to_owned()),
        // Browsers ask for it on their own.
        "/favicon.ico" => replies::text(StatusCode::NO_CONTENT, TEXT, String::new()),
        LOCKS if accepts_events(&request) => replies::events(events::of(site, prefix)),
        LOCKS => replies::json(&site.scanner.checked().await.json(&prefix)),
        "/metrics" => {
            let text = metrics::text(&*site.scanner.checked().await);
            replies::text(StatusCode::OK, metrics::CONTENT_TYPE, text)
        }
        HEALTH => health(&site).await,
        BREAK => breaking::reply(&site, request, place).await,
        _ => replies::text(StatusCode::NOT_FOUND, TEXT, "no such page\n".to_owned()),
    }
}

/// Replies whether the store can be read. The error of the store may name servers, so it is not
/// shown.
async fn health(site: &Site) -> Reply {
    let (status, message) = match site.scanner.checked().await.error {
        None => (StatusCode::OK, "ok\n"),
        Some(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the store cannot be read\n",
        ),
    };
    replies::text(status, TEXT, message.to_owned())
}

fn accepts_events(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get_all(ACCEPT).iter();
    accepted
        .filter_map(|accepted| accepted.to_str().ok())
        .any(|accepted| accepted.contains("text/event-stream"))
}

/// The prefix in a query such as `prefix=orders%2F`, as a form of HTML encodes it.
fn prefix_in(query: &str) -> String {
    let mut settings = query.split('&');
    let prefix = settings
        .find_map(|setting| setting.strip_prefix("prefix="))
        .unwrap_or_default()
        .replace('+', " ");
    percent_decode_str(&prefix).decode_utf8_lossy().into_owned()
}

const LOCKS: &str = "/locks";
const HEALTH: &str = "/healthz";
const BREAK: &str = "/break";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_decoded_as_a_form_encodes_it() {
        assert_eq!(prefix_in("a=b&prefix=x%2By+%C3%BC"), "x+y ü");
        assert_eq!(prefix_in(""), "");
    }
}
