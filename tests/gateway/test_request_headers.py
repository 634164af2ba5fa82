"""What a client's headers say, and which of them go upstream."""

from __future__ import annotations

import pytest

from gateway.errors import RequestError
from gateway.request_headers import HeaderPolicy, cache_directives


@pytest.mark.parametrize("value", ["max-age=soon", "max-age", "max-age=-1", "max-age=\u00b2"])
def test_a_max_age_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match="expected max-age=SECONDS") as caught:
        cache_directives({b"cache-control": value.encode("latin-1")})
    assert caught.value.status == 400


def test_a_max_age_may_be_of_any_length() -> None:
    assert cache_directives({b"cache-control": b"max-age=" + b"9" * 400}).max_age_s == float("inf")


def test_a_tab_goes_upstream_as_a_space() -> None:
    forwarded = HeaderPolicy().forwarded({b"traceparent": b"a\tb"}, "req_1")
    assert forwarded == {"traceparent": "a b", "x-request-id": "req_1"}
