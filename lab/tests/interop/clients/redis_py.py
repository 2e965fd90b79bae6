# needs: redis==8.1.0
"""Acquires and releases one lock of redis-py: REDIS_PY URL NAME CYCLES.

Prints the begin and the end of each hold, in nanoseconds of CLOCK_BOOTTIME.
"""

import sys
import time

import redis

url, name, cycles = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = redis.Redis.from_url(url)
for _ in range(cycles):
    lock = client.lock(name, timeout=30, sleep=0.001)
    assert lock.acquire()
    granted = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    releasing = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    lock.release()
    sys.stdout.write(f"{granted} {releasing}\n")
    # This lets the other party acquire.
    time.sleep(0.001)
