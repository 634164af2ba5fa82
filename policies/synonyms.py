"""Words that ask for the same: groups, parted by semicolons. The lists are ours, and of plain everyday words.

A group never joins two words of which one answer serves only one.
"""

from __future__ import annotations

ENGLISH = """
    buy purchase; begin start commence; end finish stop; big large; fix repair resolve; phone mobile
    cellphone smartphone telephone; delete remove erase; create make build; show display; picture image
    photo photograph; car automobile; movie film; fast quick rapid; error bug issue problem trouble; help
    assist; get obtain retrieve fetch receive; change modify alter edit; choose select pick; use utilize
    utilise employ; need require; cost price; sick ill; doctor physician; kid child children; job
    occupation; house home; company firm business; method way approach; reason cause; function method;
    folder directory; install setup; find locate; check verify; cancel terminate; refund reimbursement; send
    dispatch; answer reply respond response; ask inquire; learn study; teach instruct; speak talk; happy
    glad; sad unhappy; hard difficult tough; easy simple; cheap inexpensive affordable; expensive costly;
    holiday vacation; flight plane; store shop; trip journey travel; signup register enroll; login signin;
    lawyer attorney; medicine medication drug; safe harmless; dangerous hazardous unsafe; explain describe
    clarify; difference distinction; compare contrast; increase raise; decrease reduce lower; convert
    transform turn; list enumerate; print output; parse read; run execute launch; screen display; laptop
    notebook; internet web; tv television; bike bicycle; film movie; couch sofa; garbage trash rubbish;
    autumn fall; earn gain; major main primary principal; famous renowned popular; best top greatest; good
    great; meaning definition mean define; city town; nation country; stomach tummy belly; soccer football;
    rent lease; wed marry; die pass; password passcode; email mail; summary summarize summarise overview;
    quickly rapidly fast; approximately about roughly; allow permit; let enable; lose misplace; steal theft
    stolen; broken damaged defective faulty; parcel package; deliver ship; delivery shipping shipment;
    arrive come; order purchase; weight mass; correct right; wrong incorrect; programme program; colour
    color; centre center; favourite favorite; organise organize; lb pound lbs
"""

KOREAN = """
    구매 구입; 사 구매; 삭제 제거 지우; 생성 만들 작성; 시작 개시; 종료 끝나; 고치 수리 수정; 휴대폰 핸드폰
    스마트폰 휴대전화; 사진 이미지; 영화 필름; 오류 에러 문제 버그; 방법 법; 이유 원인 까닭; 비용 가격 요금
    값; 병원 의원; 의사 의료진; 아이 어린이 자녀; 직업 직장; 집 주택; 회사 기업; 폴더 디렉터리 디렉토리;
    설치 인스톨; 찾 검색; 확인 체크; 취소 해지; 환불 반환; 보내 전송 발송; 답변 대답 답; 배우 공부 학습;
    여행 관광; 차이 차이점 다른점; 비교 대조; 늘리 증가; 줄이 감소; 변환 바꾸 변경 전환; 실행 돌리; 화면
    스크린; 노트북 랩탑; 인터넷 웹; 의미 뜻; 나라 국가; 도시 시; 배송 배달 택배; 약 의약품; 요약 정리; 추천
    권장; 로그인 접속; 비밀번호 패스워드 암호; 이메일 메일; 계정 아이디; 사용 이용 쓰; 날씨 기상; 가게 상점
    매장; 식당 음식점 맛집; 자동차 차; 텔레비전 티비; 선택 고르; 필요 요구; 복용 먹; 안전 괜찮; 아프 통증;
    숙소 호텔
"""
