"""The tasks of ../workload.rs for any blocking lock library, with a thread for each name.

A library is a class with `Library(url)`, `acquire(name)` and `release(held)`. `acquire` returns the
value that a holder has, and `release` takes it.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor


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
            begun = time.perf_counter_ns()
            run_threads(lambda name: pairs(library, f"n{name}", task["each"]), task["names"])
            return [time.perf_counter_ns() - begun]
        case _:
            return None


def pairs(library, name, count):
    took = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        library.release(library.acquire(name))
        took.append(time.perf_counter_ns() - begun)
    return took


def run_threads(work, count):
    """Runs the work in this number of threads. Raises the first exception of any thread."""
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))
