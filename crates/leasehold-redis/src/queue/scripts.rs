//! The scripts of the Redis store.
//!
//! A script has a fast path and a slow path. The fast path reads no more than one key of an
//! uncontended lock. The slow path comes last, after the code of the queue.

use super::layout::expand;
use crate::client::{Script, list_script, script};

/// Builds a script that tries a fast path before the general one, and another step before both.
macro_rules! queue_script {
    ($operation:literal $(, after $step:literal)?) => {
        Script::from_template(
            concat!(
                $(include_str!($step), "\n",)?
                include_str!(concat!("lua/", $operation, "/fast.lua")),
                "\n",
                include_str!("lua/queue.lua"),
                "\n",
                include_str!(concat!("lua/", $operation, "/slow.lua")),
                "\n",
            ),
            expand,
        )
    };
}

pub(super) static ENTER: Script = queue_script!("enter");
/// Enters by the first request of a client.
pub(super) static ENTER_FIRST: Script = queue_script!("enter", after "lua/enter/first.lua");
pub(super) static LEAVE: Script = queue_script!("leave");
/// Records a completion, and leaves.
pub(super) static COMPLETE: Script = queue_script!("leave", after "lua/record/complete.lua");
pub(super) static RENEW: Script = queue_script!("renew");
pub(super) static INSPECT: Script = queue_script!("inspect").only_reads();
pub(super) static LIST: Script =
    Script::from_template(list_script!("lua/list"), expand).only_reads();
pub(super) static READ_RECORD: Script = script!("lua/record/read").only_reads();
pub(super) static LIST_RECORDS: Script = Script::new(list_script!("lua/record/list")).only_reads();
pub(super) static LONGEST_LEASE: Script = script!("lua/longest_lease");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scripts_expand() {
        for script in [
            &ENTER,
            &ENTER_FIRST,
            &LEAVE,
            &COMPLETE,
            &RENEW,
            &INSPECT,
            &LIST,
            &READ_RECORD,
            &LIST_RECORDS,
            &LONGEST_LEASE,
        ] {
            assert!(!script.text().contains('@'), "{}", script.text());
        }
    }
}
