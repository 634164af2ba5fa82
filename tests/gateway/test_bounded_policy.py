"""Policy bounded in a whole gateway: served by a verifier, taught by what was generated, remembered."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings.protocols import EmbedderError
from gateway.chosen_policy import WantedEncoder
from gateway.config_problems import ConfigError
from gateway.policy_state import PolicyStateFile
from gateway.verifier_weights import read_verifier, shipped, write_weights
from policies.bounded import BoundedPolicy, PolicyState
from policies.calibration_curve import STEPS, Counts, step
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION
from policies.tree_ensemble import LEAF, TreeArrays
from policies.tree_verifier import TreeVerifier, VerifierWeights
from tests.gateways import SETTINGS, FakeTopicEmbedder, Running, running, told

SURE = 0.9995
ASKED = "sky why is it blue?"
SAME = "sky what makes it blue?"
NUMBERED = "sky how is it in 5 days?"
TRAP = "sky how is it in 6 days?"


def weights(
    path: Path,
    *,
    sure: float = SURE,
    wrong: float = 0.0,
    right: float = 5000.0,
    space: str = FakeTopicEmbedder.space,
) -> Path:
    """A verifier that is `sure` of everything but different numbers; so often it was wrong and right."""
    column = PAIR_FEATURES.index("numbers_differ")
    trees = TreeArrays(
        roots=np.array([0]),
        feature=np.array([column, LEAF, LEAF]),
        threshold=np.array([0.5, 0.0, 0.0]),
        left=np.array([1, 0, 0]),
        right=np.array([2, 0, 0]),
        value=np.array([0.0, 4.0, -4.0]),
        baseline=0.0,
    )
    made = VerifierWeights(
        space=space,
        features_version=PAIR_FEATURES_VERSION,
        features=tuple(PAIR_FEATURES),
        trees=trees,
        raw=np.array([-4.0, 4.0]),
        probability=np.array([0.01, sure]),
    )
    seen = [0.0] * STEPS, [0.0] * STEPS
    for k in range(step(sure) - 1, min(STEPS, step(sure) + 2)):
        seen[0][k], seen[1][k] = wrong, right
    counts = Counts(wrong=tuple(seen[0]), right=tuple(seen[1]))
    write_weights(path, made, {}, counts=counts)
    return path


@asynccontextmanager
async def bounded(tmp_path: Path, *, store: str = "memory", **policy: Any) -> AsyncIterator[Running]:
    path = policy.pop("verifier", None) or weights(tmp_path / "verifier.json")
    wanted = {"kind": "bounded", "verifier": str(path), "verify_share": 0.0, "explore_share": 0.0, **policy}
    cache = {**SETTINGS["cache"], "store": store, "path": str(tmp_path / "c.db"), "policy": wanted}
    async with running(cache=cache) as test:
        yield test


async def settle(test: Running) -> None:
    assert test.gateway.learner is not None
    await test.gateway.learner.settled()


async def test_what_the_verifier_is_sure_of_is_served_and_a_trap_is_not(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_error_rate=0.05) as test:
        await test.ask(ASKED)
        served = await test.ask(SAME)
        assert served.headers["x-lockgate-cache"] == "hit-semantic"
        assert served.headers["x-lockgate-reason"].startswith("risk 0.0")
        assert float(served.headers["x-lockgate-confidence"]) > 0.95


async def test_a_trap_is_generated_and_the_reason_says_what_spoke(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_error_rate=0.05) as test:
        await test.ask(NUMBERED)
        trap = await test.ask(TRAP)
        assert (trap.headers["x-lockgate-cache"], told(trap)) == ("miss", "answer 2")
        assert trap.headers["x-lockgate-reason"].endswith("the numbers differ")


async def test_a_client_may_tighten_the_bound_and_not_loosen_it(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_error_rate=0.05) as test:
        await test.ask(ASKED)
        strict = await test.ask(SAME, headers={"x-lockgate-max-error-rate": "0"})
        assert strict.headers["x-lockgate-cache"] == "miss"
        assert "the greatest for this request" in strict.headers["x-lockgate-reason"]
    async with bounded(tmp_path, max_error_rate=0.0) as test:
        await test.ask(ASKED)
        loose = await test.ask(SAME, headers={"x-lockgate-max-error-rate": "0.9"})
        assert loose.headers["x-lockgate-cache"] == "miss"
        bad = await test.ask(SAME, headers={"x-lockgate-max-error-rate": "1 %"})
        assert bad.status_code == 400
        assert "x-lockgate-max-error-rate: expected a share from 0 to 1" in bad.json()["error"]["message"]


async def test_policy_static_serves_nobody_who_asks_for_a_bound() -> None:
    async with running() as test:
        await test.ask(ASKED)
        response = await test.ask(SAME, headers={"x-lockgate-max-error-rate": "0.01"})
        assert response.headers["x-lockgate-cache"] == "miss"
        assert "cannot keep an error rate" in response.headers["x-lockgate-reason"]


async def test_a_served_answer_that_a_model_would_not_give_is_found_out(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_error_rate=0.05, verify_share=1.0) as test:
        await test.ask(ASKED)
        assert told(await test.ask(SAME)) == "answer 1"
        await settle(test)
        assert len(test.backend.calls) == 2  # generated again in the background: "answer 2", another one
        again = await test.ask(SAME)
        assert (again.headers["x-lockgate-cache"], told(again)) == ("hit-exact", "answer 2")
        metrics = (await test.http.get("/metrics")).text
        assert "lockgate_cache_wrong_total 1.0" in metrics
        assert 'lockgate_cache_outcomes_total{right="false",source="verification"} 1.0' in metrics


async def test_a_served_answer_that_a_model_gives_again_is_counted_as_right(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_error_rate=0.05, verify_share=1.0) as test:
        test.backend.rewrite = lambda body: json.loads(json.dumps(body).replace("answer 2", "answer 1"))
        await test.ask(ASKED)
        await test.ask(SAME)
        await settle(test)
        metrics = (await test.http.get("/metrics")).text
        assert "lockgate_cache_verified_total 1.0" in metrics
        assert "lockgate_cache_wrong_total 0.0" in metrics


async def test_what_was_explored_and_found_the_same_takes_no_second_vector(tmp_path: Path) -> None:
    path = weights(tmp_path / "doubtful.json", sure=0.97, wrong=6.0, right=94.0)
    async with bounded(tmp_path, max_error_rate=0.15, explore_share=1.0, verifier=path) as test:
        test.backend.rewrite = lambda body: json.loads(re.sub(r"answer \d+", "answer 1", json.dumps(body)))
        await test.ask(ASKED)
        for number in range(150):  # of others: each brings some of the error budget
            await test.ask(key=f"k{number}")
        explored = await test.ask(SAME)
        assert explored.headers["x-lockgate-cache"] == "miss"
        assert "could be served: explored" in explored.headers["x-lockgate-reason"]
        await settle(test)
        listed = (await test.http.get("/admin/entries", params={"text": "what makes it blue"})).json()
        assert [entry["semantic"] for entry in listed["entries"]] == [False]


async def test_feedback_teaches_the_policy_of_the_entry(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_error_rate=0.05) as test:
        await test.ask(ASKED)
        served = await test.ask(SAME)
        form = {"request_id": served.headers["x-request-id"], "correct": False}
        assert (await test.http.post("/admin/feedback", json=form)).status_code == 200
        metrics = (await test.http.get("/metrics")).text
        assert 'lockgate_cache_outcomes_total{right="false",source="feedback"} 1.0' in metrics


async def test_what_was_learnt_survives_a_restart_and_not_another_cache(tmp_path: Path) -> None:
    async with bounded(tmp_path, store="sqlite", max_error_rate=0.05, verify_share=1.0) as test:
        await test.ask(ASKED)
        await test.ask(SAME)
        await settle(test)
    path = tmp_path / "c.db.policy"
    kept = json.loads(path.read_bytes())
    assert kept["state"]["evidence"] == {"1": [[pytest.approx(SURE), False]]}
    assert kept["state"]["balance"] > 0  # stopped in order: the account goes along
    assert path.stat().st_mode & 0o777 == 0o600
    async with bounded(tmp_path, store="sqlite", max_error_rate=0.05) as test:
        assert json.loads(path.read_bytes())["state"]["balance"] == 0  # in use: after a kill it begins anew
        again = await test.ask("sky which thing makes it blue?")
        assert again.headers["x-lockgate-entry"] == "2"  # entry 1 is known to be wrong for such questions
    other = BoundedPolicy(
        TreeVerifier(weights_of(tmp_path)), max_error_rate=0.05, random=lambda: 0.5, counts=None
    )
    assert not PolicyStateFile(path, b"another secret").restore(other)


def weights_of(tmp_path: Path) -> VerifierWeights:
    return read_verifier(tmp_path / "verifier.json").first


async def test_weights_of_another_embedder_are_refused_by_name(tmp_path: Path) -> None:
    path = weights(tmp_path / "other.json", space="another-model")
    with pytest.raises(ConfigError) as caught:
        async with bounded(tmp_path, verifier=path):
            pass
    assert "cache.policy.verifier" in str(caught.value)
    assert "another-model" in str(caught.value)


async def test_a_judge_that_is_no_model_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        async with running(cache={"store": "memory", "policy": {"judge": "nobody"}}):
            pass
    assert "cache.policy.judge" in str(caught.value)


def test_another_cross_encoder_than_the_verifiers_is_refused_by_name() -> None:
    found = read_verifier(shipped())
    assert found.encoder is not None
    other = WantedEncoder(folder=found.encoder, identity="another/cpu")
    with pytest.raises(EmbedderError, match="the verifier was fitted to another/cpu"):
        other.opened(1)


async def test_an_account_that_cannot_be_taken_out_of_the_file_is_not_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(tmp_path, store="sqlite", max_error_rate=0.05) as test:
        await test.ask(ASKED)
    kept = json.loads((tmp_path / "c.db.policy").read_bytes())
    assert kept["state"]["balance"] > 0

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    async with bounded(tmp_path, store="sqlite", max_error_rate=0.05) as test:
        assert policy_of(test).state(closing=True).balance == pytest.approx(kept["state"]["balance"])
    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", full)
        path = tmp_path / "verifier.json"
        async with bounded(tmp_path, store="sqlite", max_error_rate=0.05, verifier=path) as test:
            assert policy_of(test).state(closing=True).balance == 0.0
    assert json.loads((tmp_path / "c.db.policy").read_bytes())["state"]["balance"] > 0


def policy_of(test: Running) -> BoundedPolicy:
    assert test.gateway.learner is not None
    return test.gateway.learner._policy


async def test_saves_do_not_overtake_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, most = 0, 0
    save = PolicyStateFile.save

    def slow(self: PolicyStateFile, state: PolicyState) -> None:
        nonlocal writing, most
        writing += 1
        most = max(most, writing)
        time.sleep(0.05)
        save(self, state)
        writing -= 1

    async with bounded(tmp_path, store="sqlite", max_error_rate=0.05) as test:
        await test.ask(ASKED)
        monkeypatch.setattr(PolicyStateFile, "save", slow)
        learner = test.gateway.learner
        assert learner is not None
        await asyncio.gather(learner._save(), learner._save(), learner._save(closing=True))
    assert most == 1
    assert json.loads((tmp_path / "c.db.policy").read_bytes())["state"]["balance"] > 0


@pytest.mark.parametrize("broken", ["judge", "undecided"])
async def test_a_policy_that_fails_costs_a_hit_and_never_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError("secret words of a question")

    async with bounded(tmp_path, max_error_rate=0.05) as test:
        await test.ask(ASKED)

        async def score(pairs: object) -> list[float | None]:
            return []

        test.gateway.pipeline._lookup._score_pairs = score
        monkeypatch.setattr(policy_of(test), broken, fail)
        response = await test.ask(SAME)
        assert (response.status_code, response.headers["x-lockgate-cache"]) == (200, "miss")
        assert response.headers["x-lockgate-reason"] == "the cache policy failed"
        ready = (await test.http.get("/health/ready")).text
        assert "ZeroDivisionError" in ready
        assert "secret words" not in ready
