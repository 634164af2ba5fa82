"""`lockgate verifier`: train and measure what says whether one answer serves two questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from embeddings.pair_thread import PairScorer

_DATA = click.argument(
    "data", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DATA [DATA]..."
)
_EMBEDDER = click.option(
    "--embedder", default="default", show_default=True, help="default, minilm or the folder of a model."
)
_THREADS = click.option(
    "--threads", default=1, show_default=True, type=click.IntRange(1), help="For the embedder."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@click.group()
def verifier() -> None:
    """Train and measure what says whether one answer serves two questions."""


@verifier.command()
@_DATA
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The weights, a .json file.")
@_EMBEDDER
@click.option("--seed", default=0, show_default=True, help="Draws the pairs that are held out.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder for the embeddings, to train again quickly; without it beside --out.",
)
@_THREADS
@_JSON
def train(
    data: tuple[Path, ...],
    out: Path,
    embedder: str,
    seed: int,
    cache: Path | None,
    threads: int,
    as_json: bool,
) -> None:
    """Train a verifier on pairs of your own.

    DATA: .jsonl or .jsonl.gz files with {"a": text, "b": text, "same": true or false} on each line; `same`
    says whether one answer serves both. At least 500 pairs, 100 of either kind. Near misses teach the most.
    """
    from embeddings.onnx_embedder import OnnxEmbedder
    from embeddings.protocols import EmbedderError
    from gateway import verifier_training
    from gateway.cli import UserError
    from gateway.router_embeddings import EmbeddingCacheError
    from gateway.verifier_data import VerifierDataError, read_pairs
    from gateway.verifier_fitting import VerifierDependencyError, require_scikit_learn
    from gateway.verifier_weights import read_verifier, shipped
    from policies.tree_verifier import VerifierWeightsError

    try:
        require_scikit_learn()
        pairs, files = read_pairs(data)
        parts = verifier_training.own_parts(pairs, seed)
        total = len(verifier_training.texts_of(parts))
        encoder = read_verifier(shipped()).encoder
        with (
            closing(OnnxEmbedder.open(embedder, "cpu", threads)) as model,
            opened_encoder(encoder, threads) as scorer,
            click.progressbar(
                length=total, label="embedding", file=sys.stderr, hidden=not sys.stderr.isatty()
            ) as bar,
        ):
            about = verifier_training.train(
                parts,
                model,
                out,
                seed=seed,
                files=files,
                cache=cache or out.parent,
                scorer=scorer,
                encoder=encoder,
                advance=bar.update,
            )
    except (
        VerifierDataError,
        VerifierDependencyError,
        VerifierWeightsError,
        EmbedderError,
        EmbeddingCacheError,
    ) as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror}") from None
    if as_json:
        click.echo(json.dumps({"out": str(out), **about}))
        return
    rows = {part: sum(counts.values()) for part, counts in about["rows"].items()}
    click.echo(f"{out}: trained on {rows['train']} pairs, edits among them, for {about['space']}")
    click.echo(f"calibrated on {rows['calibrate']}, measured on {rows['evaluate']} others (seed {seed})")
    click.echo(_table(about["held_out"]))


@verifier.command()
@_DATA
@click.option(
    "--weights", type=click.Path(path_type=Path), help="Trained weights; without it those of Lockgate."
)
@_EMBEDDER
@_THREADS
@_JSON
def measure(data: tuple[Path, ...], weights: Path | None, embedder: str, threads: int, as_json: bool) -> None:
    """Measure a verifier on pairs that it was not trained on, beside the cosine alone.

    DATA is as for `train`. The recall is the share of the same pairs that would be served at a threshold
    that lets 1, 5 or 10 % of the others through; with few pairs it is rough.
    """
    from embeddings.onnx_embedder import OnnxEmbedder
    from embeddings.protocols import EmbedderError
    from gateway import verifier_training
    from gateway.cli import UserError
    from gateway.verifier_data import VerifierDataError, read_pairs
    from gateway.verifier_weights import read_verifier, shipped
    from policies.tree_verifier import VerifierWeightsError

    try:
        pairs, _ = read_pairs(data)
        file = read_verifier(weights or shipped())
        with (
            closing(OnnxEmbedder.open(embedder, "cpu", threads)) as model,
            opened_encoder(file.encoder, threads) as scorer,
        ):
            file.verifier.of_space(model.space)
            figures = verifier_training.measured(pairs, file, model, scorer)
    except (VerifierDataError, VerifierWeightsError, EmbedderError) as error:
        raise UserError(str(error)) from None
    click.echo(json.dumps(figures) if as_json else _table(figures))


@contextmanager
def opened_encoder(folder: Path | None, threads: int) -> Iterator[PairScorer | None]:
    """The cross-encoder in `folder`; None where there is none. Raises EmbedderError."""
    if folder is None:
        yield None
        return
    from embeddings.pair_encoder import PairEncoder

    with closing(PairEncoder.open(folder, "cpu", threads)) as scorer:
        yield scorer


def _table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for source, of in figures.items():
        if "pairs" in of:
            lines.append(
                f"{source:<24} {of['pairs']:>6} edits        accepted at 1 %: "
                f"verifier {of['verifier']:.3f}  cosine {of['cosine']:.3f}"
            )
            continue
        shares = " / ".join(f"{share:.0%}" for share in of["shares"])
        recalls = "  ".join(
            f"{name} " + " / ".join(f"{recall:.3f}" for recall in of[name]) for name in ("verifier", "cosine")
        )
        lines.append(
            f"{source:<24} {of['same']:>6} same, {of['not_same']} not: recall at {shares}: {recalls}"
        )
    return "\n".join(lines)
