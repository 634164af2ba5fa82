"""`lockgate explain`: why one question's answer would serve another, or would not."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("asked")
@click.argument("cached")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The configuration file; without it ./config.toml if there is one, else the defaults.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def explain(asked: str, cached: str, config_path: Path | None, as_json: bool) -> None:
    """Say what the cache makes of two questions: ASKED now, and CACHED with its answer.

    Both are taken as single questions of one client to one model. What was learnt from traffic is not looked
    at: a running gateway may be stricter or freer.
    """
    from embeddings.protocols import EmbedderError
    from gateway.cli import UserError, chosen_config
    from gateway.config import load
    from gateway.config_problems import ConfigError

    if not asked.strip() or not cached.strip():
        raise UserError("two questions are needed, neither of them empty")
    try:
        found = _explained(asked, cached, load(chosen_config(config_path)))
    except ConfigError as error:
        raise UserError(str(error)) from None
    except EmbedderError as error:
        raise UserError(str(error)) from None
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else _shown(found))


def _explained(asked: str, cached: str, settings: Any) -> dict[str, Any]:
    """Raises ConfigError and EmbedderError."""
    from gateway import parts
    from gateway.chosen_policy import chosen_policy
    from policies.bounded import BoundedPolicy
    from policies.types import Candidate, Identity

    with closing(parts.embedder(settings)) as embedder:
        encoding = embedder.encode([asked, cached])
        space = embedder.space
    similarity = float(encoding.vectors[0] @ encoding.vectors[1])
    chosen = chosen_policy(settings, space)
    policy = chosen.policy
    identity = Identity(exact_key=b"", partition=b"", text=asked)
    candidate = Candidate(entry_id=1, similarity=similarity, text=cached, created_at=0.0)
    found: dict[str, Any] = {"policy": settings.cache.policy.kind, "space": space, "similarity": similarity}
    if chosen.notice:
        return {**found, "serve": False, "reason": chosen.notice}
    if bool(encoding.truncated.any()):
        return {**found, "serve": False, "reason": "a question is longer than the embedder's window"}
    pair_score = None
    if chosen.encoder is not None and policy.undecided(identity, [candidate]):
        with closing(chosen.encoder.opened(settings.embeddings.threads)) as scorer:
            scores = scorer.score([(asked, cached)])
        pair_score = None if scores.truncated[0] else float(scores.logits[0])
    candidate = Candidate(
        entry_id=1, similarity=similarity, text=cached, created_at=0.0, pair_score=pair_score
    )
    if not isinstance(policy, BoundedPolicy):
        verdict = policy.judge(identity, [candidate], 0.0)
        return {**found, "serve": verdict.candidate is not None, "reason": verdict.reason}
    return {**found, "pair_score": pair_score, **policy.explain(identity, candidate)}


def _shown(found: dict[str, Any]) -> str:
    rows = [("similarity", f"{found['similarity']:.4f} in {found['space']}")]
    if found.get("probability") is not None:
        rows += [
            ("stage", found["stage"]),
            ("probability", f"{found['probability']:.4f} that one answer serves both"),
            ("risk", f"{found['risk']:.4f} at most that it does not"),
        ]
    if found.get("pair_score") is not None:
        rows.append(("read together", f"{found['pair_score']:+.2f} (log-odds of the cross-encoder)"))
    rows += [("spoke", words) for words in found.get("spoke", ())]
    rows.append(("serve" if found["serve"] else "generate", found["reason"]))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {words}" for name, words in rows)
