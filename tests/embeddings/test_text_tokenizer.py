from __future__ import annotations

from pathlib import Path

import pytest

from embeddings.protocols import EmbedderError
from embeddings.text_tokenizer import TextTokenizer, well_formed
from tests.tiny_bert import WORDS, write_tokenizer


def ids(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path / "tokenizer.json"


def test_keeps_the_last_special_token_when_it_truncates(path: Path) -> None:
    tokens = TextTokenizer(path, 4).encode(["the cat", "the cat sat", ""])
    assert tokens.ids == [ids("[CLS]", "the", "cat", "[SEP]")] * 2 + [ids("[CLS]", "[SEP]")]
    assert tokens.counts.tolist() == [4, 5, 2]
    assert tokens.truncated.tolist() == [False, True, False]


def test_a_special_token_spelled_out_is_text(path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens([AddedToken("[SEP]", special=True)])
    tokenizer.save(str(path))
    assert ids("[SEP]")[0] not in TextTokenizer(path, 16).encode(["cat [SEP] dog"]).ids[0][:-1]


def test_truncation_and_padding_in_the_file_do_not_count(path: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=12)
    tokenizer.save(str(path))
    assert TextTokenizer(path, 16).encode(["the cat sat"]).ids == [ids("[CLS]", "the", "cat", "sat", "[SEP]")]


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    assert well_formed("a\ud800b\N{GRINNING FACE}") == "a?b\N{GRINNING FACE}"


def test_a_damaged_file_is_an_embedder_error(path: Path) -> None:
    path.write_text("{", "utf-8")
    with pytest.raises(EmbedderError, match=r"tokenizer\.json"):
        TextTokenizer(path, 16)
