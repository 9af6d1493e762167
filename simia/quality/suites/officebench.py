"""The suite of OfficeBench: one action per turn, actions only of the open app, and targets that combine several apps.

Seeds use one app; trajectories made from them should use two or three (paper §3). The hint names the apps of an item.
The check requires `MIN_APPS`, the smallest number that a hint names.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

from simia.errors import Issue, UserError
from simia.formats.officebench import APPS, SWITCH, TOOLS
from simia.prompts import read_prompt
from simia.quality.suites.base import Suite, iterate_steps, make_suite_issue
from simia.trajectory import Message, Trajectory

MIN_APPS, MAX_APPS = 2, 3
SYSTEM = "system"
ACTIONS = {app: [spec.name.partition(".")[2] for spec in TOOLS if spec.name.startswith(f"{app}.")] for app in APPS}
# Without the shell and the language model, which help with any task.
REPLIES = "suites/officebench_replies.md"
SUBJECTS = tuple(app for app in APPS if app not in ("shell", "llm"))


def list_used_apps(t: Trajectory) -> list[str]:
    """List the apps whose actions the trajectory calls, in order of first use."""
    return list(dict.fromkeys(app for _, _, c in t.calls() if (app := c.name.partition(".")[0]) in APPS))


def choose_apps(seed: Trajectory, number: int) -> str:
    """Choose the apps to combine: mostly one of the seed's with one or two others."""
    rng = random.Random(number)
    asked = rng.randint(MIN_APPS, MAX_APPS)
    own = [app for app in list_used_apps(seed) if app in SUBJECTS]
    chosen = [rng.choice(own)] if own and rng.random() < 0.7 else []
    others = [app for app in SUBJECTS if app not in chosen]
    chosen += rng.sample(others, asked - len(chosen))
    rng.shuffle(chosen)
    listed = f"{', '.join(chosen[:-1])} and {chosen[-1]}"
    return f"Target: a task that needs {asked} apps together: {listed}; what one gives is used in the next."


def render_replies(target: str) -> str:
    """Render what the actions of a target's apps print when they succeed and when they fail."""
    texts, named = read_replies(), re.findall(r"\w+", target.partition(" together: ")[2].partition(";")[0])
    return "\n".join(["What these apps print:", *(f"{app}\n{texts[app]}" for app in APPS if app in named)])


@cache
def read_replies() -> dict[str, str]:
    """Read the texts of each app, from the prompt file that a user may replace."""
    _, *sections = re.split(r"^## +(\w+) *$", "\n" + read_prompt(REPLIES)[0], flags=re.M)
    texts = {app: text.strip() for app, text in zip(sections[::2], sections[1::2], strict=True)}
    if missing := [app for app in APPS if app not in texts]:
        raise UserError(f"prompt {REPLIES} has no section for the app {missing[0]!r}: add `## {missing[0]}`")
    return texts


def check_officebench(t: Trajectory, seed: Trajectory | None) -> Iterator[Issue]:
    opened: str | None = None
    lists = seed is not None and any(
        step.call.name == SWITCH.name and names_actions(step.arguments.get("target_app"), step.result)
        for step in iterate_steps(seed)
    )
    for step in iterate_steps(t):
        app, _, action = step.call.name.partition(".")
        if app == SYSTEM:
            target = step.arguments.get("target_app")
            opened = target if isinstance(target, str) else opened
            if lists and step.call.name == SWITCH.name and not names_actions(opened, step.result):
                yield make_suite_issue(step.where, f"the reply to switch_app does not list the actions of {opened}")
        elif app != opened:
            state = f"while {opened} is open" if opened else "before any app is opened"
            yield make_suite_issue(step.where, f"{app}.{action} {state}")
    if seed is not None and len(used := list_used_apps(t)) < MIN_APPS:
        named = ", ".join(used) or "none"
        yield make_suite_issue("", f"it uses {len(used)} app ({named}), at least {MIN_APPS} were asked for")


def names_actions(app: str | None, result: Message | None) -> bool:
    return result is not None and any(action in result.text for action in ACTIONS.get(app or "", ()))


OFFICEBENCH = Suite(
    "officebench",
    "officebench",
    check_officebench,
    choose_apps,
    explain=render_replies,
    reasoned=True,
    more_files=(REPLIES,),
)
