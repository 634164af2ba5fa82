"""Puts the figures of benchmarks/results/ into the README, between `<!-- table: NAME -->` and `<!-- end -->`.

    python docs/tables.py [--check]

With --check nothing is written; the exit status is 1 when a table is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
SLOT = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Result = dict[str, Any]


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def cache_quality(result: Result) -> str:
    names = {"qqp": "QQP, English", "parakqc": "ParaKQC, Korean"}
    streams = result["streams"]
    head, rows = ["Threshold"], []
    for name, stream in streams.items():
        perfect = f"{stream['perfect_hit_rate']:.1%}"
        head += [f"{names[name]}: hits (perfect: {perfect})", "wrong, of requests", "wrong, of hits"]
    for together in zip(*(stream["thresholds"] for stream in streams.values()), strict=True):
        cells = [f"{together[0]['min_similarity']:.3f}"]
        for row in together:
            cells += [
                f"{row['hit_rate']:.1%}",
                f"{row['error_rate']:.2%}",
                f"{row['error_rate_among_hits']:.1%}",
            ]
        rows.append(cells)
    return markdown(head, rows)


def routing(result: Result) -> str:
    names = {
        "mmlu_5fold": "MMLU, 5 folds",
        "mmlu_1500": "MMLU, 1,500 labels",
        "gsm8k_5fold": "GSM8K, 5 folds",
        "llmrouter_mistral": "LLMRouter, mistral-7b",
    }
    rows = [
        [
            f"{shown} ({result[key]['prompts']:,} prompts)",
            f"**{result[key]['apgr']:.3f}**",
            *(f"{result[key][other]['apgr']:.3f}" for other in ("length_only", "random", "oracle")),
            f"{result[key]['cpt50']:.1%}",
            f"{result[key]['cpt80']:.1%}",
        ]
        for key, shown in names.items()
    ]
    head = ["Prompts", "APGR", "length only", "random", "oracle", "calls for 50 % of the gap", "for 80 %"]
    return markdown(head, rows)


def batching(result: Result) -> str:
    rows = [
        [str(row["batch"]), f"{row['tokens_per_cpu_s']:.0f}", f"{row['tokens_per_wall_s']:.0f}"]
        for row in result["by_batch"]
    ]
    sentence = (
        f"Eight at once took {result['at_once_s']:.1f} s, eight in sequence {result['sequence_s']:.1f} s: "
        f"**{result['wall_ratio']:.2f}** (medians, {result['model']} on {result['engine']}, "
        f"{result['cores']} cores).\n\n"
    )
    return sentence + markdown(["Batch", "Tokens / CPU s", "Tokens / s"], rows)


def latency(result: Result) -> str:
    names = {
        "bare": "bare Starlette + aiohttp proxy",
        "pass": "pass-through, cache off",
        "exact": "exact hit",
        "semantic": "semantic hit (embedded)",
        "verified": "semantic hit, verified",
        "miss": "miss (embedded, routed, stored)",
        "uncached": "bypass (embedded for the route)",
    }
    rows = [
        [
            shown,
            f"{kind['p50_ms']:.2f}",
            f"{kind['p95_ms']:.2f}",
            f"{kind['p99_ms']:.2f}",
            f"{kind['cpu_us']:,.0f}",
            f"{kind['cpu_ratio']:.2f}",
        ]
        for name, shown in names.items()
        for kind in [result["kinds"].get(name)]
        if kind is not None
    ]
    return markdown(["Request", "p50 ms", "p95 ms", "p99 ms", "CPU µs", "× bare"], rows)


def gateway(result: Result) -> str:
    names = {
        "bare": "bare Starlette + aiohttp proxy",
        "lockgate": "**Lockgate**, pass-through",
        "lockgate-hit": "**Lockgate**, exact hit",
        "vllm-router": "vllm-router (Rust)",
        "tensorzero": "TensorZero (Rust)",
        "portkey": "Portkey (Node)",
        "litellm": "LiteLLM proxy",
        "litellm-hit": "LiteLLM proxy, exact hit",
    }
    cells = {(cell["server"], cell["kind"], cell["connections"]): cell for cell in result["cells"]}

    def shown(server: str, kind: str, connections: int, figure: str) -> str:
        cell = cells.get((server, kind, connections))
        if cell is None:
            return ""
        value = cell[figure]
        return f"{value:,.0f}" if figure != "p50_ms" else f"{value:.2f}"

    rows = [
        [
            name,
            shown(server, "json", 64, "req_per_s"),
            shown(server, "json", 64, "cpu_us"),
            shown(server, "json", 1, "p50_ms"),
            shown(server, "stream", 64, "req_per_s"),
            shown(server, "stream", 64, "cpu_us"),
            f"{result['servers'][server]['rss_mib']:.0f}",
        ]
        for server, name in names.items()
        if (server, "json", 64) in cells
    ]
    head = ["Server", "req/s", "CPU µs", "p50 ms, 1 connection", "streams/s", "CPU µs", "RSS MiB"]
    return markdown(head, rows)


def soak(result: Result) -> str:
    rows = [
        [goal["name"], f"{goal['value']:,.4g}", goal["wanted"]]
        for goal in result["goals"]
        if goal["value"] is not None
    ]
    return markdown(["Over ten minutes", "Measured", "Wanted"], rows)


def eviction(result: Result) -> str:
    settings = [row for row in result["settings"] if row["models"] == "two models"]
    exponents = sorted({row["exponent"] for row in settings})
    cells = {(row["capacity"], row["exponent"]): row for row in settings}
    rows = [
        [
            f"room for {capacity}",
            *(
                f"{cells[capacity, exponent]['saved_to_lru']:.2f} × LRU,"
                f" {cells[capacity, exponent]['saved_to_fifo']:.2f} × FIFO"
                for exponent in exponents
            ),
        ]
        for capacity in dict.fromkeys(row["capacity"] for row in settings)
    ]
    sentence = (
        f"Over {result['requests']:,} requests for {result['classes']:,} questions of the QQP stream, drawn"
        " by a Zipf law that drifts and answered by two models of different price, ours saved"
        f" {result['median_saved_to_lru']:.2f} × what LRU saves and"
        f" {result['median_saved_to_fifo']:.2f} × what FIFO saves"
        f" (medians of {len(result['settings'])} settings; never less than either). Who asks the same asks"
        " with the same key here, so no hit is wrong; prices and lengths of answers are assumed.\n\n"
    )
    return sentence + markdown(["", *(f"exponent {exponent}" for exponent in exponents)], rows)


def index(result: Result) -> str:
    rows = []
    for size in result["sizes"]:
        ours, flat = size["search"]["lockgate"], size["search"]["faiss flat"]
        hnsw = size["search"].get("hnswlib")
        other = "" if hnsw is None else f"{hnsw['p50_us'] / 1000:.2f} ({_mean(hnsw['recall']):.3f})"
        rows.append(
            [
                f"{size['rows']:,}",
                f"**{ours['p50_us'] / 1000:.2f}** ({_mean(ours['recall']):.3f})",
                f"{flat['p50_us'] / 1000:,.1f}",
                other,
                f"{size['lone_add_us']['p50']:.0f}",
                f"{size['remove_us']['p50']:.0f}",
                f"{size['memory_mb']:.0f}",
                f"{size['load_s']:.1f}",
            ]
        )
    many = result["many"]
    sentence = (
        f"\n{many['partitions']:,} partitions of 100 take {many['memory_mb']:.0f} MB, a search in one of them"
        f" {many['p50_us']:.0f} µs.\n"
    )
    head = [
        "Vectors",
        "Search p50 ms (recall@1)",
        "FAISS flat",
        "hnswlib",
        "Add µs",
        "Remove µs",
        "MB",
        "Load s",
    ]
    return markdown(head, rows) + sentence


def _mean(recall: dict[str, float]) -> float:
    return sum(recall.values()) / len(recall)


def cache_policies(result: Result) -> str:
    names = {"qqp": "QQP, English", "parakqc": "ParaKQC, Korean"}
    head, rows = ["Policy", "Setting"], []
    for name, stream in result["streams"].items():
        head += [
            f"{names[name]}: hits (perfect: {stream['perfect_hit_rate']:.1%})",
            "wrong, of requests",
            "wrong, of hits",
        ]
    for together in zip(*(stream["rows"] for stream in result["streams"].values()), strict=True):
        cells = [together[0]["policy"], f"{together[0]['setting']:g}"]
        for row in together:
            cells += [
                f"{row['hit_rate']:.1%}",
                f"{row['error_rate']:.2%}",
                f"{row['error_rate_among_hits']:.1%}",
            ]
        rows.append(cells)
    orders = result["orders"]
    below = (
        f"In {orders['count']} random orders of ParaKQC at a bound of {orders['bound']:.0%}, learning, the "
        f"error stayed within it in {orders['kept']}; the greatest was {orders['most']:.2%}, hits "
        f"{orders['hit_rate']:.1%}."
    )
    return f"{markdown(head, rows)}\n{below}\n"


def cache_peers(result: Result) -> str:
    names = {"qqp": "QQP, English", "parakqc": "ParaKQC, Korean"}
    head, rows = ["Cache (least cosine served)"], []
    for name in result["streams"]:
        head += [f"{names[name]}: hits", "wrong, of requests", "wrong, of hits", "CPU ms"]
    head += ["fow-cache questions: served, traps served", "conversations: served, traps served"]
    for peer, about in result["peers"].items():
        cells = [f"{about['requirement']} ({about['threshold']:.2f})"]
        for stream in result["streams"].values():
            row = next(row for row in stream["rows"] if row["policy"] == peer)
            cells += [f"{row['hit_rate']:.1%}", f"{row['error_rate']:.2%}"]
            cells += [f"{row['error_rate_among_hits']:.1%}", f"{row['cpu_ms']:.1f}"]
        for pairs in result["fow_cache"].values():
            row = next(row for row in pairs if row["peer"] == peer)
            cells.append(f"{row['served']:.1%}, {row['traps_served']:.1%}")
        rows.append(cells)
    missing = [f"{name}: not measured, {reason}.\n" for name, reason in result["unavailable"].items()]
    return markdown(head, rows) + "\n".join(["", *missing])


def verifier_quality(result: Result) -> str:
    sets = {"fow_cache": "fow-cache, questions", "hand_pairs": "written by hand, English and Korean"}
    names = {"cosine": "cosine alone", "features": "features", "cascade": "with the cross-encoder"}
    rows = []
    for key, shown in sets.items():
        told = result[key]
        for name, called in names.items():
            row = told[name]
            served = row.get("at 1 x")
            rows.append(
                [
                    f"{shown} ({told['same']} and {told['traps']} traps)" if name == "cosine" else "",
                    called,
                    " / ".join(f"{recall:.3f}" for recall in row["recall"].values()),
                    f"{served['served']:.1%}, {served['traps_served']:.1%}" if served else "",
                ]
            )
    head = [
        "Pairs",
        "Score",
        "served at 1 / 5 / 10 % of traps",
        "at once by the shipped policy: served, traps",
    ]
    return markdown(head, rows)


TABLES: dict[str, Callable[[Result], str]] = {
    "cache_policies": cache_policies,
    "cache_peers": cache_peers,
    "verifier_quality": verifier_quality,
    "cache_quality": cache_quality,
    "routing": routing,
    "batching": batching,
    "latency": latency,
    "gateway": gateway,
    "soak": soak,
    "eviction": eviction,
    "index": index,
}


def filled(text: str) -> str:
    """The README with every table made anew."""

    def fill(slot: re.Match[str]) -> str:
        written = json.loads((RESULTS / f"{slot[2]}.json").read_text("utf-8"))
        result = {**written["results"], "cores": written["environment"]["cores"]}
        return f"{slot[1]}\n{TABLES[slot[2]](result)}\n{slot[3]}"

    return SLOT.sub(fill, text)


def main() -> None:
    before = README.read_text("utf-8")
    after = filled(before)
    if "--check" in sys.argv[1:]:
        sys.exit(after != before)
    README.write_text(after, "utf-8")


if __name__ == "__main__":
    main()
