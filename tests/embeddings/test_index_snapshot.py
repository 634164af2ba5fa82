from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings import index_snapshot
from embeddings.faiss_index import FaissIndex
from embeddings.index_partition import Partition


def filled() -> FaissIndex:
    index = FaissIndex(4, device="cpu")
    index.add(np.arange(8, dtype=np.int64), np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * 2], [b"a", b"b"] * 4)
    return index


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    index = filled()
    index.save(path, "x")
    before = path.read_bytes()

    def fail(_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Partition, "copy", fail)
    with pytest.raises(OSError, match="no space"):
        index.save(path, "x")
    assert [child.name for child in tmp_path.iterdir()] == ["index"]
    assert path.read_bytes() == before


def test_what_a_killed_save_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".index.abc.new").write_bytes(b"half")
    (tmp_path / ".other.abc.new").write_bytes(b"of another")
    filled().save(tmp_path / "index", "x")
    assert sorted(child.name for child in tmp_path.iterdir()) == [".other.abc.new", "index"]


def test_a_save_into_no_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        filled().save(tmp_path / "none" / "index", "x")


def sealed(content: bytes) -> bytes:
    return content + hashlib.blake2b(content, digest_size=index_snapshot.DIGEST_BYTES).digest()


def headed(header: bytes) -> bytes:
    return index_snapshot.MAGIC + len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"something else", "not a snapshot"),
        (headed(b"{x}"), "header cannot be read"),
        (headed(b'{"version": 99, "dimension": 4, "label": "x", "partitions": 1}'), "its version is 99"),
    ],
)
def test_a_file_with_a_digest_of_its_own(
    tmp_path: Path, content: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "index"
    path.write_bytes(sealed(content))
    index = FaissIndex(4, device="cpu")
    assert not index.load(path, "x")
    assert why in caplog.text
    assert len(index) == 0


def test_an_id_in_two_partitions_counts_in_the_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moved while the snapshot was written: the first partition had been copied, the second not."""
    index = filled()
    vector = np.eye(4, dtype=np.float32)[:1]
    changes = Partition.changes

    def moving(partition: Partition, log: Any) -> Any:
        copied = changes(partition, log)
        if partition is index._partitions[b"a"]:
            index.add(np.array([0], dtype=np.int64), vector, [b"b"])
        return copied

    monkeypatch.setattr(Partition, "changes", moving)
    index.save(tmp_path / "index", "x")
    loaded = FaissIndex(4, device="cpu")
    assert loaded.load(tmp_path / "index", "x")
    assert sorted(loaded.ids().tolist()) == list(range(8))
    assert (loaded.partition_size(b"a"), loaded.partition_size(b"b")) == (3, 5)
    assert 0 not in loaded.search(vector, 9, b"a")[1]
    assert 0 in loaded.search(vector, 9, b"b")[1]
