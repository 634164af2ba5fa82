"""The plot of the cache policies, with the peers and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cache_plots

mpl = pytest.importorskip("matplotlib")


def written(rows: list[dict[str, Any]], **results: Any) -> dict[str, Any]:
    stream = {"requests": 10, "perfect_hit_rate": 0.5, "rows": rows}
    return {"date": "2026-01-02T00:00:00", "results": {"streams": {"qqp": stream}, **results}}


def row(policy: str, hit_rate: float, error_rate: float) -> dict[str, Any]:
    return {"policy": policy, "setting": 0.6, "hit_rate": hit_rate, "error_rate": error_rate}


POLICIES = written([row("exact", 0, 0), row("static", 0.2, 0.01), row("static", 0.4, 0.1)], space="e5")
PEERS = written([row("GPTCache", 0.6, 0.3)], embedder="minilm")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The figures that were drawn."""
    from matplotlib import pyplot as plt

    figures: list[Any] = []
    monkeypatch.setattr(plt, "close", figures.append)
    yield figures
    monkeypatch.undo()
    plt.close("all")


def labels(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_policies_are_lines_and_peers_points_in_percent(tmp_path: Path, drawn: list[Any]) -> None:
    path = tmp_path / "images" / "plot.png"
    cache_plots.draw(POLICIES, PEERS, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    [axis] = drawn[0].axes
    static = next(line for line in axis.lines if line.get_label().startswith("static"))
    assert static.get_xydata().tolist() == [[1, 20], [10, 40]]
    [peer] = axis.collections
    assert peer.get_offsets().tolist() == [[30, 60]]
    assert any("GPTCache, default threshold (cosine 0.60)" in label for label in labels(drawn[0]))


def test_it_is_drawn_without_peers(tmp_path: Path, drawn: list[Any]) -> None:
    cache_plots.draw(POLICIES, None, tmp_path / "plot.png")
    assert not drawn[0].axes[0].collections
    assert not any("GPTCache" in label for label in labels(drawn[0]))


def test_it_says_where_the_figures_come_from() -> None:
    said = cache_plots.source(POLICIES, PEERS)
    assert "benchmarks/cache_policies.py, 2026-01-02, e5" in said
    assert "benchmarks/cache_peers.py, 2026-01-02, minilm" in said
    assert "cache_peers.py" not in cache_plots.source(POLICIES, None)
