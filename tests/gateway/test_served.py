"""Which entry answered which request."""

from __future__ import annotations

from gateway.served import Served, ServedAnswers
from tests.gateways import running


def test_the_latest_requests_are_kept_and_of_the_same_id_the_later() -> None:
    served = ServedAnswers(kept=2)
    for entry_id, request_id in enumerate("abacade"):
        served.note(request_id, entry_id, by_similarity=request_id == "a")
    assert served.find("a") == Served(entry_id=4, by_similarity=True)
    assert served.find("e") == Served(entry_id=6, by_similarity=False)
    assert served.find("d") == Served(entry_id=5, by_similarity=False)
    assert served.find("b") is None


async def test_hits_and_stored_answers_are_noted_with_how_they_were_found() -> None:
    async with running() as test:
        for request_id, text in (("r1", "sky blue?"), ("r2", "sky blue?"), ("r3", "sky is it blue?")):
            await test.ask(text, headers={"x-request-id": request_id})
        found = [test.gateway.served.find(request_id) for request_id in ("r1", "r2", "r3", "r4")]
        assert found[0] is not None
        entry_id = found[0].entry_id
        assert found == [
            Served(entry_id=entry_id, by_similarity=False),
            Served(entry_id=entry_id, by_similarity=False),
            Served(entry_id=entry_id, by_similarity=True),
            None,
        ]
