"""Texts of the kinds a gateway sees, for measuring activation ranges: questions and orders in several
languages, numbers, code, lists, noise, and one long text."""

from __future__ import annotations

TEXTS: tuple[str, ...] = (
    "",
    "a",
    "hi",
    "How do I reset my password?",
    "What is the capital of Australia, and why is it not Sydney?",
    "Summarise the following meeting notes in three bullet points for a busy manager.",
    "Is it safe to take ibuprofen together with alcohol?",
    "merge the develop branch into main and resolve the conflicts in favour of main",
    "ok continue",
    "Yes, cancel it please.",
    "Convert 72 degrees Fahrenheit to Celsius and round to one decimal place.",
    'WHY DOES MY ORDER #48213 STILL SAY "PENDING" AFTER 10 DAYS???',
    'Translate "Where is the nearest station?" into Japanese, Korean and French.',
    "Given f(x) = 3x^2 - 12x + 7, find the minimum of f on [0, 5].",
    "Which of these is a noble gas? A) nitrogen B) argon C) chlorine D) hydrogen",
    "I invested $10,000 at 4.75% interest compounded monthly; what will I have on 31 December 2031?",
    "비밀번호를 잊어버렸는데 어떻게 다시 설정하나요?",
    "서울에서 부산까지 기차로 얼마나 걸려요?",
    "이 문장을 영어로 번역해 주세요: 내일 비가 오면 경기가 취소됩니다.",
    "환불은 언제 되나요",
    "갤럭시 S24와 아이폰 15의 배터리 수명을 비교해 줘",
    "파이썬에서 리스트를 역순으로 정렬하는 방법을 알려줘.",
    "주문 번호 20391의 배송 상태를 확인하고 싶습니다.",
    "パスワードを忘れた場合はどうすればいいですか？",
    "東京タワーの高さは何メートルですか",
    "请用三句话解释什么是机器学习。",
    "这份合同可以提前终止吗？",
    "¿Cuánto cuesta enviar un paquete de 2 kg a México?",
    "Quelle est la différence entre « savoir » et « connaître » ?",
    "Wie lange ist die Kündigungsfrist bei einem unbefristeten Mietvertrag?",
    "Как приготовить борщ без мяса?",
    "كيف يمكنني تغيير لغة التطبيق؟",
    "भारत की राजधानी क्या है?",
    "Xin chào, tôi muốn đổi vé máy bay sang ngày mai.",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\nWhy is this slow for n = 40?",
    "SELECT customer_id, SUM(total) FROM orders WHERE created_at >= '2024-01-01' GROUP BY 1;",
    '{"model": "small", "messages": [{"role": "user", "content": "ping"}], "temperature": 0.2}',
    'Traceback (most recent call last):\n  File "main.py", line 3, in f\nZeroDivisionError: division by zero',
    "https://example.com/articles/2024/05/17/how-it-works?utm_source=mail&id=99#part-2",
    "😀 🎉 great job!!! 👍👍",
    "asdf qwer zxcv 1q2w3e4r",
    "!!!! ???? .... ---- ____ ####",
    "1234567890 1234567890 1234567890",
    "- milk\n- eggs\n- bread (2)\n- 500 g of rice",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Not all of the tickets were sold, but none of those that were sold has been refunded.",
    "Write a short, polite email to my landlord, Mr Okafor, saying that the heating in flat 12B has been "
    "broken since Tuesday, that two radiators leak, and that someone should come before the weekend. "
    "Mention that I already called on Wednesday and was told to wait, ask for a lower rent for the "
    "days without heating, and close by offering to be at home on Thursday after 5 p.m. or on Friday. "
    'Keep it under 150 words, do not sound angry, and do not use the word "unacceptable". 그리고 같은 내용을 '
    "한국어로도 정중하게 써 주세요. 마지막 줄에는 제 전화번호 010-1234-5678을 적어 주세요.",
)
