# needs: pottery==3.0.1
"""Acquires and releases one lock of pottery: POTTERY URL,URL,... NAME CYCLES.

Prints the begin and the end of each hold, in nanoseconds of CLOCK_BOOTTIME.
"""

import sys
import time

# The name of this file is also the name of the library.
sys.path.remove(sys.path[0])

from pottery import Redlock
from redis import Redis

urls, name, cycles = sys.argv[1], sys.argv[2], int(sys.argv[3])
masters = {Redis.from_url(url) for url in urls.split(",")}
for _ in range(cycles):
    lock = Redlock(key=name, masters=masters, auto_release_time=30)
    assert lock.acquire()
    granted = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    releasing = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    lock.release()
    sys.stdout.write(f"{granted} {releasing}\n")
    # This lets the other party acquire.
    time.sleep(0.001)
