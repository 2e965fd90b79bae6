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
            run_threads(lambda name: pairs(library, f"n{name}", task["each"]), task["names"])
            return [now() - begun]
        case "contend":
            pauses = task["hold_micros"] / 1e6, task["think_micros"] / 1e6
            return run_threads(lambda _: contend(library, pauses, task["until"]), task["threads"])
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


def contend(library, pauses, until):
    hold, think = pauses
    moments = []
    while now() < until:
        moments.append(now())
        held = library.acquire("c")
        moments.append(now())
        pause(hold)
        moments.append(now())
        library.release(held)
        pause(think)
    return moments


def pause(seconds):
    if seconds:
        time.sleep(seconds)


def run_threads(work, count):
    """Returns the results of all threads in one list. Raises the first exception of any thread."""
    results = [None] * count
    errors = []

    def run_one(number):
        try:
            results[number] = work(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run_one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [value for result in results for value in result]


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
