//! The parsers of what all stores on Redis receive, for random inputs.

use redis::{FromRedisValue, Value};

use super::cluster::slots;
use super::redirect::Redirect;
use super::reply_error;
use super::sentinel::view::Sighting;
use crate::stores::url::Host;

/// Parses bytes as a reply, and the reply as everything that a store expects.
pub fn reply(bytes: &[u8]) {
    let Ok(reply) = redis::parse_redis_value(bytes) else {
        return;
    };
    let host = Host {
        name: "h".to_owned(),
        port: 1,
    };
    let _slots = slots::parse(&reply, &host);
    if let Value::ServerError(error) = reply.clone() {
        let error = reply_error::store_error(error.into());
        let _redirect = Redirect::of(&error);
        let _shown = format!("{error:?} {error}");
    }

    let _master = Sighting::parse(reply.clone(), reply.clone());
    let _text = super::text(reply.clone());
    convert::<(String, Vec<Vec<u8>>)>(&reply);
    convert::<(Vec<u8>, u64)>(&reply);
    convert::<(String, u64, u64)>(&reply);
    convert::<(String, String, String)>(&reply);
    convert::<(i64, i64)>(&reply);
    convert::<Vec<String>>(&reply);
    convert::<Vec<Value>>(&reply);
    convert::<i64>(&reply);
}

fn convert<T: FromRedisValue>(reply: &Value) {
    let _converted = redis::from_redis_value::<T>(reply.clone());
}
