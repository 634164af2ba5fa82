"""The shipped weights on prompts that nobody trained on: everyday ones score below demanding ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from embeddings.onnx_embedder import OnnxEmbedder
from gateway.router_data import read_training_data
from gateway.router_weights import read_weights, shipped
from policies.calibration import ThresholdRouter
from policies.difficulty import DifficultyPolicy
from policies.types import Query

Score = Callable[[str], float]

EASY_EN = [
    "hi there",
    "What is the capital of France?",
    "Translate good morning to French",
    "thank you very much!",
    "How many hours are in a day?",
    "What does LOL mean?",
    "Who discovered penicillin?",
    "Suggest a name for my cat",
    "Write a short thank-you note to my neighbour",
    "What is the largest ocean?",
    "Good evening, can you recommend a song?",
    "How do I boil potatoes?",
]
HARD_EN = [
    "Prove that the square root of 3 is irrational and generalise to all non-square integers.",
    "Design a globally distributed message queue with exactly-once delivery and analyse its failure modes.",
    "Implement a concurrent hash map in C++ without locks and explain the memory ordering of every access.",
    "Derive the backpropagation equations for an LSTM cell and analyse why gradients vanish.",
    "Let G be a finite group whose order is divisible by exactly two primes. Prove that G is solvable.",
    "Compute the determinant of the n by n matrix with entries 1/(i+j-1) and prove your formula.",
    "Our Postgres primary stalls for 30 s during checkpoints under 20k writes/s. Diagnose and propose fixes.",
    "Compare the Keynesian and Austrian explanations of the 1929 crash and evaluate the evidence for each.",
    "Refactor this monolith into services step by step without downtime, and justify each boundary.",
    "Find the number of non-negative integer solutions of x+2y+5z=1000 and derive a closed form.",
]
EASY_KO = [
    "반갑습니다, 오늘 하루 어땠어요?",
    "프랑스의 수도는 어디야?",
    "좋은 아침을 프랑스어로 번역해줘",
    "정말 고마워",
    "하루는 몇 시간이야?",
    "고양이 이름 하나 추천해줘",
    "가장 큰 바다는 어디야?",
    "감자 삶는 법 알려줘",
    "이웃에게 짧은 감사 카드 써줘",
    "페니실린은 누가 발견했어?",
]
HARD_KO = [
    "루트 3이 무리수임을 증명하고 제곱수가 아닌 모든 정수로 일반화해줘.",
    "정확히 한 번 전달을 보장하는 전역 분산 메시지 큐를 설계하고 장애 상황을 분석해줘.",
    "락 없이 동시성 해시맵을 C++로 구현하고 모든 접근의 메모리 순서를 설명해줘.",
    "LSTM 셀의 역전파 식을 유도하고 기울기가 소실되는 이유를 분석해줘.",
    "x+2y+5z=1000의 음이 아닌 정수해의 개수를 구하고 닫힌 형태를 유도하시오.",
    "초당 2만 건을 쓰는 데이터베이스가 체크포인트 때 멈추는 원인을 진단하고 해결책을 비교해줘.",
    "1929년 대공황에 대한 케인스학파와 오스트리아학파의 설명을 비교하고 근거를 평가해줘.",
    "모놀리스를 무중단으로 단계별로 서비스로 분리하는 리팩터링 계획을 세우고 경계를 정당화해줘.",
]


def scorer(model: str | None, threads: int = 1) -> Score:
    if model is None:
        policy = DifficultyPolicy(read_weights(shipped()).weights)
        return lambda text: policy.score(Query(text=text, vector=None, space=None))
    embedder = OnnxEmbedder.open(model, "cpu", threads)
    policy = DifficultyPolicy(read_weights(shipped(embedder.space)).weights)

    def score(text: str) -> float:
        query = Query(text=text, vector=embedder.encode([text]).vectors[0], space=embedder.space)
        assert policy.uses_embedding(query)
        return policy.score(query)

    return score


def separation(score: Score, easy: list[str], hard: list[str]) -> float:
    """The share of (easy, hard) pairs in which the hard prompt scores higher."""
    low, high = np.array([score(text) for text in easy]), np.array([score(text) for text in hard])
    return float((low[:, None] < high[None, :]).mean())


@pytest.mark.parametrize(
    ("model", "easy", "hard", "least"),
    [
        pytest.param(None, EASY_EN, HARD_EN, 0.97, id="words-en"),
        pytest.param(None, EASY_KO, HARD_KO, 0.97, id="words-ko"),
        pytest.param("default", EASY_EN, HARD_EN, 1.0, id="default-en", marks=pytest.mark.model),
        pytest.param("default", EASY_KO, HARD_KO, 1.0, id="default-ko", marks=pytest.mark.model),
        pytest.param("minilm", EASY_EN, HARD_EN, 1.0, id="minilm-en", marks=pytest.mark.model),
        pytest.param("minilm", EASY_KO, HARD_KO, 0.97, id="minilm-ko", marks=pytest.mark.model),
    ],
)
def test_demanding_prompts_score_higher(
    model: str | None, easy: list[str], hard: list[str], least: float
) -> None:
    assert separation(scorer(model), easy, hard) >= least


@pytest.mark.model
def test_at_a_share_of_a_third_everyday_goes_small_and_demanding_large() -> None:
    score = scorer("default")
    weights = read_weights(shipped("multilingual-e5-small")).weights
    router = ThresholdRouter.for_strong_share(weights.calibration, 1 / 3)
    assert {router.choose(score(text)).tier for text in EASY_EN + EASY_KO} == {"small"}
    assert {router.choose(score(text)).tier for text in HARD_EN + HARD_KO} == {"large"}


def test_none_of_these_prompts_is_an_anchor() -> None:
    from gateway.router_training import anchors

    known = {prompt.casefold().strip(".!? ") for prompt in anchors().prompts}
    assert not known & {text.casefold().strip(".!? ") for text in EASY_EN + HARD_EN + EASY_KO + HARD_KO}


def test_the_anchors_are_half_easy_half_hard_in_two_languages() -> None:
    path = Path(str(shipped())).parents[1] / "router_anchors.jsonl"
    data = read_training_data([path])
    assert len(data) == 424
    assert set(data.large) == {1.0}
    assert 0.4 < np.mean(data.small) < 0.6
    korean = np.mean([any("가" <= c <= "힣" for c in prompt) for prompt in data.prompts])
    assert 0.4 < korean < 0.6
