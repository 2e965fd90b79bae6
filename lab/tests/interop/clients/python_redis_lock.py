# needs: python-redis-lock==4.0.0 redis==8.1.0
"""Acquires and releases one lock of python-redis-lock: PYTHON_REDIS_LOCK URL NAME CYCLES.

Prints the begin and the end of each hold, in nanoseconds of CLOCK_BOOTTIME.
"""

import sys
import time

import redis
import redis_lock

url, name, cycles = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = redis.Redis.from_url(url)
for _ in range(cycles):
    lock = redis_lock.Lock(client, name, expire=30)
    assert lock.acquire()
    granted = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    releasing = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    lock.release()
    sys.stdout.write(f"{granted} {releasing}\n")
    # This lets the other party acquire.
    time.sleep(0.001)
