"""What a query costs with the default embedder, beside all-MiniLM-L6-v2 in 8 bits in the same run.

    python benchmarks/embedder.py [--quick] [--json]

Both run through `OnnxEmbedder` on one thread, taking turns; queries of about 12, 60 and 256 tokens of the
default embedder's own tokenizer, one at a time. Medians of wall and CPU time.

--json prints one object: `rows`, each with `tokens` and, for `default` and `minilm`, `ms` and `cpu_ms`;
`ratio` of the default's CPU time to MiniLM's; `cosine`: of the default in 8 bits to its graph in float32,
`least` and `mean`, over the benchmark's texts; `environment`. No seed: nothing is drawn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from embeddings import embedding_models
from embeddings.embedding_models import EmbeddingModel
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.onnx_session import CPU, open_session

TEXTS = {
    12: "How do I change the address on my account?",
    60: "I moved to another flat last month and the parcels still go to the old place although I changed "
    "the address in my profile twice. Support told me to wait for a day, which I did. How do I make sure "
    "that the next order is sent to the right street?",
}
TEXTS[256] = " ".join([TEXTS[60]] * 4)
ROUNDS, QUICK_ROUNDS = 60, 15


def fp32(model: EmbeddingModel) -> OnnxEmbedder:
    return OnnxEmbedder(model, open_session(model.graph, [CPU], 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    embedders = {name: OnnxEmbedder.open(name, "cpu", 1) for name in ("default", "minilm")}
    rows = []
    for tokens, text in TEXTS.items():
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in embedders}
        for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
            for name, embedder in embedders.items():
                wall, cpu = time.perf_counter(), time.process_time()
                embedder.encode([text])
                taken[name].append((time.perf_counter() - wall, time.process_time() - cpu))
        row: dict[str, Any] = {"tokens": tokens}
        for name, of in taken.items():
            row[name] = {
                "ms": statistics.median(wall for wall, _ in of) * 1000,
                "cpu_ms": statistics.median(cpu for _, cpu in of) * 1000,
            }
        row["ratio"] = row["default"]["cpu_ms"] / row["minilm"]["cpu_ms"]
        rows.append(row)
    exact = fp32(embedding_models.find("default", "fp32")).encode(list(TEXTS.values())).vectors
    cosines = (exact * embedders["default"].encode(list(TEXTS.values())).vectors).sum(axis=1)
    cosine = {"least": float(np.min(cosines)), "mean": float(np.mean(cosines))}
    payload = {"rows": rows, "cosine": cosine}
    if not options.quick:
        report.write("embedder", payload, " ".join(["python benchmarks/embedder.py", *sys.argv[1:]]))
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))
        return
    for row in rows:
        print(
            f"{row['tokens']:>4} tokens: default {row['default']['cpu_ms']:6.2f} ms CPU, MiniLM "
            f"{row['minilm']['cpu_ms']:6.2f}, ratio {row['ratio']:.2f}"
        )
    print(f"cosine to float32: least {cosine['least']:.4f}, mean {cosine['mean']:.4f}")


if __name__ == "__main__":
    main()
