#!/bin/sh
# Runs the command of an old commit and the present one in one folder. They must exclude each other,
# lose no waiter and repeat no token, while files are removed and made again.
#
# Usage: lab/old_and_new.sh [RUNS [COMMIT]]
set -eu

runs=${1:-100000} commit=${2:-88ca769}
workers=4
cd "$(dirname "$0")/.."

# The old command is built from its commit, once.
old=$PWD/target/old-and-new/$commit
if [ ! -d "$old" ]; then
    mkdir -p "$old.unfinished"
    git archive "$commit" | tar -x -C "$old.unfinished"
    mv "$old.unfinished" "$old"
fi
cargo build --quiet --release -p leasehold-cli --manifest-path "$old/Cargo.toml" \
    --target-dir "$old/target"
cargo build --quiet --release -p leasehold-cli --target-dir target

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LEASEHOLD_STORE="file:$folder/locks"
for name in 0 1 2; do
    echo 0 0 > "$folder/$name"
done

# Runs under a lock. Two runs at once would lose a count.
critical='
read -r count last < "$0"
if [ "$LEASEHOLD_TOKEN" -le "$last" ]; then
    echo "token $LEASEHOLD_TOKEN after $last" >&2
    exit 1
fi
echo "$((count + 1)) $LEASEHOLD_TOKEN" > "$0"'

# Uses both programs and all names in turn. A free name loses its files, and the next run makes
# them again.
work() {
    worker=$1 run=0
    while [ "$run" -lt $((runs / workers)) ]; do
        name=$((run / worker % 3))
        case $(((run + worker) % 2)) in
        0) program=$old/target/release/leasehold ;;
        1) program=target/release/leasehold ;;
        esac
        timeout 60 "$program" run -q "$name" -- sh -c "$critical" "$folder/$name"
        run=$((run + 1))
    done
}

processes=
for worker in $(seq $workers); do
    work "$worker" &
    processes="$processes $!"
done
all_succeeded=true
for process in $processes; do
    wait "$process" || all_succeeded=false
done

counted=0
for name in 0 1 2; do
    read -r count _ < "$folder/$name"
    counted=$((counted + count))
done
left=$(ls -A "$folder/locks" | tr '\n' ' ')
echo "$counted runs counted; left in the folder: $left"
$all_succeeded && [ "$counted" -eq $((runs / workers * workers)) ] && [ "$left" = '.counter .members ' ]
