//! The functions that take random inputs.

mod file_store;
mod redis_server;
mod url;
mod zookeeper_server;

use fastrand::Rng;
use leasehold::fuzzing;

/// A function that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and the name of its corpus.
    pub name: &'static str,
    pub(crate) run: fn(&[u8]),
    /// Makes checksums and the like right again, in most of the cases.
    pub(crate) repair: fn(&mut Vec<u8>, &mut Rng),
    /// The bytes that it may allocate for an empty input.
    pub(crate) memory: usize,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self {
            name,
            run,
            repair: |_, _| (),
            memory: 0,
        }
    }
}

/// The parser of the `redis` crate makes room for 4,096 pairs of values in each of 100 levels, if a
/// reply announces as many: 46 MB.
const REDIS_REPLY: usize = 48 * 1024 * 1024;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target::new("url", url::run),
    Target::new("redis-texts", fuzzing::redis_texts),
    Target {
        memory: REDIS_REPLY,
        ..Target::new("redis-reply", fuzzing::redis_reply)
    },
    Target::new("vote-texts", fuzzing::vote_texts),
    Target::new("redlock-record", fuzzing::redlock_record),
    Target::new("redisson-fields", fuzzing::redisson_fields),
    Target::new("zookeeper-nodes", fuzzing::zookeeper_nodes),
    Target::new("small-files", fuzzing::small_files),
    Target {
        repair: |image, rng| file_store::repair_image(image, rng),
        ..Target::new("queue-file", fuzzing::queue_file)
    },
    Target {
        repair: file_store::repair,
        memory: 8 * 1024 * 1024,
        ..Target::new("file-store", file_store::run)
    },
    Target {
        memory: REDIS_REPLY,
        ..Target::new("redis-server", redis_server::run)
    },
    Target {
        memory: 8 * 1024 * 1024,
        ..Target::new("zookeeper-server", zookeeper_server::run)
    },
];
