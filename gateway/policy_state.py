"""What a cache policy has learnt, in a file beside the cache's own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec
import structlog

from policies.bounded import BoundedPolicy, PolicyState

_FORMAT: Final = "lockgate-policy-1"


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """`cache`: of which cache, since its entries' ids mean nothing elsewhere."""

    format: str
    cache: str
    state: PolicyState


class PolicyStateFile:
    """`secret` is the store's. A file that cannot be used is left behind and said so: it is learnt anew."""

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path = path
        self._cache = hashlib.blake2b(secret, digest_size=16, person=b"lockgate-policy").hexdigest()
        self._saved: PolicyState | None = None
        self._log = structlog.get_logger("lockgate")

    def restore(self, policy: BoundedPolicy) -> bool:
        """Whether there was something to restore. The account is taken out of the file before it is given to
        the policy: else a process that is killed would leave it there to be spent again."""
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)
            if kept.format != _FORMAT or kept.cache != self._cache:
                raise ValueError("it belongs to another cache or version")
            left = msgspec.structs.replace(kept.state, balance=0.0)
            policy.restore(kept.state if self._took_out(left) else left)
        except FileNotFoundError:
            return False
        except (OSError, ValueError, msgspec.DecodeError) as error:
            detail = error.strerror if isinstance(error, OSError) else str(error)
            self._log.warning("policy_state_unused", path=str(self._path), detail=detail)
            return False
        return True

    def _took_out(self, left: PolicyState) -> bool:
        try:
            self.save(left)
        except OSError as error:
            self._log.warning("policy_state_not_saved", path=str(self._path), detail=error.strerror)
            return False
        return True

    def save(self, state: PolicyState) -> None:
        """Writes it unless nothing has changed; the old file stays until the new one is whole. Raises
        OSError."""
        if state == self._saved:
            return
        part = self._path.with_name(self._path.name + ".part")
        content = msgspec.json.encode(_Kept(format=_FORMAT, cache=self._cache, state=state))
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        self._saved = state
