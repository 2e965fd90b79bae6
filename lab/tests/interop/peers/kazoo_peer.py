# needs: kazoo==2.11.0
"""Acquires and releases a lock of kazoo repeatedly: kazoo_peer.py HOST PATH KIND THREAD CYCLES.

Prints its events as a worker of the lab does.
"""

import sys
import time

from kazoo.client import KazooClient

RW_CAPACITY = 1 << 30


def record(thread, event, at=None):
    at = at or time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    print(at, thread, 0, event, flush=True)


def main(host, path, kind, thread, cycles):
    client = KazooClient(hosts=host)
    client.start()
    lock = {"mutex": client.Lock, "reader": client.ReadLock, "writer": client.WriteLock}[kind](path, "kazoo")
    share = {"mutex": "1 1", "reader": f"1 {RW_CAPACITY}", "writer": f"{RW_CAPACITY} {RW_CAPACITY}"}[kind]
    for _ in range(int(cycles)):
        record(thread, "requested")
        lock.acquire()
        at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        node = client.exists(f"{path}/{lock.node}")
        record(thread, f"granted {node.czxid} {share}", at)
        record(thread, "releasing")
        lock.release()
        record(thread, "released")
    client.stop()


main(*sys.argv[1:])
