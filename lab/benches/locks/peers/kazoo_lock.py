# needs: kazoo==2.11.0
"""The Lock of kazoo, by which the holder finds out that it is first with a second request."""

# Python looks for modules in the folder of this file first, so its name is not that of the library.

from kazoo.client import KazooClient

from line import serve


class Library:
    def __init__(self, url):
        self.client = KazooClient(hosts=url.removeprefix("zookeeper://"))
        self.client.start()

    def acquire(self, name):
        lock = self.client.Lock(f"/kazoo/{name}", "kazoo")
        assert lock.acquire()
        return lock

    def release(self, lock):
        lock.release()


serve(Library)
