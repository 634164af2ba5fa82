"""Draws what `cache_policies.py` measured: hits against wrong answers, for each stream and policy.

    python benchmarks/cache_plots.py [--quick] [--json]

Reads benchmarks/results/cache_policies.json, writes docs/images/cache_policies.png. --json prints one object:
`files`. There is nothing to be quicker about: --quick does the same. Needs matplotlib (the `dev` extra).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "cache_policies.png"
TITLES = {"qqp": "QQP, English (labels incomplete)", "parakqc": "ParaKQC, Korean (labels complete)"}
STYLES = {
    "static": ("tab:gray", "o", "static, nine thresholds"),
    "vcache": ("tab:orange", "s", "vCache's method, four bounds"),
    "bounded": ("tab:blue", "^", "bounded, four bounds"),
    "bounded, learning": ("tab:green", "D", "bounded, learning, four bounds"),
}


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(result["streams"]), figsize=(11, 4.5), facecolor="white")
    for axis, (name, stream) in zip(axes, result["streams"].items(), strict=True):
        for policy, (colour, marker, label) in STYLES.items():
            rows = [row for row in stream["rows"] if row["policy"] == policy]
            axis.plot(
                [100 * row["error_rate"] for row in rows],
                [100 * row["hit_rate"] for row in rows],
                color=colour,
                marker=marker,
                label=label,
            )
        perfect = stream["perfect_hit_rate"]
        axis.axhline(100 * perfect, color="black", linestyle=":", label=f"a perfect cache: {perfect:.0%}")
        axis.set_xlim(0, 5.5)
        axis.set_ylim(0, None)
        axis.set_xlabel("wrong answers, % of all requests")
        axis.set_ylabel("hits, % of all requests")
        axis.set_title(f"{TITLES.get(name, name)}: {stream['requests']:,} requests")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.text(
        0.01, 0.005, "benchmarks/cache_policies.py; streams that nothing was trained on, in order", size=7
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = json.loads((report.RESULTS / "cache_policies.json").read_text("utf-8"))["results"]
    draw(result, OUT)
    print(json.dumps({"files": [str(OUT)]}) if options.json else OUT)


if __name__ == "__main__":
    main()
