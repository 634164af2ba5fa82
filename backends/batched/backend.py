"""The built-in backend: chat completions from a batching engine in a worker process of our own."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from backends.batched.answer import Answer
from backends.batched.config import BatchedConfig, Supervision
from backends.batched.dispatcher import Dispatcher, Restarted, Ticket
from backends.batched.observer import BatchObserver, NoObserver
from backends.batched.process import WORKER_COMMAND
from backends.batched.request import messages_of, refuse_unsupported, sampling_of
from backends.batched.supervisor import Supervisor
from backends.errors import BackendError, InvalidCall
from backends.protocols import Call, Chunk, Health, Job, Load, Piece
from policies.types import Api

# No tokenizer has a longer token, so more characters than this per token of context never fit, and need
# not be tokenized to know it.
_LONGEST_TOKEN = 512


class BatchedBackend:
    """Call `start` first: it raises EngineUnavailable, with what to install, when the engine cannot run.

    A worker that dies is replaced. Waiting jobs do not notice; a running one begins again once, unless
    some of it has been streamed.
    """

    def __init__(
        self,
        name: str,
        config: BatchedConfig,
        *,
        observer: BatchObserver | None = None,
        supervision: Supervision | None = None,
        worker_command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self._name = name
        self._dispatcher = Dispatcher(
            send=lambda frame: self._supervisor.send(frame),
            observer=observer or NoObserver(),
            max_queue=config.max_queue,
        )
        self._supervisor = Supervisor(config, supervision or Supervision(), self._dispatcher, worker_command)
        self._context_tokens = config.context_tokens

    @property
    def name(self) -> str:
        return self._name

    @property
    def apis(self) -> frozenset[Api]:
        return frozenset({"chat"})

    @property
    def worker_pid(self) -> int | None:
        """Of the worker process; None while there is none."""
        return self._supervisor.pid

    async def start(self) -> None:
        """Returns when the engine takes jobs. Raises EngineUnavailable."""
        await self._supervisor.start()

    def stream(self, call: Call) -> AsyncGenerator[Chunk, None]:
        return self._answer(call)

    async def load(self) -> Load:
        """`kv_usage` is as of the last heartbeat."""
        return self._dispatcher.load()

    async def health(self) -> Health:
        info = self._dispatcher.info
        if info is None:
            return Health(
                ready=False, detail=f"the built-in engine is not running: {self._dispatcher.trouble}"
            )
        return Health(ready=True, detail=f"{info.model} on {info.engine}")

    async def aclose(self) -> None:
        self._dispatcher.close()
        await self._supervisor.stop()

    async def _answer(self, call: Call) -> AsyncGenerator[Chunk, None]:
        job = self._job_of(call)
        ticket = self._dispatcher.enqueue(job, streamed=call.stream)
        call.report.requests += 1
        answer = Answer(
            answer_id=f"chatcmpl-{uuid.uuid4().hex}", model=self._model_of(call), created=int(time.time())
        )
        try:
            async for piece in _pieces(ticket, answer):
                if call.stream:
                    for chunk in answer.stream(piece):
                        yield chunk
                elif (whole := answer.collect(piece)) is not None:
                    yield whole
        finally:
            self._dispatcher.leave(ticket)

    def _job_of(self, call: Call) -> Job:
        refuse_unsupported(call.body)
        messages = messages_of(call.body)
        characters = sum(len(message["content"]) for message in messages)
        if characters > self._context_tokens * _LONGEST_TOKEN:
            raise InvalidCall(
                f"This model's maximum context length is {self._context_tokens} tokens; {characters} "
                "characters of messages cannot fit. Please reduce the length of the messages.",
                param="messages",
            )
        return Job(id=0, messages=messages, sampling=sampling_of(call.body))

    def _model_of(self, call: Call) -> str:
        model = call.body.get("model")
        if isinstance(model, str) and model:
            return model
        info = self._dispatcher.info
        return info.model if info else self._name


async def _pieces(ticket: Ticket, answer: Answer) -> AsyncIterator[Piece]:
    """Until the last one. Raises what ended the job otherwise."""
    while True:
        event = await ticket.events.get()
        if isinstance(event, BackendError):
            raise event
        if isinstance(event, Restarted):
            answer.restart()
            continue
        yield event
        if event.finish_reason is not None:
            return
