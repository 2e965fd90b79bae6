# needs: python-redis-lock==4.0.0 redis==8.1.0
"""The Lock of python-redis-lock: no token, no queue, no renewal. A waiter blocks in BLPOP.

All threads share one pool of connections.
"""

import redis
import redis_lock

from line import serve


class Library:
    def __init__(self, url):
        self.client = redis.Redis.from_url(url)

    def acquire(self, name):
        lock = redis_lock.Lock(self.client, name, expire=30)
        assert lock.acquire()
        return lock

    def release(self, lock):
        lock.release()


serve(Library)
