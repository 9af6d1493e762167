"""Which changes a policy's rule is about: all, or the kinds of actions that its sentence names, less its exceptions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from simia.quality.tool_effects import split_tool_name
from simia.quality.truth.facts import MOST
from simia.quality.truth.vocabulary import ACTIONS, CONSENT_POLICY, LOOKUP_POLICY, find_action_words, is_handover

SENTENCES = re.compile(r"[^.;\n。；;]+(?:\.(?=\S)[^.;\n。；;]*)*[.;。；]?")
GENERAL = re.compile(
    r"\bany(?:thing)?\b|\bchang|\bmodif|\bwrit|\baction|\bact\b|\bacting\b|\btouch|\bproceed|\bupdates?\b|操作|办理|手续|手続|変更|变更|修改|更改|处理|业务|执行|実行|対応",
    re.I,
)
EXCEPTION = re.compile(
    r"\bno (?:yes|confirmation|consent|permission|approval|agreement)\b[^.\n]{0,30}\b(?:needed|required|necessary)|\bneeds? no (?:yes|confirmation|consent|permission|approval)|"
    r"\bneed(?:s)? none\b|\bmay be done (?:on request|at once|without|directly)|\bwithout (?:asking|confirm\w*|consent)\b|\bdo not (?:ask|need to ask)\b|\bdon['’]t ask\b|\bno need to (?:ask|confirm)|\bat once\b|"
    r"无须|无需|不用[^。\n]{0,4}(?:问|确认|同意)|不必|不需要|直接(?:办理|做|登记|处理)|确认不要|確認(?:は|も)?(?:不要|いりません|要りません)|了承(?:は|も)?不要|すぐ[^。\n]{0,8}(?:かまいません|構いません|よい|行って)|確認なし|不要です",
    re.I,
)
LOOKING = re.compile(r"\blook(?:ing)?(?:[- ]?ups?|ing things up| things up)|查询|照会|検索|閲覧|查看|調べ", re.I)
NAMES = {
    "document": ("file",),
    "workbook": ("file",),
    "sheet": ("file",),
    "mail": ("e-mail", "email"),
    "meeting": ("event",),
}
CHANGING = frozenset(["change", "update", "modify", "edit", "set", "adjust", "move"])


@dataclass(frozen=True)
class Rule:
    """The changes that a rule is about. `everything`: all; `words`: of the tools' names otherwise; `exceptions`: sentences."""

    everything: bool = False
    words: frozenset[str] = frozenset()
    exceptions: tuple[str, ...] = field(default=())
    known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def covers(self, tool: str) -> bool:
        known = self.known.get(tool)
        if known is None:
            if len(self.known) >= MOST:
                self.known.clear()
            known = self.known[tool] = self._covers(tool)
        return known

    def _covers(self, tool: str) -> bool:
        words = set(split_tool_name(tool))
        if is_handover(words) or not (self.everything or words & self.words):
            return False
        return not any(names_tool(sentence, words) for sentence in self.exceptions)


@lru_cache(maxsize=256)
def read_rule(policy: str, kind: str) -> Rule:
    """Read a policy's rule on consent or on look-ups."""
    pattern = CONSENT_POLICY if kind == "consent" else LOOKUP_POLICY
    everything, words, exceptions = False, set[str](), []
    for sentence in SENTENCES.findall(policy):
        low = sentence.lower()
        if EXCEPTION.search(low) and kind == "consent":
            if not (LOOKING.search(low) and not find_actions(low)):
                exceptions.append(low)
        elif pattern.search(low):
            actions = find_actions(low)
            everything |= not actions or GENERAL.search(low) is not None
            for name in actions:
                words |= ACTIONS[name].tools | (CHANGING if name in ("update", "move") else frozenset())
    return Rule(everything, frozenset(words), tuple(exceptions))


def find_actions(low: str) -> list[str]:
    return [name for name in ACTIONS if find_action_words(name).search(low)]


def names_tool(sentence: str, words: set[str]) -> bool:
    """Return whether an exception names the tool's action or its object."""
    if any(words & action.tools and find_action_words(name).search(sentence) for name, action in ACTIONS.items()):
        return True
    objects = {word for word in words if len(word) > 2} | {other for word in words for other in NAMES.get(word, ())}
    return any(word in sentence for word in objects)
