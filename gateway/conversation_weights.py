"""The file of the verifier of conversations, as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from policies.calibration_curve import Counts
from policies.conversation_verifier import ConversationWeights
from policies.tree_verifier import VerifierWeightsError

_FORMAT: Final = "lockgate-conversations-1"


class ConversationFile(msgspec.Struct, frozen=True, kw_only=True):
    """`counts`: outcomes of held-out conversations, what a policy starts from. `about`: the data with its
    hashes, the seed, held-out figures."""

    format: str
    weights: ConversationWeights
    counts: Counts
    about: Mapping[str, Any]


def shipped_conversations() -> Path:
    return Path(str(resources.files("gateway") / "weights" / "conversations.json"))


def read_conversations_file(path: Path) -> ConversationFile:
    """Raises VerifierWeightsError."""
    try:
        data = path.read_bytes()
        file = msgspec.json.decode(data, type=ConversationFile)
    except OSError as error:
        raise VerifierWeightsError(f"weights {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise VerifierWeightsError(f"weights {path}: damaged: {error}") from error
    if file.format != _FORMAT:
        raise VerifierWeightsError(f"weights {path}: format {file.format}, expected {_FORMAT}")
    identity = hashlib.sha256(data).hexdigest()[:16]
    return msgspec.structs.replace(file, weights=msgspec.structs.replace(file.weights, identity=identity))


def write_conversations_file(
    path: Path, weights: ConversationWeights, counts: Counts, about: Mapping[str, Any]
) -> None:
    """Raises OSError."""
    file = ConversationFile(format=_FORMAT, weights=weights, counts=counts, about=about)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")
    part.replace(path)
