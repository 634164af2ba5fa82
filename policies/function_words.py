"""Words that carry no fact of their own: articles, auxiliaries, prepositions, politeness. The lists are ours.

Negations and prepositions that turn a meaning around (not, from, to, before, without) are not among them.
"""

from __future__ import annotations

_ENGLISH = """
    a an the this that these those it its he she they them his her their i me my mine you your yours we us our
    is are was were am be been being do does did doing done have has had having can could will
    would shall should may might must and or so as at by for of on in with about there here then than if
    please kindly thanks thank hi hello hey dear just also too very really some any tell give show let
"""
_KOREAN = """
    좀 제발 그 이 저 그리고 또 및 수 것 거 등 좀더 한번 혹시 주세요 줘 해줘 해주세요 알려줘 알려주세요
"""
ENGLISH = frozenset(_ENGLISH.split())
KOREAN = frozenset(_KOREAN.split())
