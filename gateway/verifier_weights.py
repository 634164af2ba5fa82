"""The file of a verifier: trees and calibration as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from policies.tree_ensemble import TreeArrays, TreeError
from policies.tree_verifier import TreeVerifier, VerifierWeights, VerifierWeightsError

_FORMAT: Final = "lockgate-verifier-1"
_ARRAYS: Final = ("roots", "feature", "threshold", "left", "right", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierFile:
    """`about`: what the file says of its training: seed, data with SHA-256, versions, held-out figures."""

    verifier: TreeVerifier
    about: Mapping[str, Any]


def shipped() -> Path:
    """The file that comes with Lockgate, for the default embedder on a CPU."""
    return Path(str(resources.files("gateway") / "weights" / "verifier-e5.json"))


def read_verifier(path: Path) -> VerifierFile:
    """Raises VerifierWeightsError."""
    try:
        content = json.loads(path.read_bytes())
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
        return VerifierFile(verifier=TreeVerifier(_weights(content)), about=dict(content["about"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # TreeError is a ValueError
        said = str(error) if isinstance(error, TreeError) else f"{type(error).__name__}: {error}"
        raise VerifierWeightsError(f"verifier weights {path}: damaged: {said}") from error
    except VerifierWeightsError as error:
        raise VerifierWeightsError(f"{path}: {error}") from error


def write_weights(path: Path, weights: VerifierWeights, about: Mapping[str, Any]) -> None:
    """Writes the file: the same bytes for the same arguments. Raises OSError."""
    trees = weights.trees
    content = {
        "format": _FORMAT,
        "space": weights.space,
        "features_version": weights.features_version,
        "features": list(weights.features),
        "about": about,
        "calibration": {"raw": weights.raw.tolist(), "probability": weights.probability.tolist()},
        "trees": {
            "baseline": trees.baseline,
            **{name: getattr(trees, name).tolist() for name in _ARRAYS},
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    part.replace(path)


def _weights(content: Mapping[str, Any]) -> VerifierWeights:
    trees, calibration = content["trees"], content["calibration"]
    return VerifierWeights(
        space=str(content["space"]),
        features_version=content["features_version"],
        features=tuple(content["features"]),
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
