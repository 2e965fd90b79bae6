# needs: kazoo==2.11.0
"""Takes a lock of kazoo's, again and again, and tells of it as a taker does: kazoo_peer.py HOST PATH KIND HAND CYCLES."""

import sys
import time

from kazoo.client import KazooClient

WHOLE = 1 << 30


def tell(hand, what, at=None):
    at = at or time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    print(at, hand, 0, what, flush=True)


def main(host, path, kind, hand, cycles):
    client = KazooClient(hosts=host)
    client.start()
    lock = {"mutex": client.Lock, "reader": client.ReadLock, "writer": client.WriteLock}[kind](path, "kazoo")
    share = {"mutex": "1 1", "reader": f"1 {WHOLE}", "writer": f"{WHOLE} {WHOLE}"}[kind]
    for _ in range(int(cycles)):
        tell(hand, "requested")
        lock.acquire()
        at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        node = client.exists(f"{path}/{lock.node}")
        tell(hand, f"granted {node.czxid} {share}", at)
        tell(hand, "releasing")
        lock.release()
        tell(hand, "released")
    client.stop()


main(*sys.argv[1:])
