//! A process without free descriptors. The limits are those of the process, so each test has a
//! program of its own.
#![allow(missing_docs)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A store without a descriptor for its timer cannot be opened, as it could not renew.
#[test]
fn open_without_descriptors_is_refused() {
    let first = pollster::block_on(leasehold::open("memory:")).expect("the background thread runs");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(1),
            ..limit
        },
    )
    .expect("it can be lowered");
    let second = pollster::block_on(leasehold::open("memory:"));
    setrlimit(Resource::Nofile, limit).expect("it can be raised again");
    assert!(second.expect_err("refused").is_unavailable());
    pollster::block_on(first.mutex("a").acquire())
        .expect("granted")
        .check()
        .expect("held");
}
