"""Lines of a dry run about the planned episodes, besides their requests: the reward, the pack to validate on, the cap on the cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from simia.amplification.cost_estimate import RequestGroup
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import find_simulator, list_packs, make_backend
from simia.envs.remote.remote_pack import plays_remotely
from simia.envs.role_models import judges_by_model, judges_outcome_by_model, user_kind
from simia.envs.several_packs import CombinedPack
from simia.llm.backends import open_backend
from simia.pack import Pack
from simia.task import Task
from simia.terminal import write_count
from simia.trainers.episode_plan import EpisodePlan


def check_references(plans: Sequence[EpisodePlan]) -> list[str]:
    """Return a line for each environment in which some tasks lack the solution that the settings show to its models.

    Raises `UserError` if no task to train on has one. Validation tasks may all lack it if they are played in the environment of training.
    """
    lines = []
    for plan in plans:
        if plays_remotely(plan.stage):
            continue
        missing, asked = 0, 0
        several = isinstance(plan.pack, CombinedPack)
        names = list(plan.pack.members) if isinstance(plan.pack, CombinedPack) else [plan.pack.name]
        for name, (settings, pack) in zip(names, list_packs(plan.stage, plan.pack), strict=True):
            simulator = find_simulator(make_backend(pack, settings))
            if simulator is None:
                continue
            prefix = f"{name}/"
            tasks = (
                [pack.task(t.id.removeprefix(prefix)) for t in plan.tasks if t.id.startswith(prefix)]
                if several
                else plan.tasks
            )
            if plan.what.startswith("training") or plan.place.endswith("val_environment"):
                simulator.check_references(tasks, f"{plan.place}.")
            missing, asked = missing + len(simulator.list_unsolved(tasks)), asked + len(tasks)
        if missing:
            who = "simulator and judge see" if judges_by_model(plan.stage) else "the simulator sees"
            lines.append(
                f"{plan.what}: {missing} of {write_count(asked, 'task')} without a solution: {who} the task alone"
            )
    return lines


def describe_shared_tasks(plans: Sequence[EpisodePlan], name_split: Callable[[EpisodePlan], str]) -> list[str]:
    """Return a line for each validation on tasks that are also trained on. `name_split`: names the setting with the split of a plan."""
    trained = {
        find_origin(plan.pack, task): plan for plan in plans if plan.what.startswith("training") for task in plan.tasks
    }
    lines = []
    for plan in plans:
        shared = [other for task in plan.tasks if (other := trained.get(find_origin(plan.pack, task))) is not None]
        if shared and not plan.what.startswith("training"):
            lines.append(
                f"{plan.what}: {len(shared):,} of {write_count(len(plan.tasks), 'task')} also trained on: set {name_split(shared[0])} and "
                f"{name_split(plan)} to different splits"
            )
    return lines


def find_origin(pack: Pack, task: Task) -> tuple[Path | str, str]:
    """Return the folder of a task's own pack (without one, its name), and the task's id there."""
    name, _, rest = task.id.partition("/")
    own, task_id = (pack.members[name], rest) if isinstance(pack, CombinedPack) else (pack, task.id)
    return own.root.resolve() if own.root is not None else own.name, task_id


def describe_users(plans: Sequence[EpisodePlan]) -> list[str]:
    """Describe the user in each plan's episodes, and warn if a pack wants a model as its user and none plays."""
    found, warned = [], list[str]()
    for plan in plans:
        players = dict[str, None]()
        for settings, pack in list_packs(plan.stage, plan.pack):
            kind = "the server's" if plays_remotely(settings) else user_kind(settings, pack)
            if kind == "llm":
                kind = open_backend(settings.player or settings.simulator or settings.llm, say=lambda _: None).model
            players[kind] = None
            if kind == "none" and pack.user == "llm":
                warned.append(
                    f"warning: pack {pack.name} needs a model as its user, but {plan.what} has none, so the task's text is the only message; "
                    f"set {plan.place}.user=llm"
                )
        found.append((plan.what, " and ".join(players)))
    return ["user: " + "; ".join(text if what == "training" else f"{what}: {text}" for what, text in found), *warned]


def describe_rewards(plans: Sequence[EpisodePlan]) -> str:
    """Describe the reward of each plan's episodes."""
    found = [(plan.what, describe_reward(plan.stage)) for plan in plans]
    return "reward: " + "; ".join(text if what == "training" else f"{what}: {text}" for what, text in found)


def describe_reward(stage: EnvironmentConfig) -> str:
    if plays_remotely(stage):
        return "the server's"
    named, steps = stage.reward_function, stage.step_rewards
    text = "a model judges" if judges_outcome_by_model(stage) else "the tasks' rules"
    if stage.reward == "both":
        text += ", with a model's verdict as a part"
    if stage.reward == "trace_state":
        text = "trace and state"
    if stage.reward == "function":
        text = f"{named} alone"
    elif named is not None:
        text += f", then {named}"
    return text if steps is None else f"{text}, and step rewards by {steps.by} up to {steps.weight:g}"


def describe_other_pack(plan: EpisodePlan, plans: Sequence[EpisodePlan]) -> str | None:
    """Describe the pack to validate on, if it differs from that of training; None if it does not, or the plan is of training."""
    trained = next((each for each in plans if find_tag(each) == find_tag(plan)), plan)
    if plan.pack.name == trained.pack.name:
        return None
    if list_tools(plan) == list_tools(trained):
        return f"another pack than in training, with the tools of {trained.pack.name}"
    return (
        f"warning: {plan.pack.name} has other tools than {trained.pack.name}, the pack of training: set val_environment.pack={trained.pack.name} "
        "or another with its tools, or turn validation off"
    )


def list_tools(plan: EpisodePlan) -> set[str]:
    return {tool.name for _, pack in list_packs(plan.stage, plan.pack) for tool in pack.tools}


def find_tag(plan: EpisodePlan) -> str:
    """Return the tag of a plan, such as `(Tau)` of `training (Tau)`; empty without one."""
    return plan.what.partition(" ")[2]


def describe_caps(plans: Sequence[EpisodePlan], usual: Mapping[str, Sequence[RequestGroup]]) -> list[str]:
    """Describe which share of the run `limits.max_cost` pays for, if not all of it. `usual`: plan → its requests.

    Training and validation of one tag share a budget.
    """
    lines = []
    for tag in dict.fromkeys(map(find_tag, plans)):
        members = [plan for plan in plans if find_tag(plan) == tag]
        caps = [cap for plan in members if (cap := plan.stage.limits.max_cost) is not None]
        groups = [each for plan in members for each in usual[plan.what]]
        served, whole = (sum(each.cost(cached=cached) or 0.0 for each in groups) for cached in (True, False))
        if not caps or whole <= min(caps):
            continue
        low, high = (f"{min(1.0, min(caps) / cost):.0%}" if cost else "100%" for cost in (whole, served))
        share = low if low == high else f"{low} to {high}"
        of = f" of {tag}" if tag else ""
        lines.append(
            f"limits.max_cost of ${min(caps):,.2f}{of} ends the run after about {share} of it: raise it, or plan fewer steps"
        )
    return lines
