#!/usr/bin/env python3
"""Records docs/recording.svg: a wait, a hand-over and a crash, in three terminals.

    python3 docs/recording.py target/debug/leasehold > docs/recording.svg

The terminals run real commands, and the picture shows what they print when they print it.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from html import escape

SECONDS = 12
COLUMNS = 96
COMMAND = "leasehold run report -- ./report.sh"
SCRIPT = "#!/bin/sh\necho working\nsleep $SECONDS_OF_WORK\necho done\n"
STEPS = [(0.3, 0, 4), (1.5, 1, 100), (6.0, 2, 1)]  # When, in which terminal, for how many seconds.
CRASH = 8.2


def start(program, seconds):
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["SECONDS_OF_WORK"] = str(seconds)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        os.execv(program, COMMAND.split())
    return pid, terminal


def record(program):
    """Returns what each terminal shows from which moment on: lists of (time, lines)."""
    screens = [[(0, [])] for _ in STEPS]
    begun, pids, terminals = time.monotonic(), {}, {}
    now = lambda: time.monotonic() - begun

    def show(pane, lines):
        if lines != screens[pane][-1][1]:
            screens[pane].append((now(), lines))

    todo = list(STEPS)
    while now() < SECONDS - 1:
        if todo and now() >= todo[0][0]:
            _, pane, seconds = todo.pop(0)
            show(pane, ["$ " + COMMAND, ""])
            pids[pane], terminal = start(program, seconds)
            terminals[terminal] = pane
        if 1 in pids and now() >= CRASH:
            os.kill(pids.pop(1), signal.SIGKILL)
            show(1, screens[1][-1][1][:-1] + ["Killed", ""])

        for terminal in select.select(list(terminals), [], [], 0.02)[0]:
            try:
                text = os.read(terminal, 4096).decode()
            except OSError:
                text = ""
            pane = terminals[terminal]
            if not text:
                del terminals[terminal]
                continue
            lines = list(screens[pane][-1][1])
            for part in re.split(r"(\r\n|\r\x1b\[2K)", text):
                if part == "\r\n":
                    lines.append("")
                elif part == "\r\x1b[2K":
                    lines[-1] = ""
                else:
                    # The wheel would make ten pictures of a second.
                    lines[-1] += re.sub("[\u2800-\u28ff]", "\u2807", part)
            show(pane, lines)
    return screens


def draw(screens):
    width, height = 720, 92
    frames, styles = [], []
    for pane, states in enumerate(screens):
        top = 34 + pane * (height + 10)
        frames.append(f'<rect x="10" y="{top}" width="{width - 20}" height="{height}" rx="6"/>')
        ends = [at for at, _ in states[1:]] + [SECONDS]
        for number, ((at, lines), end) in enumerate(zip(states, ends)):
            key = f"t{pane}_{number}"
            share = lambda moment: f"{100 * moment / SECONDS:.2f}%"
            hidden = "visibility:hidden"
            styles.append(
                f"@keyframes {key}{{0%{{{hidden}}}{share(at)}{{visibility:visible}}"
                f"{share(end)}{{{hidden}}}}}#{key}{{animation:{key} {SECONDS}s step-end infinite}}"
            )
            rows = [
                f'<text x="22" y="{top + 20 + 18 * row}">{escape(line)}</text>'
                for row, line in enumerate(lines)
                if line
            ]
            past = "" if number == len(states) - 1 else ' class="past"'
            frames.append(f'<g id="{key}"{past}>{"".join(rows)}</g>')
    total = 34 + len(screens) * (height + 10)
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" '
        'font-family="ui-monospace,monospace" font-size="12">\n<style>'
        "rect{fill:#16161a}text{fill:#e6e6ea;white-space:pre}.title{fill:#777;font-family:sans-serif}"
        + "".join(styles)
        + "@media(prefers-reduced-motion){g{animation:none!important}.past{visibility:hidden}}"
        "</style>\n"
        '<text class="title" x="12" y="22">Three terminals, one lock: a wait, a hand-over, '
        "and kill -9 of the holder</text>"
    )
    print("\n".join(frames))
    print("</svg>")


with tempfile.TemporaryDirectory() as folder:
    leasehold = os.path.abspath(sys.argv[1])
    os.environ["LEASEHOLD_STORE"] = f"file:{folder}/locks"
    os.chdir(folder)
    with open("report.sh", "w") as script:
        script.write(SCRIPT)
    os.chmod("report.sh", 0o755)
    draw(record(leasehold))
