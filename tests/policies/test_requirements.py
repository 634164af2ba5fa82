"""Hard requirements of a request."""

from __future__ import annotations

from policies.requirements import estimated_tokens, is_repeatable, needed_capabilities


def test_capabilities() -> None:
    assert needed_capabilities({"messages": [{"role": "user", "content": "hi"}]}) == frozenset()
    assert needed_capabilities({"tools": [{"type": "function"}]}) == {"tools"}
    assert needed_capabilities({"tools": []}) == frozenset()
    assert needed_capabilities({"response_format": {"type": "json_schema"}}) == {"json"}
    assert needed_capabilities({"response_format": {"type": "text"}}) == frozenset()
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert needed_capabilities({"messages": [picture]}) == {"vision"}


def test_tokens_grow_with_text_in_both_forms_and_with_the_limit() -> None:
    def tokens(content: object, **fields: object) -> int:
        return estimated_tokens({"messages": [{"role": "user", "content": content}], **fields})

    assert tokens("x" * 3000, max_tokens=100) == 1000 + 6 + 100
    assert tokens([{"type": "text", "text": "x" * 3000}], max_tokens=100) == 1000 + 6 + 100
    assert tokens("한" * 1000, max_completion_tokens=100) == 1000 + 6 + 100
    assert tokens("") == 6 + 256


def test_a_response_that_changes_what_the_upstream_keeps_is_not_repeatable() -> None:
    assert not is_repeatable("responses", {"conversation": "conv_1"})
    assert not is_repeatable("responses", {"background": True})
    assert is_repeatable("responses", {"background": False, "conversation": None, "store": True})
    assert is_repeatable("chat", {"background": True})
