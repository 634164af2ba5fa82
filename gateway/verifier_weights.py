"""The file of a verifier: trees, calibration and what its probabilities have meant, as JSON.

Beside the first stage it may hold a second one, for the scores of a cross-encoder, which lies in a folder
beside the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from policies.calibration_curve import Counts
from policies.cascade_verifier import Blend, CascadeVerifier
from policies.tree_ensemble import TreeArrays, TreeError
from policies.tree_verifier import TreeVerifier, VerifierWeights, VerifierWeightsError

_FORMAT: Final = "lockgate-verifier-2"
_ARRAYS: Final = ("roots", "feature", "threshold", "left", "right", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierFile:
    """`counts`: outcomes of held-out questions by the verifier's probability, what a policy starts from.
    `encoder`: the folder of the cross-encoder, where there is one. `about`: what the file says of its
    training: seed, data with SHA-256, versions, held-out figures."""

    first: VerifierWeights
    blend: Blend | None
    counts: Counts | None
    encoder: Path | None
    about: Mapping[str, Any]

    @property
    def verifier(self) -> TreeVerifier | CascadeVerifier:
        first = TreeVerifier(self.first)
        return first if self.blend is None else CascadeVerifier(first, self.blend)


def shipped() -> Path:
    """The file that comes with Lockgate, for the default embedder on a CPU."""
    return Path(str(resources.files("gateway") / "weights" / "verifier-e5.json"))


def read_verifier(path: Path) -> VerifierFile:
    """Raises VerifierWeightsError."""
    try:
        data = path.read_bytes()
        content = json.loads(data)
    except OSError as error:
        raise VerifierWeightsError(f"verifier weights {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise VerifierWeightsError(f"verifier weights {path}: not JSON") from error
    found = content.get("format", "unknown") if isinstance(content, dict) else "unknown"
    if found != _FORMAT:
        raise VerifierWeightsError(
            f"verifier weights {path}: format {found}, expected {_FORMAT}: "
            "train them again (lockgate verifier train)"
        )
    try:
        return _checked(_file(content, path, hashlib.sha256(data).hexdigest()[:16]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # TreeError is a ValueError
        said = str(error) if isinstance(error, TreeError) else f"{type(error).__name__}: {error}"
        raise VerifierWeightsError(f"verifier weights {path}: damaged: {said}") from error
    except VerifierWeightsError as error:
        raise VerifierWeightsError(f"{path}: {error}") from error


def write_weights(
    path: Path,
    first: VerifierWeights,
    about: Mapping[str, Any],
    *,
    blend: Blend | None = None,
    encoder: str = "",
    counts: Counts | None = None,
) -> None:
    """Writes the file: the same bytes for the same arguments. `encoder`: the folder of the cross-encoder,
    relative to the file's. Raises OSError."""
    content: dict[str, Any] = {
        "format": _FORMAT,
        "space": first.space,
        "features_version": first.features_version,
        "about": about,
        "counts": None if counts is None else {"wrong": counts.wrong, "right": counts.right},
        "first": _stage(first),
        "second": None
        if blend is None
        else {
            "bias": blend.bias,
            "trees": blend.trees,
            "score": blend.score,
            "calibration": {"raw": blend.raw.tolist(), "probability": blend.probability.tolist()},
            "grey": blend.grey,
            "encoder": blend.encoder,
            "folder": encoder,
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    part.replace(path)


def _checked(file: VerifierFile) -> VerifierFile:
    file.verifier  # noqa: B018 - building it checks the weights
    return file


def _file(content: Mapping[str, Any], path: Path, mark: str) -> VerifierFile:
    counts, second = content["counts"], content["second"]
    return VerifierFile(
        first=_weights(content, content["first"], mark),
        blend=None if second is None else _blend(second),
        counts=None if counts is None else Counts(wrong=tuple(counts["wrong"]), right=tuple(counts["right"])),
        encoder=None if second is None else path.parent / str(second["folder"]),
        about=dict(content["about"]),
    )


def _blend(second: Mapping[str, Any]) -> Blend:
    low, high = second["grey"]
    return Blend(
        bias=float(second["bias"]),
        trees=float(second["trees"]),
        score=float(second["score"]),
        raw=np.array(second["calibration"]["raw"], np.float64),
        probability=np.array(second["calibration"]["probability"], np.float64),
        encoder=str(second["encoder"]),
        grey=(float(low), float(high)),
    )


def _stage(weights: VerifierWeights) -> dict[str, Any]:
    trees = weights.trees
    return {
        "features": list(weights.features),
        "calibration": {"raw": weights.raw.tolist(), "probability": weights.probability.tolist()},
        "trees": {
            "baseline": trees.baseline,
            **{name: getattr(trees, name).tolist() for name in _ARRAYS},
        },
    }


def _weights(content: Mapping[str, Any], stage: Mapping[str, Any], mark: str) -> VerifierWeights:
    trees, calibration = stage["trees"], stage["calibration"]
    space = str(content["space"])
    return VerifierWeights(
        space=space,
        identity=f"{space}/{mark}",
        features_version=content["features_version"],
        features=tuple(stage["features"]),
        trees=TreeArrays(
            roots=np.array(trees["roots"], np.int64),
            feature=np.array(trees["feature"], np.int64),
            threshold=np.array(trees["threshold"], np.float64),
            left=np.array(trees["left"], np.int64),
            right=np.array(trees["right"], np.int64),
            value=np.array(trees["value"], np.float64),
            baseline=float(trees["baseline"]),
        ),
        raw=np.array(calibration["raw"], np.float64),
        probability=np.array(calibration["probability"], np.float64),
    )
