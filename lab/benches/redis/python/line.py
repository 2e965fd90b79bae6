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
    for line in sys.stdin:
        task = json.loads(line)
        sys.stdout.write(json.dumps(run(library, task)) + "\n")
        sys.stdout.flush()


def run(library, task):
    match task["do"]:
        case "pairs":
            return pairs(library, task["name"], task["count"])
        case "names":
            begun = now()
            run_threads(lambda name: pairs(library, f"n{name}", task["each"]), task["names"])
            return [now() - begun]
        case "contend":
            return run_threads(lambda _: contend(library, task), task["threads"])
        case _:
            return None


def pairs(library, name, count):
    took = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        library.release(library.acquire(name))
        took.append(time.perf_counter_ns() - begun)
    return took


def contend(library, task):
    moments = []
    while now() < task["until"]:
        moments.append(now())
        held = library.acquire(task["name"])
        moments.append(now())
        if task["hold_micros"]:
            time.sleep(task["hold_micros"] / 1e6)
        moments.append(now())
        library.release(held)
    return moments


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
