"""Draws hits against wrong answers, for each stream: the policies of `cache_policies.py`, and the peers of
`cache_peers.py` as points.

    python benchmarks/cache_plots.py [--quick] [--json]

Reads cache_policies.json and, where it is there, cache_peers.json in benchmarks/results/; writes
docs/images/cache_policies.png. --json prints one object: `files`. There is nothing to be quicker about:
--quick does the same. Needs matplotlib (the `dev` extra).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "cache_policies.png"
TITLES = {"qqp": "QQP, English (labels incomplete)", "parakqc": "ParaKQC, Korean (labels complete)"}
LINES = {
    "static": ("tab:gray", "o", "static, nine thresholds"),
    "vcache": ("tab:orange", "s", "vCache's method, four bounds"),
    "bounded": ("tab:blue", "^", "bounded, four bounds"),
    "bounded, learning": ("tab:green", "D", "bounded, learning, four bounds"),
}
POINTS = {"GPTCache": ("tab:red", "X"), "CacheLLM": ("tab:purple", "P")}
TICKS = (0, 0.25, 0.5, 0.75, 1, 2, 5, 10, 20, 50, 100)
LINEAR_TO = 1.0  # %: what a cache may get wrong is read below it, and some are beyond 50


def draw(policies: Mapping[str, Any], peers: Mapping[str, Any] | None, path: Path) -> None:
    """`policies` and `peers`: the two files, as `report.write` writes them."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    streams = policies["results"]["streams"]
    figure, axes = plt.subplots(
        1, len(streams), figsize=(6 * len(streams), 5.2), facecolor="white", squeeze=False
    )
    for axis, (name, stream) in zip(axes[0], streams.items(), strict=True):
        for policy, (colour, marker, label) in LINES.items():
            x, y = percentages([row for row in stream["rows"] if row["policy"] == policy])
            axis.plot(x, y, color=colour, marker=marker, label=label)
        for row in peers["results"]["streams"][name]["rows"] if peers else ():
            colour, marker = POINTS[row["policy"]]
            label = f"{row['policy']}, default threshold (cosine {row['setting']:.2f}), MiniLM"
            x, y = percentages([row])
            axis.scatter(x, y, color=colour, marker=marker, s=110, zorder=3, clip_on=False, label=label)
        perfect = stream["perfect_hit_rate"]
        axis.axhline(100 * perfect, color="black", linestyle=":", label="a perfect cache")
        axis.set_xscale("symlog", linthresh=LINEAR_TO, linscale=1.5)
        axis.set_xlim(0, 100)
        axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axis.set_ylim(0, 102)
        axis.set_xlabel(f"wrong answers, % of all requests (logarithmic above {LINEAR_TO:g})")
        axis.set_ylabel("hits, % of all requests")
        axis.set_title(f"{TITLES.get(name, name)}: {stream['requests']:,} requests", fontsize=11)
        axis.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, bbox_to_anchor=(0.5, 0.06))
    figure.text(0.01, 0.01, source(policies, peers), size=7)
    figure.tight_layout(rect=(0, 0.15, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def percentages(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Of all requests: the wrong answers, and the hits."""
    return [100 * row["error_rate"] for row in rows], [100 * row["hit_rate"] for row in rows]


def source(policies: Mapping[str, Any], peers: Mapping[str, Any] | None) -> str:
    said = "Streams that nothing was trained on, in order, from an empty cache. "
    said += f"benchmarks/cache_policies.py, {policies['date'][:10]}, {policies['results']['space']}"
    if peers:
        said += f"\nPeers: benchmarks/cache_peers.py, {peers['date'][:10]}, {peers['results']['embedder']}"
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    policies = json.loads((report.RESULTS / "cache_policies.json").read_text("utf-8"))
    others = report.RESULTS / "cache_peers.json"
    draw(policies, json.loads(others.read_text("utf-8")) if others.exists() else None, OUT)
    print(json.dumps({"files": [str(OUT)]}) if options.json else OUT)


if __name__ == "__main__":
    main()
