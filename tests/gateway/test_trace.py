"""What a trace says in headers."""

from __future__ import annotations

from gateway.trace import Trace


def headers(trace: Trace) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in trace.headers()}


def test_an_undecided_request_has_its_id_alone() -> None:
    assert headers(Trace(request_id="r")) == {"x-request-id": "r"}


def test_cache_status_is_rfc_9211() -> None:
    def status(**fields: object) -> str:
        trace = Trace(request_id="r", reason="x")
        for name, value in fields.items():
            setattr(trace, name, value)
        return headers(trace)["cache-status"]

    assert status(cache="hit-exact", ttl_left_s=59.9) == 'lockgate; hit; ttl=59; detail="hit-exact"'
    assert status(cache="miss") == "lockgate; fwd=uri-miss"
    assert status(cache="miss", client_refused=True) == "lockgate; fwd=request"
    refused = status(cache="bypass", client_refused=True, led=True, stored_entry_id=3)
    assert refused == "lockgate; fwd=request; stored"
    assert status(cache="miss", led=True, stored_entry_id=3) == "lockgate; fwd=uri-miss; stored"
    assert status(cache="coalesced") == "lockgate; fwd=uri-miss; collapsed"
    assert status(cache="coalesced", stored_entry_id=3) == "lockgate; fwd=uri-miss; collapsed", "not by it"
    assert status(cache="bypass") == "lockgate; fwd=bypass"


def test_a_hit_shows_entry_similarity_confidence_and_age() -> None:
    trace = Trace(request_id="r", cache="hit-semantic", reason="x", entry_id=7, similarity=0.98765, age_s=3.9)
    shown = headers(trace)
    assert (shown["x-lockgate-entry"], shown["x-lockgate-similarity"], shown["age"]) == ("7", "0.9877", "3")
    assert "x-lockgate-confidence" not in shown
    trace.confidence = 0.5
    assert headers(trace)["x-lockgate-confidence"] == "0.5000"


def test_no_header_can_be_broken_by_what_is_in_it() -> None:
    trace = Trace(request_id="r", reason="a\r\nx-evil: 1", route="small", model="모델\n", backend="b")
    shown = headers(trace)
    assert shown["x-lockgate-reason"] == "a??x-evil: 1"
    assert shown["x-lockgate-model"] == "???"


def test_stages_add_up_and_are_shown_in_milliseconds() -> None:
    trace = Trace(request_id="r")
    for _ in range(2):
        with trace.stage("embed"):
            pass
    trace.stages["upstream"] = 0.25
    assert list(trace.stages) == ["embed", "upstream"]
    assert headers(trace)["server-timing"].endswith("upstream;dur=250.00")


def test_time_stops_at_the_end() -> None:
    trace = Trace(request_id="r", started=10.0, ended=10.5)
    assert trace.seconds() == 0.5
