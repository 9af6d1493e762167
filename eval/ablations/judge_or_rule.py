"""Compare a model as judge with the rules: which episodes of a synthesized pack each accepts (ScaleEnv, Table 4).

    python -m eval.ablations.judge_or_rule                                  # job_seeking, six tasks, the local model
    python -m eval.ablations.judge_or_rule --pack PACK --set llm.model=gpt-5-mini --set llm.kind=openai

Each task is played four times in the executable world: by its solution, by the solution without its last change of the state, by an agent
that says it is done without a call, and by one that refuses. The judge is the one of `simia reward calibrate`; it sees policy, task, reference
solution and transcript. The rules' reward is taken as the truth, so their row has no error by definition; it shows that the rules tell the
four kinds apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eval.ablations.outcomes import save_counts
from simia.config import load_config
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import CannedAgent, NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.rewards.judge import RewardJudge
from simia.envs.users import NoUser, ScriptedUser
from simia.llm.backends import open_backend
from simia.llm.engine import Engine
from simia.rollouts.settings import RolloutConfig
from simia.statistics import SUCCESS
from simia.task import ScriptTurn, Task
from simia.trajectory import Trajectory

SETTINGS = ("llm.kind=embedded", "llm.model=qwen2.5-coder-0.5b", "llm.context=12288", "oracle.max_tokens=300")
RESULTS = Path(__file__).parent / "results" / "judge_or_rule.json"
KINDS = ("solved", "last change left out", "says done, did nothing", "refuses, did nothing")


def leave_out(script: Sequence[ScriptTurn], changes: Callable[[str], bool]) -> list[ScriptTurn] | None:
    """Return the script without the agent's last call of a tool that changes the state; None if it has no such call."""
    for place in range(len(script) - 1, -1, -1):
        calls = script[place].calls or []
        last = next((n for n in range(len(calls) - 1, -1, -1) if changes(calls[n].name)), None)
        if last is not None:
            left = [call for n, call in enumerate(calls) if n != last]
            turn = [script[place].model_copy(update={"calls": left})] if left else []
            return [*script[:place], *turn, *script[place + 1 :]]
    return None


def name_changing_tools(environment: Environment) -> Callable[[str], bool]:
    changing = {tool.name for tool in environment.pack.tools if tool.writes}
    return lambda name: name in changing


async def play_kinds(environment: Environment, task: Task) -> list[tuple[str, Trajectory]]:
    """Play a task in each way."""
    shorter = leave_out(task.make_script(), name_changing_tools(environment))
    spoiled = task.model_copy(update={"script": shorter or []})
    ways: list[tuple[Any, Any]] = [(ReferenceAgent(task), ScriptedUser(task))]
    ways.append((ReferenceAgent(spoiled), ScriptedUser(spoiled)))
    ways += [(agent(task), NoUser(task)) for agent in (CannedAgent, NothingAgent)]
    found = []
    for kind, (agent, user) in zip(KINDS, ways, strict=True):
        if kind == KINDS[1] and shorter is None:
            continue
        arena = Environment(environment.pack, environment.backend, backend_name="executable", user=lambda _, u=user: u)
        found.append((kind, await play(await arena.reset(task), agent)))
    return found


def read_rows(out: Path) -> list[dict[str, Any]]:
    return json.loads(out.read_text(encoding="utf-8"))["rows"] if out.is_file() else []


def write_rows(out: Path, found: dict[str, Any]) -> None:
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


async def judge_episodes(
    pack: str, number: int, settings: Sequence[str], out: Path, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Play and judge the first tasks of a pack. Each verdict is appended to `out`; episodes with a verdict in it are not judged again."""
    config = load_config(RolloutConfig, "rollout/default", settings)
    model = open_backend(config.llm, say=say)
    rows = read_rows(out)
    known = {(row["task"], row["kind"]) for row in rows}
    async with (
        await open_environment(pack, user="scripted") as environment,
        Engine(model, limits=config.limits) as engine,
    ):
        judge = RewardJudge(engine, environment.pack, config.oracle)
        for task in environment.pack.tasks[:number]:
            for kind, episode in await play_kinds(environment, task):
                if (task.id, kind) in known:
                    continue
                assert episode.reward is not None
                verdict = await judge.score(episode, task)
                why = (verdict.rationale or str(verdict.error or ""))[:300]
                row = {"task": task.id, "kind": kind, "rules": episode.reward.value, "judge": verdict.value, "why": why}
                rows.append(row)
                found = {"pack": environment.pack.name, "model": model.model, "rows": rows}
                write_rows(out, found)
                say(f"{task.id}, {kind}: rules {row['rules']}, judge {row['judge']}")
    return {"pack": environment.pack.name, "model": model.model, "rows": rows}


def measure(found: dict[str, Any]) -> dict[str, dict[str, tuple[int, int]]]:
    """Count for `rules` and `judge`: the episodes with a right verdict, and the accepted episodes of each kind."""
    rows = [row for row in found["rows"] if row["judge"] is not None]
    counts = {}
    for who in ("rules", "judge"):
        right = sum((row[who] >= SUCCESS) is (row["rules"] >= SUCCESS) for row in rows)
        counts[who] = {"right": (right, len(rows))}
        for kind in KINDS:
            own = [row[who] >= SUCCESS for row in rows if row["kind"] == kind]
            counts[who][kind] = (sum(own), len(own))
    return counts


def count_verdicts(measured: dict[str, dict[str, tuple[int, int]]]) -> list[dict[str, Any]]:
    """Write the counts of `measure` as rows of a stored result."""
    return [
        {"arm": who, "measure": name if name == "right" else f"accepted: {name}", "count": count, "of": of}
        for name in ("right", *KINDS)
        for who, (count, of) in ((who, measured[who][name]) for who in measured)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pack", default="job_seeking")
    parser.add_argument("--tasks", type=int, default=6, help="the first tasks of the pack")
    parser.add_argument(
        "--set", action="append", default=[], help="any setting of a rollout: llm.… is the judge; oracle.…"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="file of the verdicts; those in it are not asked for again"
    )
    parser.add_argument(
        "--stored", action="store_true", help="play and ask nothing: table and figure from the stored verdicts"
    )
    given = parser.parse_args()
    if given.stored:
        found = json.loads(given.out.read_text(encoding="utf-8"))
    else:
        found = asyncio.run(judge_episodes(given.pack, given.tasks, [*SETTINGS, *given.set], given.out))
    print(f"{found['pack']}, judged by {found['model']}")
    silent = sum(row["judge"] is None for row in found["rows"])
    print(f"{silent} of {len(found['rows'])} episodes without a verdict that can be read, which no figure counts")
    title = f"{found['pack']}, judged by {found['model'].partition('@')[0]}"
    save_counts("scaleenv_judge", title, count_verdicts(measure(found)), given.out.parent)


if __name__ == "__main__":
    main()
