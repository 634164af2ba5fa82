"""Per-request sampling for transformers' continuous batching: greedy, top-k, top-p and min-p by the row.

The library has processors for temperature, top-k and top-p. Its greedy is an option of the whole engine, and
its cuts sort the whole vocabulary for every row, also for rows that asked for none: to sort 49,152 numbers
twice for each of 8 rows takes one core 80 ms, most of a step of the default model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

_MINUS_INFINITY = float("-inf")

# Top-p looks among this many tokens first; only where they do not reach it is the whole vocabulary sorted.
_NUCLEUS = 256


class _PerRequest(ABC):
    """One number per request, named `name` among the keyword arguments of `add_request`. `neutral` means
    that the row is left alone. The interface is that of the library's ContinuousBatchingLogitsProcessor;
    `install` registers these classes with it, so that nothing here imports torch."""

    name: ClassVar[str]
    kind: ClassVar[type[float] | type[int]]
    neutral: ClassVar[float]
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    @property
    def supported_kwargs(self) -> dict[str, type[float] | type[int]]:
        return {self.name: self.kind}

    def fill_defaults(self, int32_tensor: Any) -> None:
        int32_tensor.copy_(self._as_int32([self.neutral]).expand_as(int32_tensor))

    def prepare_tensor_args(self, requests_with_new_token: Sequence[Any]) -> Any:
        kwargs = [request.state.logit_processor_kwargs for request in requests_with_new_token]
        return self._as_int32([of.get(self.name, self.neutral) for of in kwargs])

    def _as_int32(self, values: Sequence[float]) -> Any:
        import torch

        dtype = torch.float32 if self.kind is float else torch.int32
        return torch.tensor(values, dtype=dtype).view(torch.int32)

    def __call__(self, scores: Any, tensor_arg: Any) -> Any:
        import torch

        values = tensor_arg[: scores.size(0)]
        if self.kind is float:
            values = values.view(torch.float32)
        active = values != self.neutral
        # On a GPU the graph may be captured, so there is no looking at the data; a CPU saves the work.
        if scores.is_cuda:
            return scores.where(~active.unsqueeze(-1), self.cut(scores, values.unsqueeze(-1)))
        if bool(active.any()):
            scores[active] = self.cut(scores[active], values[active].unsqueeze(-1))
        return scores

    @abstractmethod
    def cut(self, scores: Any, values: Any) -> Any:
        """The rows as they are when `values`, one per row, apply. `scores` has shape (rows, vocabulary),
        `values` (rows, 1)."""


class Greedy(_PerRequest):
    """1 keeps the row's best token only, the first of equals, as argmax does."""

    name, kind, neutral = "greedy", int, 0

    def cut(self, scores: Any, values: Any) -> Any:
        import torch

        best = scores.argmax(dim=-1, keepdim=True)
        return torch.full_like(scores, _MINUS_INFINITY).scatter(-1, best, 0.0)


class Temperature(_PerRequest):
    name, kind, neutral = "temperature", float, 1.0

    def cut(self, scores: Any, values: Any) -> Any:
        return scores / values


class TopK(_PerRequest):
    name, kind, neutral = "top_k", int, 0

    def cut(self, scores: Any, values: Any) -> Any:
        values = values.long().clamp(min=1, max=scores.size(-1))
        if scores.is_cuda:
            ordered = scores.sort(dim=-1, descending=True).values
        else:
            ordered = scores.topk(int(values.max()), dim=-1).values
        last = values - 1
        return scores.masked_fill(scores < ordered.gather(-1, last), _MINUS_INFINITY)


class TopP(_PerRequest):
    """Keeps the smallest set of tokens whose probabilities sum up to `top_p`."""

    name, kind, neutral = "top_p", float, 1.0

    def cut(self, scores: Any, values: Any) -> Any:
        import torch

        probabilities = scores.softmax(dim=-1)
        ordered, order = probabilities.topk(min(_NUCLEUS, scores.size(-1)), dim=-1)
        if scores.is_cuda or bool((ordered.sum(dim=-1, keepdim=True) < values).any()):
            ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, before < values)
        return scores.masked_fill(~kept, _MINUS_INFINITY)


class MinP(_PerRequest):
    """Keeps tokens at least `min_p` times as probable as the best."""

    name, kind, neutral = "min_p", float, 0.0

    def cut(self, scores: Any, values: Any) -> Any:
        probabilities = scores.softmax(dim=-1)
        least = probabilities.max(dim=-1, keepdim=True).values * values
        return scores.masked_fill(probabilities < least, _MINUS_INFINITY)


def install(manager: Any) -> None:
    """Gives a ContinuousBatchingManager, not yet started, these processors in place of its own."""
    from transformers import LogitsProcessorList
    from transformers.generation.continuous_batching.cb_logits_processors import (
        ContinuousBatchingLogitsProcessor,
    )

    ContinuousBatchingLogitsProcessor.register(_PerRequest)
    ours = manager.logit_processor
    ours.logits_processor = LogitsProcessorList([Greedy(), Temperature(), TopK(), TopP(), MinP()])
    ours.tensors_required = len(ours.logits_processor)
    ours.supported_keys = {p.name: p.kind for p in ours.logits_processor}
    ours.ignored_keys = set()
    ours.do_processing = True
