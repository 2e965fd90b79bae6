"""Prints the files and functions that one warm, uncontended acquire runs through.

Usage: python3 lab/path.py   (it needs gdb)

gdb stops at the caller's first call of each function of the crates between the two marks of
`lab/src/bin/acquire.rs`. Files are in the order of their first function, and so are the functions
of a file.
"""

import os
import re
import subprocess
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "target/debug/acquire")
STORES = ["memory", "file", "redis"]
WIDTH = 100
# What `#[derive]` writes in most files.
DERIVED = ["clone", "default", "eq", "hash", "partial_cmp"]


def main():
    subprocess.run(["cargo", "build", "--quiet", "-p", "lab", "--bin", "acquire"], cwd=ROOT, check=True)
    for store in STORES:
        debugger = ["gdb", "-q", "-batch", "-x", os.path.abspath(__file__), "--args", PROGRAM, store]
        traced = subprocess.run(debugger, cwd=ROOT, check=True, capture_output=True, text=True)
        calls = re.findall(r"^call (\S+) (\w+)$", traced.stdout, re.MULTILINE)
        if not calls:
            sys.exit(traced.stdout + traced.stderr)
        print_path(store, [call for call in calls if call[1] not in DERIVED])


def print_path(store, calls):
    files = {}
    for file, function in calls:
        functions = files.setdefault(file.removeprefix("leasehold-core/src/"), [])
        if function not in functions:
            functions.append(function)

    print(f"{store}: {len(files)} files, {sum(map(len, files.values()))} functions")
    for number, (file, functions) in enumerate(files.items(), 1):
        listed = f"{number:2} {file}: {', '.join(functions)}"
        print(textwrap.fill(listed, WIDTH, subsequent_indent="      "))
    print()


def trace():
    """Runs within gdb."""
    for command in ["set pagination off", "set print thread-events off", "break main", "run"]:
        gdb.execute(command)

    functions = list_functions()
    main_address = next(address for address, name in functions if name == "main")
    offset = int(gdb.parse_and_eval("(long)&main")) - main_address
    marks = {name: address for address, name in functions if name.startswith("acquire::trace_")}
    for mark in ["acquire::trace_begins", "acquire::trace_ends"]:
        gdb.execute(f"break *{marks[mark] + offset}")
    gdb.execute("continue")

    for address, name in functions:
        if "leasehold" in name:
            at = gdb.find_pc_line(address + offset)
            if at.symtab and "/crates/" in at.symtab.fullname():
                Entry(address + offset, at.symtab.fullname(), name)
    gdb.execute("continue")
    gdb.execute("kill")


def list_functions():
    """The address and the name of each function."""
    listed = subprocess.run(["nm", "-C", PROGRAM], check=True, capture_output=True, text=True).stdout
    lines = (line.split(maxsplit=2) for line in listed.splitlines())
    return [(int(line[0], 16), line[2]) for line in lines if len(line) == 3 and line[1] in "tT"]


def entry_type():
    class Entry(gdb.Breakpoint):
        """A function that is not yet called."""

        def __init__(self, address, file, name):
            super().__init__(f"*{address}", internal=True)
            self.call = f"call {file.split('/crates/')[1]} {readable(name)}"

        def stop(self):
            # The other threads do what the hold before this one has left to them.
            if self.enabled and gdb.selected_thread().num == 1:
                self.enabled = False
                print(self.call)
            return False

    return Entry


def readable(name):
    """The name of a function without its type, type parameters and closures."""
    name = re.sub(r"^<.*>::(\w+)", r"\1", name)
    while "<" in name:
        name, changes = re.subn(r"(::)?<[^<>]*>", "", name)
        if not changes:
            break
    return [part for part in name.split("::") if "{" not in part][-1]


try:
    import gdb
except ImportError:
    main()
else:
    Entry = entry_type()
    trace()
