"""How much quality the difficulty router keeps for each share of calls to the large model.

    python benchmarks/routing.py [--quick] [--json] [--embedder default|minilm] [--data DIR] [--cache DIR]

Prompts with both models' answers judged: MMLU and GSM8K as answered by Mixtral-8x7B and GPT-4 (RouteLLM, its
contaminated prompts left out), and LLMRouter's 14 tasks as answered by mistral-7b and nemotron-51b. Every
prompt is scored by heads that have not seen it; the penalty is chosen on inner folds of the training part
alone. Measures as in RouteLLM (arXiv:2406.18665), on the whole curve: APGR, and CPT50 and CPT80, the least
share of calls to the large model that recovers 50 and 80 % of the gap in quality.

--json prints one object: `mmlu_5fold`, `mmlu_1500` (1,500 labels to train on, the rest is scored),
`gsm8k_5fold`, `llmrouter_mistral` (5 folds of both its files, every prompt once) and `llmrouter_mistral_test`
(trained on its training file, scored on the 381 test prompts that are not in it), each with `apgr`, `cpt50`,
`cpt80` of the router, `prompts`, `small_quality`, `large_quality`, and under `lexical_only` (the router
without an embedding), `length_only`, `random` and `oracle` the same three measures, all means over `seeds`;
`apgr_sd` is the standard deviation over the seeds. `embedder`, `seeds`, `quick`,
`environment`. Seeds: 1, 2, 3; with --quick 1. (Folds of seed 0 served to
choose how lexical features are scaled.)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import platformdirs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from embeddings.onnx_embedder import OnnxEmbedder
from gateway.router_data import LabelledPrompts, read_training_data
from gateway.router_embeddings import embed
from gateway.router_heads import PENALTIES, Examples, FloatMatrix, Rows, choose_penalty, fit_heads, fold_rows
from policies.lexical import LEXICAL_FEATURES, lexical_features
from policies.routing_eval import routing_metrics

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SEEDS = (1, 2, 3)
FOLDS = 5
LABELS = 1_500
QUICK_PENALTIES = PENALTIES[1::2]
MEASURES = ("apgr", "cpt50", "cpt80")

Split = Callable[[int], list[tuple[Rows, Rows]]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """`split(seed)` gives (rows to train on, rows to score) pairs; scores of one seed are judged together."""

    name: str
    data: LabelledPrompts
    split: Split


def folds(count: int, seed: int) -> list[tuple[Rows, Rows]]:
    return [(np.setdiff1d(np.arange(count), held), held) for held in fold_rows(count, FOLDS, seed)]


def few_labels(count: int, seed: int) -> list[tuple[Rows, Rows]]:
    order = np.random.default_rng(seed).permutation(count)
    return [(np.sort(order[:LABELS]), np.sort(order[LABELS:]))]


def given(train: int, count: int, seed: int) -> list[tuple[Rows, Rows]]:
    """The first `train` rows are the data set's own training part; there is nothing to draw."""
    return [(np.arange(train), np.arange(train, count))]


def protocols(folder: Path) -> list[Protocol]:
    routing = folder / "routing"
    routellm = read_training_data([routing / "routellm"])
    files = [routing / "llmrouter" / f"dcrouter_{part}.json" for part in ("train", "test")]
    train = len(read_training_data(files[:1]))
    both = read_training_data(files)  # a test prompt that is in the training file is read once, with it
    mmlu, gsm8k = routellm.of("mmlu"), routellm.of("gsm8k")
    return [
        Protocol("mmlu_5fold", mmlu, partial(folds, len(mmlu))),
        Protocol("mmlu_1500", mmlu, partial(few_labels, len(mmlu))),
        Protocol("gsm8k_5fold", gsm8k, partial(folds, len(gsm8k))),
        Protocol("llmrouter_mistral", both, partial(folds, len(both))),
        Protocol("llmrouter_mistral_test", both, partial(given, train, len(both))),
    ]


def examples_of(data: LabelledPrompts, rows: FloatMatrix) -> Examples:
    return Examples(
        rows=rows,
        small=data.small,
        large=data.large,
        weight=np.ones(len(data)),
        group=np.zeros(len(data), dtype=np.intp),
        lexical=len(LEXICAL_FEATURES),
    )


def learnt_scores(
    examples: Examples, parts: list[tuple[Rows, Rows]], seed: int, penalties: Sequence[float]
) -> FloatMatrix:
    """Scores of the rows to score, NaN elsewhere."""
    scores = np.full(len(examples.rows), np.nan)
    for train, held in parts:
        known = examples.take(train)
        heads = fit_heads(known, choose_penalty(known, seed, penalties))
        scores[held] = heads.gain(examples.rows[held])
    return scores


def measure(protocol: Protocol, examples: Examples, seed: int, penalties: Sequence[float]) -> dict[str, Any]:
    """Measures of every router on one split, and the rows they were taken on."""
    data, parts = protocol.data, protocol.split(seed)
    held = np.concatenate([rows for _, rows in parts])
    scores = {
        "router": learnt_scores(examples, parts, seed, penalties),
        "lexical_only": learnt_scores(examples.lexical_only(), parts, seed, penalties),
        "length_only": np.array([float(len(prompt)) for prompt in data.prompts]),
        "random": np.random.default_rng(seed).random(len(data)),
        "oracle": data.large - data.small,
    }
    return {
        name: asdict(routing_metrics(values[held], data.small[held], data.large[held]))
        for name, values in scores.items()
    } | {
        "prompts": len(held),
        "small_quality": float(data.small[held].mean()),
        "large_quality": float(data.large[held].mean()),
    }


def summarise(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds; those of the router stand at the top."""

    def means(name: str) -> dict[str, float]:
        return {key: round(float(np.mean([run[name][key] for run in runs])), 4) for key in MEASURES}

    return {
        **means("router"),
        "apgr_sd": round(float(np.std([run["router"]["apgr"] for run in runs])), 4),
        "prompts": runs[0]["prompts"],
        **{
            key: round(float(np.mean([run[key] for run in runs])), 4)
            for key in ("small_quality", "large_quality")
        },
        **{name: means(name) for name in ("lexical_only", "length_only", "random", "oracle")},
    }


def table(results: Mapping[str, Any]) -> str:
    lines = ["| Data | Router | APGR | CPT50 | CPT80 |", "| --- | --- | --- | --- | --- |"]
    for name, figures in results.items():
        rows = {"Lockgate": figures} | {
            label: figures[key]
            for label, key in (
                ("without embedding", "lexical_only"),
                ("length alone", "length_only"),
                ("random", "random"),
                ("oracle", "oracle"),
            )
        }
        lines += [
            f"| {name} | {label} | {of['apgr']:.3f} | {of['cpt50']:.1%} | {of['cpt80']:.1%} |"
            for label, of in rows.items()
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed and fewer penalties to choose from")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.add_argument("--embedder", default="default", choices=["default", "minilm"])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds routing/")
    parser.add_argument("--cache", type=Path, default=platformdirs.user_cache_path("lockgate") / "routing")
    arguments = parser.parse_args()
    if not (arguments.data / "routing").is_dir():
        raise SystemExit(
            f"{arguments.data}: no routing data there; name the folder that holds routing/: --data"
        )
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    penalties = QUICK_PENALTIES if arguments.quick else PENALTIES

    wanted = protocols(arguments.data)
    texts = list(dict.fromkeys(prompt for protocol in wanted for prompt in protocol.data.prompts))
    embedder = OnnxEmbedder.open(arguments.embedder, "cpu", 1)
    with click.progressbar(
        length=len(texts), label="embedding", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        vectors = embed(embedder, texts, arguments.cache, bar.update)
    features = np.stack([lexical_features(text) for text in texts])
    known = dict(zip(texts, np.concatenate([vectors, features], axis=1).astype(np.float64), strict=True))
    results = {}
    for protocol in wanted:
        examples = examples_of(protocol.data, np.stack([known[prompt] for prompt in protocol.data.prompts]))
        results[protocol.name] = summarise([measure(protocol, examples, seed, penalties) for seed in seeds])
        print(f"{protocol.name}: done", file=sys.stderr)
    payload = {"embedder": embedder.space, "seeds": list(seeds), "quick": arguments.quick, **results}
    embedder.close()
    name = "routing" if arguments.embedder == "default" else f"routing-{arguments.embedder}"
    path = report.write(name, payload, " ".join(["python", "benchmarks/routing.py", *sys.argv[1:]]))
    if arguments.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(f"{table(results)}\n\nSeeds {', '.join(map(str, seeds))}; embedder {embedder.space}; {path}")


if __name__ == "__main__":
    main()
