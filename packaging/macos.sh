#!/bin/sh
# Checks that the library compiles for macOS with its default features and all stores. TLS is left
# out, because the C code of its cryptography needs a compiler for macOS.
set -eu
cd "$(dirname "$0")/.."

for target in x86_64-apple-darwin aarch64-apple-darwin; do
    rustup target add "$target"
    cargo check --quiet -p leasehold --features postgres,redis,zookeeper,metrics --target "$target"
done
