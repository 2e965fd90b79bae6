"""Executes a program under the system call filter of one option of systemd.exec(5).

usage: seccomp.py OPTION PROGRAM [ARGUMENT]...

The filters are those of src/shared/seccomp-util.c in systemd, which uses the same library.
"""

import ctypes
import errno
import os
import subprocess
import sys

KILL, ALLOW = 0x80000000, 0x7FFF0000
LESS, EQUAL, GREATER, MASKED = 2, 4, 6, 7
NAMESPACES = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`: the argument's index, an operator, and its operands."""

    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


class Filter:
    def __init__(self, default):
        self.library = ctypes.CDLL("libseccomp.so.2")
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action, call, *comparisons):
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        rows = (Comparison * max(1, len(comparisons)))(*(Comparison(*row) for row in comparisons))
        # It fails for a call that this architecture does not have.
        self.library.seccomp_rule_add_array(
            self.context, ctypes.c_uint32(action), number, len(comparisons), rows
        )

    def refuse(self, error, call, *comparisons):
        self.rule(0x50000 | error, call, *comparisons)

    def load(self):
        assert self.library.seccomp_load(self.context) == 0


def restrict_address_families():
    """AF_INET (2) and AF_INET6 (10) are allowed."""
    rules = Filter(ALLOW)
    forbidden = [(LESS, 2), (GREATER, 10)] + [(EQUAL, family) for family in range(3, 10)]
    for operator, family in forbidden:
        rules.refuse(errno.EAFNOSUPPORT, "socket", (0, operator, family, 0))
    return rules


def restrict_namespaces():
    rules = Filter(ALLOW)
    rules.refuse(errno.ENOSYS, "clone3")
    rules.refuse(errno.EPERM, "setns")
    for flag in NAMESPACES:
        for call in ("clone", "unshare"):
            rules.refuse(errno.EPERM, call, (0, MASKED, flag, flag))
    return rules


def restrict_suid_sgid():
    rules = Filter(ALLOW)
    modes = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mkdir": 1, "mkdirat": 2}
    for call, argument in modes.items():
        for bit in (0o4000, 0o2000):
            rules.refuse(errno.EPERM, call, (argument, MASKED, bit, bit))
    return rules


def memory_deny_write_execute():
    write_execute, execute, shared_execute = 6, 4, 0o100000
    rules = Filter(ALLOW)
    rules.refuse(errno.EPERM, "mmap", (2, MASKED, write_execute, write_execute))
    for call in ("mprotect", "pkey_mprotect"):
        rules.refuse(errno.EPERM, call, (2, MASKED, execute, execute))
    rules.refuse(errno.EPERM, "shmat", (2, MASKED, shared_execute, shared_execute))
    return rules


def system_call_filter():
    """Any call outside of the set ends the process, as without SystemCallErrorNumber=."""
    rules = Filter(KILL)
    for call in set(calls_of("@system-service")):
        rules.rule(ALLOW, call)
    return rules


def calls_of(group):
    listing = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    ).stdout
    for line in listing.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            yield from calls_of(word)
        elif word and not word.startswith("#"):
            yield word


FILTERS = {
    "RestrictAddressFamilies": restrict_address_families,
    "RestrictNamespaces": restrict_namespaces,
    "RestrictSUIDSGID": restrict_suid_sgid,
    "MemoryDenyWriteExecute": memory_deny_write_execute,
    "SystemCallFilter": system_call_filter,
}

FILTERS[sys.argv[1]]().load()
os.execvp(sys.argv[2], sys.argv[2:])
