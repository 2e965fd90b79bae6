# needs: redis==8.1.0
"""The Lock of redis-py: no token, no queue, no renewal. It polls every 100 ms.

All threads share one pool of connections.
"""

import redis

from line import serve


class Library:
    def __init__(self, url):
        self.client = redis.Redis.from_url(url)

    def acquire(self, name):
        lock = self.client.lock(name, timeout=30)
        assert lock.acquire()
        return lock

    def release(self, lock):
        lock.release()


serve(Library)
