#!/bin/sh
# Runs flock(1) and leasehold side by side: one row for each flock row of docs/from-flock.md.
#
# leasehold must be in PATH, and LEASEHOLD_STORE must name a folder, as file:/some/folder. Both
# programs use the same lock: flock locks the file in which the store keeps the lock `n`.
# Prints one line per row, and exits with 1 if a program does something else than its row states.
set -u

folder=${LEASEHOLD_STORE#file:}
LOCK=$folder/n.lock
export LOCK
failed=0

# The file exists after the first hold.
leasehold run n -- true || exit

# row TITLE STATE FLOCK OURS, then on standard input a script for flock, a line of dashes, and a
# script for leasehold. STATE is what another process does with the lock meanwhile: free, shared or
# held. FLOCK and OURS are what the scripts must print; each ends with its exit code.
row() {
    title=$1 state=$2 expected_flock=$3 expected_ours=$4
    scripts=$(cat)
    flock_script=${scripts%%
---
*}
    our_script=${scripts#*
---
}
    got_flock=$(observe "$state" "$flock_script")
    got_ours=$(observe "$state" "$our_script")

    if [ "$got_flock" = "$expected_flock" ] && [ "$got_ours" = "$expected_ours" ]; then
        echo "ok: $title"
    else
        echo "FAILED: $title"
        echo "  flock printed '$got_flock', expected '$expected_flock'"
        echo "  leasehold printed '$got_ours', expected '$expected_ours'"
        failed=1
    fi
}

# Runs a script while this shell holds the lock by descriptor 9, if STATE says so.
observe() {
    (
        exec 9>> "$LOCK"
        case $1 in
        held) flock 9 ;;
        shared) flock -s 9 ;;
        esac
        sh -c "$2" 9>&- 2> /dev/null
        echo "exit $?"
    ) | tr '\n' ' ' | sed 's/ $//'
}

row 'flock FILE COMMAND' free 'ran exit 3' 'ran exit 3' << 'END'
flock "$LOCK" sh -c 'echo ran; exit 3'
---
leasehold run n -- sh -c 'echo ran; exit 3'
END

row 'flock FILE -c LINE' free 'a b exit 0' 'a b exit 0' << 'END'
flock "$LOCK" -c 'echo a; echo b'
---
leasehold run n -c 'echo a; echo b'
END

row 'flock -n FILE COMMAND' held 'exit 1' 'exit 75' << 'END'
flock -n "$LOCK" echo ran
---
leasehold run -n n -- echo ran
END

row 'flock -w SECONDS FILE COMMAND' held 'waited exit 1' 'waited exit 75' << 'END'
start=$(date +%s%N); flock -w 1 "$LOCK" echo ran; code=$?
[ $(($(date +%s%N) - start)) -ge 1000000000 ] && echo waited; exit $code
---
start=$(date +%s%N); leasehold run -w 1 n -- echo ran; code=$?
[ $(($(date +%s%N) - start)) -ge 1000000000 ] && echo waited; exit $code
END

row 'flock -E CODE FILE COMMAND' held 'exit 9' 'exit 9' << 'END'
flock -n -E 9 "$LOCK" echo ran
---
leasehold run -n -E 9 n -- echo ran
END

row 'flock -s FILE COMMAND' shared 'reader exit 0' 'reader exit 0' << 'END'
flock -n -s "$LOCK" echo reader
---
leasehold run -n -s n -- echo reader
END

row 'flock -x FILE COMMAND' shared 'exit 1' 'exit 75' << 'END'
flock -n -x "$LOCK" echo writer
---
leasehold run -n -x n -- echo writer
END

row 'flock --verbose FILE COMMAND' free 'ran logged exit 0' 'ran logged exit 0' << 'END'
flock --verbose "$LOCK" echo ran 2>&1 | sed 's/^flock:.*/logged/' | sort -ru
---
leasehold run -v n -- echo ran 2>&1 | sed 's/.*INFO.*/logged/' | sort -ru
END

row 'flock -o FILE COMMAND' free 'ran exit 0' 'exit 64' << 'END'
flock -o "$LOCK" echo ran
---
leasehold run -o n -- echo ran
END

row 'flock -F FILE COMMAND' free 'ran exit 0' 'exit 64' << 'END'
flock -F "$LOCK" echo ran
---
leasehold run -F n -- echo ran
END

row 'exec 9>FILE; flock 9' free 'busy exit 0' 'busy exit 0' << 'END'
exec 9> "$LOCK"
flock 9
flock -n "$LOCK" true || echo busy
---
token=$(leasehold acquire --while-pid $$ n)
leasehold run -n n -- true || echo busy
leasehold release n --token "$token"
END

row 'exec 9>FILE; flock 9, and the script is killed' free 'busy exit 0' 'free runs exit 0' << 'END'
child=$(sh -c 'exec 9> "$LOCK"; flock 9; sleep 60 > /dev/null & echo $!; kill -9 $$')
flock -n "$LOCK" true || echo busy
kill "$child"
---
child=$(sh -c 'leasehold acquire --while-pid $$ n > /dev/null; sleep 60 > /dev/null & echo $!
               kill -9 $$')
leasehold run -w 60 n -- echo free
kill "$child" && echo runs
END

row 'flock -u 9' free 'free exit 0' 'free exit 0' << 'END'
exec 9> "$LOCK"
flock 9
flock -u 9
flock -n "$LOCK" echo free
---
token=$(leasehold acquire --while-pid $$ n)
leasehold release n --token "$token"
leasehold run -n n -- echo free
END

row 'flock -n FILE true' held 'exit 1' 'exit 1' << 'END'
flock -n "$LOCK" true
---
leasehold show --exit-code n > /dev/null
END

row 'flock FILE true' free 'free exit 0' 'free exit 0' << 'END'
flock "$LOCK" true && echo free
---
leasehold wait n && echo free
END

row 'flock FILE "$0"' free 'under exit 0' 'under exit 0' << 'END'
cat > idiom.sh << 'SCRIPT'
[ "${FLOCKER-}" != "$0" ] && exec env FLOCKER="$0" flock -en "$LOCK" sh "$0" "$@"
flock -n "$LOCK" true || echo under
SCRIPT
sh idiom.sh
---
cat > idiom.sh << 'SCRIPT'
[ "${LEASEHOLD_NAME-}" != n ] && exec leasehold run -n n -- sh "$0" "$@"
flock -n "$LOCK" true || echo under
SCRIPT
sh idiom.sh
END

row 'COMMAND is killed by a signal' free 'exit 137' 'exit 137' << 'END'
flock "$LOCK" sh -c 'kill -9 $$'
---
leasehold run n -- sh -c 'kill -9 $$'
END

row "trap '' PIPE; flock FILE COMMAND" free 'PIPE IGNORE exit 0' 'PIPE IGNORE exit 0' << 'END'
trap '' PIPE
flock "$LOCK" sh -c 'env --list-signal-handling true 2>&1 | tr -s " " | sed -n "s/(13): //p"'
---
trap '' PIPE
leasehold run n -- env --ignore-signal=PIPE \
    sh -c 'env --list-signal-handling true 2>&1 | tr -s " " | sed -n "s/(13): //p"'
END

row "trap '' TTIN; flock FILE COMMAND" free 'TTIN IGNORE exit 0' 'TTIN IGNORE exit 0' << 'END'
trap '' TTIN
flock "$LOCK" sh -c 'env --list-signal-handling true 2>&1 | tr -s " " | sed -n "s/(21): //p"'
---
trap '' TTIN
leasehold run n -- env --ignore-signal=TTIN \
    sh -c 'env --list-signal-handling true 2>&1 | tr -s " " | sed -n "s/(21): //p"'
END

row 'COMMAND does not exist' free 'exit 69' 'exit 127' << 'END'
flock "$LOCK" /nonexistent
---
leasehold run n -- /nonexistent
END

row 'COMMAND leaves a process behind' free 'busy exit 0' 'busy exit 0' << 'END'
mkfifo hold
flock "$LOCK" sh -c 'cat hold > /dev/null &'
flock -n "$LOCK" echo free || echo busy
: > hold; rm hold
---
mkfifo hold ready
leasehold run --until-all-end n -- sh -c 'cat hold > /dev/null & echo > ready' &
cat ready > /dev/null
leasehold run -n n -- echo free || echo busy
: > hold; wait; rm hold ready
END

exit $failed
