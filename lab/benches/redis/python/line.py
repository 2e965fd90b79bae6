"""The tasks of ../workload.rs for any blocking lock library. Each contender is a thread.

A library is a class with `Library(url)`, `acquire(name)` and `release(held)`. `acquire` returns the
value that a holder has, and `release` takes it.
"""

import json
import sys
import threading
import time


def serve(library_of):
    library = library_of(sys.argv[1])
    kept = []
    for line in sys.stdin:
        task = json.loads(line)
        sys.stdout.write(json.dumps(run(library, task, kept)) + "\n")
        sys.stdout.flush()


def run(library, task, kept):
    match task["do"]:
        case "pairs":
            return pairs(library, task["name"], task["count"])
        case "names":
            begun = now()
            together(lambda name: pairs(library, f"n{name}", task["each"]), task["names"])
            return [now() - begun]
        case "contend":
            pauses = task["hold_micros"] / 1e6, task["think_micros"] / 1e6
            return together(lambda _: one_hand(library, pauses, task["until"]), task["threads"])
        case "hold":
            begun = now()
            kept += [library.acquire(f"h{name}") for name in range(task["names"])]
            return [now() - begun]
        case _:
            return None


def pairs(library, name, count):
    took = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        library.release(library.acquire(name))
        took.append(time.perf_counter_ns() - begun)
    return took


def one_hand(library, pauses, until):
    hold, think = pauses
    turns = []
    while now() < until:
        turns.append(now())
        held = library.acquire("c")
        turns.append(now())
        pause(hold)
        turns.append(now())
        library.release(held)
        pause(think)
    return turns


def pause(seconds):
    if seconds:
        time.sleep(seconds)


def together(work, hands):
    """Returns the results of all threads in one list. Raises the first exception of any thread."""
    answers = [None] * hands
    troubles = []

    def one(hand):
        try:
            answers[hand] = work(hand)
        except Exception as trouble:
            troubles.append(trouble)

    threads = [threading.Thread(target=one, args=(hand,)) for hand in range(hands)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise troubles[0]
    return [number for answer in answers for number in answer]


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
