//! Every example runs to its end.
#![cfg(all(feature = "file", feature = "redis"))]
#![allow(missing_docs, unreachable_pub, clippy::missing_errors_doc)]

macro_rules! examples {
    ($($name:ident at $path:literal)*) => {
        $(
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                $name::main().expect("it runs to its end");
            }
        )*

        #[test]
        fn every_example_is_run() {
            let known = [$(concat!(stringify!($name), ".rs")),*];
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            for example in std::fs::read_dir(folder).expect("it exists") {
                let file = example.expect("it is readable").file_name();
                let is_known = known.iter().any(|name| **name == *file);
                assert!(is_known, "{file:?} is not run");
            }
        }
    };
}

examples!(
    errors at "../examples/errors.rs"
    fenced at "../examples/fenced.rs"
    gpus at "../examples/gpus.rs"
    leader at "../examples/leader.rs"
    nightly at "../examples/nightly.rs"
    shutdown at "../examples/shutdown.rs"
    transfer at "../examples/transfer.rs"
);
