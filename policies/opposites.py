"""Words that make two questions ask for different answers: pairs, parted by semicolons. The lists are ours.

English words are compared without their endings; Korean ones are the beginnings of words.
"""

from __future__ import annotations

ENGLISH = """
    on off; enable disable; open close; start stop; begin end; add remove; add delete; create delete;
    install uninstall; increase decrease; increase reduce; raise lower; grow shrink; gain lose;
    more less; most least; max min; maximum minimum; high low; higher lower; highest lowest; hot cold;
    warm cool; big small; large small; largest smallest; bigger smaller; biggest smallest; long short;
    longer shorter; longest shortest; tall short; fast slow; faster slower; fastest slowest; good bad;
    better worse; best worst; before after; since until; first last; next previous; old new;
    older newer; oldest newest; young old; early late; earlier later; left right; up down; upper lower;
    top bottom; front back; inside outside; indoor outdoor; in out; into from; to from; import export;
    input output; upload download; encode decode; encrypt decrypt; encryption decryption;
    compress decompress; push pull; send receive; buy sell; lend borrow; win lose; accept reject;
    accept decline; allow deny; allow forbid; allow block; agree disagree; approve reject;
    connect disconnect; login logout; subscribe unsubscribe; follow unfollow; lock unlock; mute unmute;
    hide show; pause resume; true false; yes no; valid invalid; legal illegal; safe dangerous;
    safe unsafe; possible impossible; public private; male female; man woman; men women; boy girl;
    father mother; son daughter; husband wife; brother sister; king queen; day night; morning evening;
    summer winter; spring autumn; north south; east west; northern southern; eastern western;
    positive negative; advantage disadvantage; pro con; benefit risk; cause effect; question answer;
    teacher student; doctor patient; buyer seller; client server; parent child; love hate; like dislike;
    happy sad; rich poor; strong weak; easy hard; easy difficult; full empty; wet dry; clean dirty;
    light dark; light heavy; thick thin; wide narrow; deep shallow; loud quiet; cheap expensive;
    include exclude; ascend descend; ascending descending; horizontal vertical; internal external;
    local remote; frontend backend; black white; always never; all some; everyone nobody; with without;
    above below; over under; plus minus; add subtract; multiply divide; credit debit; profit loss;
    asset liability; arrive depart; arrival departure; forward backward; clockwise counterclockwise;
    alive dead; birth death; born died; married single; marry divorce; hire fire; freeze thaw;
    melt freeze; succeed fail; success failure; attack defend; ancient modern; sync async;
    synchronous asynchronous; read write; sender receiver; hyper hypo; who where; who when; when where;
    who why; how why; when why; where why
"""

KOREAN = """
    켜 끄; 켜 꺼; 활성화 비활성화; 열 닫; 시작 종료; 시작 끝; 추가 삭제; 추가 제거; 설치 제거;
    증가 감소; 늘리 줄이; 올리 내리; 높 낮; 크 작; 많 적; 길 짧; 빠르 느리; 빠른 느린; 좋 나쁘;
    최대 최소; 최고 최저; 이전 이후; 전에 후에; 이전 다음; 처음 마지막; 왼쪽 오른쪽; 위 아래; 안쪽 바깥;
    입력 출력; 업로드 다운로드; 사 팔; 구매 판매; 보내 받; 승인 거절; 허용 차단; 연결 해제;
    로그인 로그아웃; 남자 여자; 아버지 어머니; 아들 딸; 낮 밤; 아침 저녁; 여름 겨울; 봄 가을; 동쪽 서쪽;
    남쪽 북쪽; 장점 단점; 원인 결과; 안전 위험; 가능 불가능; 찬성 반대; 수입 수출; 입금 출금; 출발 도착;
    내일 어제; 오전 오후; 덥 춥; 더운 추운; 따뜻 시원; 싸 비싸; 쉽 어렵; 공개 비공개; 포함 제외;
    누구 어디; 언제 어디; 언제 누구; 해도 하지; 해줘 하지
"""
