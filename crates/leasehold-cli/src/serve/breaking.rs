//! Breaks a hold on request of a user of the page.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use leasehold::Token;
use serde::Deserialize;
use tokio::time::timeout;

use super::Site;
use super::access::Access;
use super::connections::{Activity, Place};
use super::replies::{self, Reply, TEXT};
use crate::format::Escaped;

/// The body of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    name: String,
    token: String,
}

pub(super) async fn reply(site: &Site, request: Request<Incoming>, place: &Place) -> Reply {
    match execute(site, request, place).await {
        Ok(message) => replies::text(StatusCode::OK, TEXT, message),
        Err((status, message)) => replies::text(status, TEXT, format!("{message}\n")),
    }
}

type Refused = (StatusCode, String);

async fn execute(
    site: &Site,
    request: Request<Incoming>,
    place: &Place,
) -> Result<String, Refused> {
    if !site.is_breaking_allowed {
        let message = "leasehold serve was started without --allow-break";
        return Err((StatusCode::FORBIDDEN, message.to_owned()));
    }
    check_sender(&request)?;

    let (name, token) = parse(request).await?;
    place.note_request(Activity::Reply);
    let broken = site.scanner.break_hold(&name, token).await;
    match broken {
        Ok(true) => {
            tracing::info!(name = %Escaped(&name), %token, "a user of the page broke a hold");
            Ok(format!("broke the hold with token {token}\n"))
        }
        Ok(false) => {
            let message = format!("the lock is not held with token {token}");
            Err((StatusCode::CONFLICT, message))
        }
        Err(error) if error.is_invalid() => Err((StatusCode::BAD_REQUEST, error.to_string())),
        Err(error) => Err((StatusCode::BAD_GATEWAY, error.to_string())),
    }
}

/// Refuses requests that another site can make a browser send.
fn check_sender(request: &Request<Incoming>) -> Result<(), Refused> {
    let headers = request.headers();
    Access::check_origin(headers).map_err(|_| {
        let message = "the request is from another site";
        (StatusCode::FORBIDDEN, message.to_owned())
    })?;

    // A form of another site can send text, but JSON only with the permission of this server.
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|sent| sent.to_str().ok());
    let media_type = content_type.and_then(|sent| sent.split(';').next());
    if media_type.is_some_and(|sent| sent.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let message = "send application/json";
    Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned()))
}

async fn parse(request: Request<Incoming>) -> Result<(String, Token), Refused> {
    let refused = |message: &str| (StatusCode::BAD_REQUEST, message.to_owned());
    let reading = Limited::new(request.into_body(), BODY_MAX).collect();
    let body = timeout(BODY_TIME_MAX, reading)
        .await
        .map_err(|_| refused("the body did not arrive in time"))?
        .map_err(|_| refused("the body could not be read"))?;
    let order: Order = serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        refused(&format!(
            "the body is not a valid request to break a hold: {error}"
        ))
    })?;

    let token = order
        .token
        .parse()
        .map_err(|_| refused("the token is not a number"))?;
    Ok((order.name, token))
}

/// The longest body: a name of 512 bytes, each of them escaped, and a token.
const BODY_MAX: usize = 8 * 1024;
/// How long a client may take to send it.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);
