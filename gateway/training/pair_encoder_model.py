"""A BERT that reads two texts together, in torch: what the training changes, and its way from and to
numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

from embeddings.bert_weights import (
    BertWeights,
    BlockQuantized,
    EncoderLayer,
    LayerNorm,
    Linear,
    PairHead,
)

MAX_TOKENS: Final = 128

_LAYER: Final = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


class PairModel(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """Token ids and mask, int64 (N, T), to logits, float32 (N,). Word embeddings are not trained: they stay
    in the blocks they came in."""

    def __init__(self, weights: BertWeights) -> None:
        super().__init__()
        self.origin = weights
        words = weights.words.dense() if isinstance(weights.words, BlockQuantized) else weights.words
        config = BertConfig(
            vocab_size=len(words),
            hidden_size=weights.hidden,
            num_hidden_layers=len(weights.layers),
            num_attention_heads=weights.heads,
            intermediate_size=len(weights.layers[0].intermediate.bias),
            max_position_embeddings=len(weights.positions),
            type_vocab_size=1,
            layer_norm_eps=weights.epsilon,
            hidden_dropout_prob=0.0,  # torch draws dropout's numbers on one thread: a tenth of the time
            attention_probs_dropout_prob=0.0,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dense = torch.nn.Linear(weights.hidden, weights.hidden)
        self.out = torch.nn.Linear(weights.hidden, 1)
        self._load(words)
        self.bert.embeddings.word_embeddings.weight.requires_grad_(False)
        self.bert.embeddings.token_type_embeddings.weight.requires_grad_(False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        state = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0].float()
        logits: torch.Tensor = self.out(torch.tanh(self.dense(state)))[:, 0]
        return logits

    def export(self) -> tuple[BertWeights, PairHead]:
        state = {name: tensor.detach().float().numpy() for name, tensor in self.bert.state_dict().items()}
        layers = []
        for i in range(len(self.origin.layers)):
            parts: dict[str, Any] = {}
            for field, name in _LAYER.items():
                at = f"encoder.layer.{i}.{name}."
                kind = LayerNorm if field.endswith("_norm") else Linear
                first = "gamma" if kind is LayerNorm else "weight"
                last = "beta" if kind is LayerNorm else "bias"
                parts[field] = kind(**{first: state[at + "weight"], last: state[at + "bias"]})
            layers.append(EncoderLayer(**parts))
        weights = BertWeights(
            words=self.origin.words,
            positions=state["embeddings.position_embeddings.weight"],
            embedding_norm=LayerNorm(
                gamma=state["embeddings.LayerNorm.weight"], beta=state["embeddings.LayerNorm.bias"]
            ),
            layers=tuple(layers),
            heads=self.origin.heads,
            epsilon=self.origin.epsilon,
        )
        return weights, PairHead(dense=_linear(self.dense), out=_linear(self.out))

    def _load(self, words: Any) -> None:
        weights = self.origin
        named = {
            "embeddings.word_embeddings.weight": words,
            "embeddings.position_embeddings.weight": weights.positions,
            "embeddings.token_type_embeddings.weight": np.zeros((1, weights.hidden), np.float32),
            "embeddings.LayerNorm.weight": weights.embedding_norm.gamma,
            "embeddings.LayerNorm.bias": weights.embedding_norm.beta,
        }
        for i, layer in enumerate(weights.layers):
            for field, name in _LAYER.items():
                part = getattr(layer, field)
                norm = isinstance(part, LayerNorm)
                at = f"encoder.layer.{i}.{name}."
                named[at + "weight"] = part.gamma if norm else part.weight
                named[at + "bias"] = part.beta if norm else part.bias
        self.bert.load_state_dict({name: torch.tensor(np.array(value)) for name, value in named.items()})


class PairTokens:
    """`<s> a </s></s> b </s>` as ids, the longer text cut first to `max_tokens`."""

    def __init__(self, tokenizer: Tokenizer, bos: int, eos: int, max_tokens: int = MAX_TOKENS) -> None:
        self.bos, self.eos = bos, eos
        self._tokenizer, self._room = tokenizer, max_tokens - 4
        self._known: dict[str, list[int]] = {}

    def of(self, a: str, b: str) -> list[int]:
        first, second = self._ids(a), self._ids(b)
        over = len(first) + len(second) - self._room
        if over > 0:
            keep = max(self._room - min(len(first), len(second)), self._room // 2)
            first, second = first[:keep], second[: self._room - min(len(first), keep)]
        return [self.bos, *first, self.eos, self.eos, *second, self.eos]

    def _ids(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return self._known[text]


def padded(rows: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, int64 (N, T)."""
    longest = max(len(row) for row in rows)
    ids = torch.zeros((len(rows), longest), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        mask[at, : len(row)] = 1
    return ids, mask


def _linear(layer: torch.nn.Linear) -> Linear:
    return Linear(weight=layer.weight.detach().numpy(), bias=layer.bias.detach().numpy())
