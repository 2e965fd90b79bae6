//! The parts that all replies have in common.

use std::convert::Infallible;

use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::access::Refusal;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(super) type Reply = Response<Body>;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

pub(super) fn text(status: StatusCode, content_type: &'static str, text: String) -> Reply {
    with_headers(status, content_type, Full::from(text).boxed_unsync())
}

pub(super) fn json(value: &impl Serialize) -> Reply {
    let json = serde_json::to_string(value).expect("the keys are strings");
    text(StatusCode::OK, JSON, json)
}

pub(super) fn events<S>(stream: S) -> Reply
where
    S: Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
{
    with_headers(
        StatusCode::OK,
        EVENTS,
        StreamBody::new(stream).boxed_unsync(),
    )
}

pub(super) fn refused(refusal: Refusal) -> Reply {
    let (status, message) = match refusal {
        Refusal::Host => (
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not known; start leasehold serve with --host NAME",
        ),
        Refusal::Token => (StatusCode::UNAUTHORIZED, "the token is missing or wrong"),
        Refusal::Origin => (StatusCode::FORBIDDEN, "the request is from another site"),
    };

    let mut reply = text(status, TEXT, format!("{message}\n"));
    if refusal == Refusal::Token {
        let scheme = HeaderValue::from_static(r#"Basic realm="leasehold", charset="UTF-8""#);
        reply.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    reply
}

pub(super) fn method_not_allowed(allowed: &'static str) -> Reply {
    let message = format!("use {allowed}\n");
    let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, TEXT, message);
    let allowed = HeaderValue::from_static(allowed);
    reply.headers_mut().insert(ALLOW, allowed);
    reply
}

fn with_headers(status: StatusCode, content_type: &'static str, body: Body) -> Reply {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, content_type)
        .header(CONTENT_SECURITY_POLICY, POLICY)
        .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(REFERRER_POLICY, "no-referrer")
        .header(CACHE_CONTROL, "no-store")
        .header("cross-origin-resource-policy", "same-origin")
        .body(body)
        .expect("all headers are constants")
}

/// The Content-Security-Policy of the page: the page runs its own script only. So a lock's name
/// cannot run a script, even if the page does not escape the name.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";
