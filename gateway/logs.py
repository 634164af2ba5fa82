"""Logging: structlog for our own lines, and the standard library's loggers brought into the same form."""

from __future__ import annotations

import logging
import sys

import orjson
import structlog
from structlog.typing import EventDict, WrappedLogger


def configure(*, as_json: bool, level: int = logging.INFO) -> None:
    """One line an event on stderr: JSON, or for a terminal in columns."""
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        _render_json
        if as_json
        else structlog.dev.ConsoleRenderer(
            exception_formatter=structlog.dev.plain_traceback  # others print variables: prompts and keys
        )
    )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer]
        if as_json
        else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def _render_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return orjson.dumps(event, default=str).decode()
