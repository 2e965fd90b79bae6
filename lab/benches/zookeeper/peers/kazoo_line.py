# needs: kazoo==2.11.0
"""Runs the tasks on its stdin with kazoo: `pairs COUNT` or `hand_overs COUNT`, one task per line.

It prints the time of each pair or hand-over in nanoseconds.
"""

import sys
import threading
import time

from kazoo.client import KazooClient


def connect(host):
    client = KazooClient(hosts=host)
    client.start()
    return client


def pairs(lock, count):
    for _ in range(count):
        begun = time.perf_counter_ns()
        lock.acquire()
        lock.release()
        yield time.perf_counter_ns() - begun


def hand_overs(near, far, count):
    for _ in range(count):
        granted = []

        def wait():
            far.acquire()
            granted.append(time.perf_counter_ns())

        near.acquire()
        waiter = threading.Thread(target=wait)
        waiter.start()
        while len(near.contenders()) < 2:
            pass
        # The waiter sets its watch a moment after it has created its node.
        time.sleep(0.002)
        begun = time.perf_counter_ns()
        near.release()
        waiter.join()
        far.release()
        yield granted[0] - begun


def main(host):
    near, far = [connect(host).Lock("/kazoo/a", "kazoo") for _ in range(2)]
    for line in sys.stdin:
        task, count = line.split()
        took = pairs(near, int(count)) if task == "pairs" else hand_overs(near, far, int(count))
        print(*took, flush=True)


main(*sys.argv[1:])
