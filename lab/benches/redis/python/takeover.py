# Needs the package of peers/redis_py.py.
"""How long redis-py's lock takes to its next holder after a crash, and what its clients send.

usage: PYTHONPATH=target/peers/python python3 takeover.py PORT DYING

Kills the holder and DYING waiters together, with a lease of 30 s. Prints the seconds until another
waiter holds, and the requests that all clients send until then.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time

import redis

PORT, DYING = int(sys.argv[1]), int(sys.argv[2])


def acquire(acquired):
    lock = redis.Redis(port=PORT).lock("t", timeout=30)
    lock.acquire()
    acquired.set()
    signal.pause()


def start():
    acquired = multiprocessing.Event()
    process = multiprocessing.Process(target=acquire, args=(acquired,), daemon=True)
    process.start()
    return process, acquired


holder, held = start()
held.wait()
waiters = [start()[0] for _ in range(DYING)]
survivor, granted = start()
time.sleep(1)

monitor = socket.create_connection(("127.0.0.1", PORT))
monitor.sendall(b"MONITOR\r\n")
lines = monitor.makefile("r")
lines.readline()

for process in [holder, *waiters]:
    os.kill(process.pid, signal.SIGKILL)
killed = time.monotonic()
granted.wait()
took = time.monotonic() - killed
redis.Redis(port=PORT).echo("end")

sent = 0
for line in lines:
    if '"ECHO" "end"' in line:
        break
    sent += "lua" not in line and "CLIENT" not in line
survivor.kill()
print(f"{DYING} waiters: {took:.1f} s, {sent} requests")
