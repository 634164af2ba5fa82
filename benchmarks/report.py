"""What every benchmark writes beside its figures, and where it writes them."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import orjson

RESULTS = Path(__file__).parent / "results"

# Distributions whose versions move the figures; one that is not installed is left out.
_DISTRIBUTIONS = (
    "aiohttp",
    "faiss-cpu",
    "faiss-gpu",
    "lockgate",
    "numpy",
    "onnxruntime",
    "onnxruntime-gpu",
    "sentence-transformers",
    "tokenizers",
    "torch",
    "transformers",
    "uvicorn",
    "uvloop",
    "xllamacpp",
)


def environment() -> dict[str, Any]:
    """The machine and what is installed on it. `load_average` is that of the last minute: well above 0 at
    the start, others were using the machine and times mean less."""
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": _gpu(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def write(name: str, payload: dict[str, Any], command: str) -> Path:
    """Writes `payload` with the environment, the command and the date to `benchmarks/results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {
        "benchmark": name,
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "results": payload,
    }
    path.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _gpu() -> str | None:
    drivers = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    for line in drivers[0].read_text().splitlines() if drivers else ():
        if line.startswith("Model:"):
            return line.partition(":")[2].strip()
    return None
