//! A Redis server does what a test asks of it.

use lab_servers::Redis;

#[test]
fn killed_it_refuses_and_started_again_it_is_empty_at_the_same_place() {
    let mut redis = Redis::start();
    let (url, pid) = (redis.url(), redis.pid());
    redis.command(&["SET", "name", "7"]);
    assert_eq!(redis.command(&["GET", "name"]).text(), "7");
    redis.kill();
    redis.try_ask(&["PING"]).expect_err("nobody listens");
    redis.restart();
    assert_eq!(redis.url(), url);
    assert_ne!(redis.pid(), pid);
    assert!(redis.command(&["GET", "name"]).is_nil());
}
