"""`lockgate router`: train the weights that score prompts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

EVERYDAY_ROWS = 2000


@click.group()
def router() -> None:
    """Train what decides between the small and the large model."""


@router.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DATA [DATA]...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The weights, an .onnx file.")
@click.option(
    "--embedder", default="default", show_default=True, help="default, minilm or the folder of a model."
)
@click.option("--seed", default=0, show_default=True, help="Draws the prompts that are held out.")
@click.option("--small-model", "small", multiple=True, help="Its column in DATA; known data sets need none.")
@click.option("--large-model", "large", multiple=True, help="Its column in DATA.")
@click.option(
    "--everyday",
    multiple=True,
    type=click.Path(path_type=Path),
    help=f"JSON lines with a `text`: unlabelled traffic to calibrate on, at most {EVERYDAY_ROWS} rows each.",
)
@click.option(
    "--anchors/--no-anchors",
    default=True,
    show_default=True,
    help="Train on the shipped easy and hard prompts too.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder for the embeddings, to train again quickly; without it beside --out.",
)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="For the embedder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def train(
    data: tuple[Path, ...],
    out: Path,
    embedder: str,
    seed: int,
    small: tuple[str, ...],
    large: tuple[str, ...],
    everyday: tuple[Path, ...],
    anchors: bool,
    cache: Path | None,
    threads: int,
    as_json: bool,
) -> None:
    """Train a difficulty router on prompts that a small and a large model have answered.

    DATA: a folder or .csv of RouteLLM (prompt, and right or wrong per model), a .json of LLMRouter (question,
    scores), or a .jsonl with {prompt, small: 0..1, large: 0..1} per line.
    """
    from embeddings.onnx_embedder import OnnxEmbedder
    from embeddings.protocols import EmbedderError
    from gateway import router_training
    from gateway.cli import UserError
    from gateway.router_data import DEFAULT_LARGE, DEFAULT_SMALL, TrainingDataError, read_training_data
    from gateway.router_embeddings import EmbeddingCacheError
    from gateway.router_heads import TrainingDependencyError, require_scikit_learn

    try:
        require_scikit_learn()
        labelled = read_training_data(data, small or DEFAULT_SMALL, large or DEFAULT_LARGE)
        anchored = router_training.anchors() if anchors else None
        unlabelled = router_training.read_everyday(everyday, EVERYDAY_ROWS, seed)
        total = len(router_training.texts_to_embed(labelled, anchored, unlabelled))
        with (
            closing(OnnxEmbedder.open(embedder, "cpu", threads)) as model,
            click.progressbar(
                length=total, label="embedding", file=sys.stderr, hidden=not sys.stderr.isatty()
            ) as bar,
        ):
            about = router_training.train(
                labelled,
                model,
                out,
                seed=seed,
                anchored=anchored,
                everyday=unlabelled,
                cache=cache or out.parent,
                advance=bar.update,
            )
    except (TrainingDataError, TrainingDependencyError, EmbedderError, EmbeddingCacheError) as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror}") from None
    click.echo(json.dumps({"out": str(out), **about}) if as_json else _summary(out, about))


def _summary(out: Path, about: Mapping[str, Any]) -> str:
    rows = about["rows"]
    lines = [
        f"{out}: trained on {rows['trained']} prompts for {about['space']}",
        f"held out: {rows['held_out']} prompts (seed {about['seed']}); calibrated on them and "
        f"{rows['everyday']} everyday questions",
    ]
    for source, figures in about["held_out"].items():
        lines.append(f"{source}, {figures['prompts']} prompts:")
        lines += [
            f"  {name:<13} APGR {of['apgr']:.3f}  CPT50 {of['cpt50']:.1%}  CPT80 {of['cpt80']:.1%}"
            for name, of in figures.items()
            if name != "prompts"
        ]
    if not about["held_out"]:
        lines.append("no data set whose held-out prompts the large model answers better: no figures")
    return "\n".join(lines)
