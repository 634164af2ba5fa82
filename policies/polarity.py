"""Which words deny, and which name opposites: English and Korean, a word at a time.

Words come in lower case and by their stems, as `policies.question_parts` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from policies import opposites

_DENYING = """
    not no never none nor neither without cannot nothing nobody nowhere unable except excluding cant
    dont doesnt didnt isnt arent wasnt werent wont wouldnt shouldnt couldnt hardly barely
"""
_NEGATIONS: Final = frozenset(_DENYING.split())
_KOREAN_NEGATION: Final = re.compile(
    r"(?:안|못|마|마라|말|말고|아니)$|안(?:되|돼|됩|된|될|하|해)|못(?:하|해|했|한|할|합|되)|.*(?:않|없|아니|아닌|지마|지말|말고)"
    r"|(?:말아|마세요|마십시오|말라)|.+(?:제외|빼고)|제외|빼고"
)
_PREFIXED: Final = re.compile(
    r"(?:un|dis|in|im|ir|il|non|de|mis)-?([a-z]{3,})$|(?:비|불|미|무)([가-힣]{2,})$"
)

ENGLISH: Final = """
    ascending descending; lose find; gain loss; weekly monthly; daily weekly; daily monthly; monthly yearly;
    weekly yearly; daily yearly; monthly annually; today tomorrow; today yesterday; tomorrow yesterday;
    breakfast dinner; breakfast lunch; lunch dinner; monday friday; am pm; past future; present past; wife
    husband; uncle aunt; grandfather grandmother; nephew niece; actor actress; dog cat; red blue; red green;
    green blue; java javascript; get post; get set; vertical horizontal; row column; rows columns; table
    chair; encrypt decode; merge split; join leave; joining leaving; check uncheck; wake sleep; inhale
    exhale; ingest expel; import sell; arrive leave; landing takeoff; departure landing; supply demand;
    employer employee; landlord tenant; lender borrower; winner loser; victory defeat; friend enemy; ally
    enemy; virus bacteria; vein artery; acid base; adult child; child adult; cold fever; flu cold; gross
    net; simple compound; fixed variable; mutable immutable; stack queue; upgrade downgrade; renew cancel;
    activate deactivate; mount unmount; attach detach; zip unzip; wrap unwrap; tie untie; load unload;
    deposit withdraw; deposit withdrawal; inflation deflation; expand shrink; expand collapse; rise fall;
    rising falling; ceiling floor; horizontal diagonal; even odd; inner outer; major minor; senior junior;
    domestic foreign; domestic international; national international; urban rural; liquid solid; liquid gas;
    solid gas; raw cooked; fresh frozen; fresh stale; single double; single multiple; temporary permanent;
    optional required; optional mandatory; automatic manual; manually automatically; quick slow; tight
    loose; smooth rough; sharp dull; sweet sour; sweet salty; hero villain; beginner advanced; beginner
    expert; entrance exit; enter exit; plural singular; noun verb; prefix suffix; sunrise sunset; dawn dusk;
    optimist pessimist; optimistic pessimistic; winner runner; sober drunk; innocent guilty; guest host;
    praise criticize; remember forget; build destroy; save spend; save delete; save discard; fill empty;
    show hid; grant revoke; grant deny; commit rollback; undo redo; ascend climb; overweight underweight;
    hypertension hypotension; hyperthyroidism hypothyroidism; hypoglycemia hyperglycemia; maximum average;
    convex concave; numerator denominator; active passive; direct indirect; formal informal; legal criminal;
    prepaid postpaid; wholesale retail; import smuggle; upstream downstream; uplink downlink; client host
"""
"""Beside `policies.opposites`: pairs that a rule which refuses outright had better not have."""

KOREAN: Final = """
    오늘 내일; 오늘 어제; 매일 매주; 매일 매월; 매주 매월; 매달 매주; 매달 매년; 월간 주간; 월간 연간; 국내
    해외; 국내 국제; 흑백 컬러; 늦 이르; 늦 일찍; 빌려 빌려주; 얻 잃; 살찌 빠지; 찌 빼; 더 덜; 가장 제일덜;
    이기 지; 앞 뒤; 안 밖; 실내 실외; 수동 자동; 임시 영구; 필수 선택; 짝수 홀수; 상승 하락; 오르 내리; 입구
    출구; 입장 퇴장; 입학 졸업; 입사 퇴사; 취업 퇴직; 결혼 이혼; 남편 아내; 형 동생; 오빠 동생; 할아버지
    할머니; 삼촌 이모; 성공 실패; 기억 잊; 저장 삭제; 잠금 해제; 잠그 풀; 가입 탈퇴; 구독 해지; 등록 해제;
    알림 무음; 시작 중지; 시작 중단; 재생 정지; 연결 끊; 접속 종료; 출국 입국; 왕복 편도; 탑승 하차; 도착
    출발; 이륙 착륙; 맵 싱거; 달 짜; 무겁 가볍; 두껍 얇; 넓 좁; 깊 얕; 강하 약하; 젖 마르; 밝 어둡; 새로
    오래; 최신 최초; 최대 평균; 직접 간접; 공식 비공식; 유료 무료; 현금 카드; 고혈압 저혈압; 식전 식후; 전
    후; 위쪽 아래쪽; 위 아래; 병합 분리; 합치 나누; 더하 빼; 곱하 나누; 암호화 복호화; 압축 해제; 올라 내려;
    켜 꺼; 켜 끄; 키 줄; 늘 줄; 가입 해지; 신청 취소; 예약 취소; 주문 취소; 밀어 당기; 입 벗; 서 앉; 웃 울;
    태어 죽; 뜨거 차가; 여름 겨울; 큰 작은; 큰 작; 긴 짧; 무거 가벼; 두꺼 얇; 뜨거 찬; 쉬운 어려; 추운 더운;
    싼 비싼; 좋은 나쁜; 어두 밝; 먼 가까; 멀 가까; 매운 순한; 젊 늙; 사는 파는; 사려 팔려; 살까 팔까; 사야
    팔아; 사고 팔고; 많이 조금
"""


def is_negation(word: str) -> bool:
    """Whether the word denies: not, n't, without ...; 안, 못, 않, 없, 아니, 말고, 제외 in any form."""
    if word.isascii():
        return word in _NEGATIONS or word.endswith("n't")
    return _KOREAN_NEGATION.match(word) is not None


def without_prefix(stem: str) -> str:
    """ "lock" of "unlock", "공개" of "비공개"; "" of a word with no such prefix. Of "under" it is "der": what
    is left says something only where the other text has it as a word."""
    found = _PREFIXED.match(stem)
    return found[1] or found[2] if found else ""


def pairs(listed: str, stem: Callable[[str], str]) -> Mapping[str, frozenset[str]]:
    """Of each word's stem, the stems of its opposites."""
    opposed: dict[str, set[str]] = {}
    for pair in listed.split(";"):
        a, b = (stem(word) for word in pair.split())
        if a != b:
            opposed.setdefault(a, set()).add(b)
            opposed.setdefault(b, set()).add(a)
    return {word: frozenset(others) for word, others in opposed.items()}


ENGLISH_PAIRS: Final = f"{opposites.ENGLISH};{ENGLISH}"
KOREAN_OPPOSITES: Final = pairs(f"{opposites.KOREAN};{KOREAN}", str)
"""Keys are the beginnings of words, as in `policies.opposites`."""


def korean_poles(word: str) -> tuple[str, ...]:
    """The beginnings of the word that have opposites: of 켜는, 켜."""
    return tuple(word[:n] for n in range(1, min(len(word), 5) + 1) if word[:n] in KOREAN_OPPOSITES)
