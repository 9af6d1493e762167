"""Traits of a seed that a plan depends on: its language, the call graph of its tools, its policy, its suite."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simia.amplification.call_graph import CallGraph
from simia.quality.language import identify_language
from simia.quality.suites import Suite
from simia.quality.suites.base import give_no_hint
from simia.trajectory import Trajectory

LEAST_POLICY = 80  # characters; "You are a helpful assistant with access to functions." is no policy
# Words by which a policy forbids or limits something.
FORBIDS = re.compile(
    r"\b(?:must not|may not|cannot|can not|can only|only (?:if|when|while|after|before|until|one|once|be|the|use)|never|do not|don['’]t|should not|"
    r"not (?:be )?(?:allowed|permitted|possible|refunded?)|forbid\w*|refuse|deny|declin\w+|unless|at most|no more than|nur|darf nicht|dürfen nicht|"
    r"verboten|ne (?:peut|doit) pas|interdit|no (?:puede|debe|se permite)|prohibido|solo (?:si|cuando))\b|"
    r"不得|不能|不可|不允许|禁止|只能|仅限|最多|必须|できません|してはならない|しないで|禁止|のみ|限り|まで|必ず|안 됩니다|없습니다|금지|만 가능",
    re.I,
)
ONE_CALL = re.compile(
    r"\b(?:one|a single) (?:tool|function|action)?(?: ?call)?s? (?:at a time|per turn|a turn|at once)\b|\b(?:one|single) (?:tool|function|action) at a time\b|"
    r"一次只(?:能)?(?:调用|使用)?一个|每次只(?:能)?(?:调用|使用)一个|逐一调用|一度に(?:一|1)つ|한 번에 하나",
    re.I,
)
CONFIRM = re.compile(
    r"\bexplicit(?:ly)?\b[^.\n]{0,80}\b(?:confirm\w*|consent\w*|yes)\b|\bobtain[^.\n]{0,60}confirm|\bwait[^.\n]{0,40}\b(?:yes|confirm)|确认|同意|確認|同意|확인",
    re.I,
)
NOT_CASED = frozenset(("zh", "ja", "ko", "th", "ar", "fa", "ur", "he", "hi", "bn", "ta", "te", "km", "my", "lo", "ka"))
FIXED_FORM = frozenset(("webshop", "mind2web"))  # whose user turns have one given form
FAILING = frozenset(("os", "officebench"))  # whose calls may fail on the way


@dataclass(frozen=True, slots=True)
class SeedTraits:
    """Traits that the plans of one seed depend on, besides its values. `tools`: the names of its tools."""

    tools: tuple[str, ...]
    graph: CallGraph
    language: str = ""
    has_policy: bool = False
    one_call: bool = False
    confirms: bool = False
    dialogue: bool = True
    suite: str = "generic"
    targeted: bool = False

    @property
    def failing(self) -> bool:
        return self.suite in FAILING

    def list_features(self) -> set[str]:
        """List the conditions of plan lines that hold for every plan of the seed."""
        found = {"cased"} if self.language not in NOT_CASED else set()
        found |= {"policy"} if self.has_policy else set()
        found |= {"dialogue"} if self.dialogue else set()
        found |= {"target", self.suite} if self.targeted else set()
        return found | ({"fixed"} if self.suite in FIXED_FORM else set())


def read_traits(seed: Trajectory, graph: CallGraph, suite: Suite) -> SeedTraits:
    """Read a seed's traits. `graph`: of the seeds that have its tools."""
    policy = seed.system or ""
    said = " ".join(message.text for message in seed.messages if message.role == "user")
    return SeedTraits(
        tools=tuple(tool.name for tool in seed.tools),
        graph=graph,
        language=identify_language(said),
        has_policy=len(policy) >= LEAST_POLICY * (0.4 if not policy.isascii() else 1)
        and FORBIDS.search(policy) is not None,
        one_call=suite.dialect != "apigen" or ONE_CALL.search(policy) is not None,
        confirms=CONFIRM.search(policy) is not None,
        dialogue=graph.user_turns > 1,
        suite=suite.name,
        targeted=suite.hint is not give_no_hint,
    )
