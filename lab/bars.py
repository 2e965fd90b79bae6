"""Draws the figures of BENCHMARKS.md from the last run of the benchmarks.

Usage: python3 lab/bars.py   (after `cargo xtask bench uncontended`)

Each picture has a bar for the limit, leasehold and each other library: the median time of a pair,
and its ratio to the limit.
"""

import json
import os
from xml.sax.saxutils import escape

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PICTURES = {
    "redis": ("Redis, split CPUs", "An uncontended pair on Redis"),
    "redlock": ("five masters", "An uncontended pair on five masters of Redis"),
    "zookeeper": ("ZooKeeper", "An uncontended pair on ZooKeeper"),
    "postgres": ("PostgreSQL, durable commits", "An uncontended pair on PostgreSQL"),
    "files": ("one machine", "An uncontended pair on one machine"),
}
WIDTH, LEFT, LONGEST, ROW, TOP = 720, 190, 350, 26, 52
STYLE = """text { font: 14px system-ui, sans-serif; fill: #1f2328; }
    .peer { fill: #8b949e; }
    .ours { fill: #2da44e; }
    .background { fill: #ffffff; stroke: #d1d9e0; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .background { fill: #0d1117; stroke: #3d444d; }
    }"""


def main():
    with open(os.path.join(ROOT, "target/bench/uncontended.json")) as file:
        rows = json.load(file)["rows"]
    for picture, (subject, title) in PICTURES.items():
        limit, *others = [row for row in rows if row["what"] == f"P50, {subject}"]
        bars = [limit, *sorted(others, key=lambda row: row["median"])]
        with open(os.path.join(ROOT, f"docs/pairs-{picture}.svg"), "w") as file:
            file.write(drawn(title, bars))


def drawn(title, bars):
    height = TOP + ROW * len(bars) + 10
    slowest = max(bar["median"] for bar in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(title)}</title>',
        f"  <style>\n    {STYLE}\n  </style>",
        f'  <rect class="background" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'  <text x="20" y="32">{escape(title)}: median time, and ratio to the first</text>',
    ]
    for number, bar in enumerate(bars):
        y = TOP + ROW * number
        kind = "ours" if bar["who"].startswith("leasehold") else "peer"
        length = max(2, round(LONGEST * bar["median"] / slowest))
        ratio = f", {bar['ratio']:.2f} ×" if bar["ratio"] else ""
        name = escape(bar["who"].replace("_", " "))
        lines += [
            f'  <text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{name}</text>',
            f'  <rect class="{kind}" x="{LEFT}" y="{y}" width="{length}" height="20" rx="3"/>',
            f'  <text x="{LEFT + length + 8}" y="{y + 15}">{shown(bar["median"])} µs{ratio}</text>',
        ]
    return "\n".join(lines) + "\n</svg>\n"


def shown(value):
    """Formats a time with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


if __name__ == "__main__":
    main()
