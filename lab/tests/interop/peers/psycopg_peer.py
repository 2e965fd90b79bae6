# needs: psycopg[binary]==3.3.9
"""Uses a lock of leasehold on PostgreSQL by its routines: psycopg_peer.py DSN NAME THREAD CYCLES.

The lock is taken by a connection in autocommit mode. Each hold writes by another connection, which
is as psycopg makes it: it opens a transaction by itself. Prints its events as a worker of the lab
does, each with a nanosecond of CLOCK_BOOTTIME. Every tenth hold is renewed.
"""

import sys
import time

import psycopg


def record(thread, event):
    print(time.clock_gettime_ns(time.CLOCK_BOOTTIME), thread, 0, event, flush=True)


def acquire(locks, name):
    """Returns the claim and the token. A waiter looks again every 20 ms."""
    row = locks.execute("CALL leasehold.acquire(%s::text)", [name]).fetchone()
    while row[1] is None:
        time.sleep(0.02)
        look = "CALL leasehold.acquire(%s::text, claim => %s::uuid)"
        row = locks.execute(look, [name, row[0]]).fetchone()
    return row[0], row[1]


def write(orders, name, token, claim):
    """Reads and writes a row in one transaction, which pins the grant."""
    with orders.transaction():
        check = "SELECT leasehold.check(%s::text, %s::bigint, %s::uuid, interval '10 s')"
        orders.execute(check, [name, token, claim])
        value = orders.execute("SELECT value FROM orders").fetchone()[0]
        orders.execute("UPDATE orders SET value = %s", [value + 1])


def main(dsn, name, thread, cycles):
    locks = psycopg.connect(dsn, autocommit=True)
    orders = psycopg.connect(dsn)

    # A grant in a transaction would block all clients until its commit.
    try:
        orders.execute("CALL leasehold.acquire(%s::text)", [name])
        sys.exit("acquired in a transaction")
    except psycopg.errors.InvalidTransactionTermination:
        orders.rollback()

    for cycle in range(int(cycles)):
        record(thread, "requested")
        claim, token = acquire(locks, name)
        record(thread, f"granted {token} 1 1")
        write(orders, name, token, claim)
        if cycle % 10 == 0:
            renew = "CALL leasehold.renew(%s::text, %s::uuid)"
            if not locks.execute(renew, [name, claim]).fetchone()[0]:
                sys.exit("the claim is gone before its release")
        record(thread, "releasing")
        release = "CALL leasehold.release(%s::text, %s::uuid)"
        if not locks.execute(release, [name, claim]).fetchone()[0]:
            sys.exit("the claim is gone")
        record(thread, "released")


main(*sys.argv[1:])
