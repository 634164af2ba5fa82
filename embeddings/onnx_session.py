"""Sessions of ONNX Runtime, and whether they run where they should."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from embeddings.protocols import EmbedderError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Device = Literal["auto", "cpu", "cuda"]
CUDA: Final = "CUDAExecutionProvider"
CPU: Final = "CPUExecutionProvider"
NO_CUDA: Final = (
    "ONNX Runtime cannot use CUDA here: pip install onnxruntime-gpu in place of onnxruntime, "
    'check the driver, or set device = "cpu"'
)


def open_session(graph: Path, providers: list[str], threads: int, remedy: str = "") -> InferenceSession:
    """`remedy` ends the message when it fails. Raises EmbedderError."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait by spinning would take the cores that serve requests.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=providers)
    except Exception as error:  # the runtime's own errors share no base class
        raise EmbedderError(f"{graph} cannot be loaded: {first_line(error)}{remedy}") from error


def cuda_built() -> bool:
    import onnxruntime

    return CUDA in onnxruntime.get_available_providers()


def on_cuda(session: InferenceSession) -> bool:
    """The runtime lists CUDA as available without a driver, too, and falls back: ask the session."""
    return CUDA in session.get_providers()


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
