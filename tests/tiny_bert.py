"""A small BERT with random weights in a sentence-transformers folder, for tests that need no real model."""

from __future__ import annotations

import json
from pathlib import Path

HIDDEN = 64
MAX_TOKENS = 16
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *["the", "cat", "dog", "sat", "ran", "on", "under", "a", "mat", "tree", "not", "never", "1", "2", "3"],
]


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def write_layout(folder: Path, pooling: str = "mean_tokens") -> None:
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}": mode == pooling for mode in ("mean_tokens", "cls_token", "max_tokens")}
    config = {"word_embedding_dimension": HIDDEN, **modes}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config), "utf-8")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules), "utf-8")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": MAX_TOKENS}), "utf-8")


def write_bert(folder: Path, pooling: str = "mean_tokens", hidden: int = HIDDEN) -> None:
    """Weights in safetensors, with biases, norms and a few channels far larger than the rest."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
            if name.endswith("intermediate.dense.bias"):
                weight[3] = 12.0
    model.save_pretrained(folder)
    write_tokenizer(folder)
    write_layout(folder, pooling)
