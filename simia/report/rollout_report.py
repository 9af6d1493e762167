"""The report of a rollout: rewards, endings of episodes, errors, the hardest tasks, and the comparison with a shadow back end.

With `backend=shadow` each call is answered by both worlds. Two answers agree if both refuse, or if both succeed with the same values, and if
the changes of the state that the simulator names are exact. `simia fidelity` measures how similar other answers are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from simia.errors import Code, UserError
from simia.evaluation.failures import Failure, classify_failures
from simia.evaluation.fidelity import iterate_leaves, json_kind
from simia.evaluation.perturbations import count_perturbations
from simia.evaluation.scores import find_scenario, read_episodes
from simia.jobs import REJECTED, Run
from simia.report.console import make_plain_text
from simia.report.conversation import list_outcome_lines
from simia.report.evaluation_report import load_users_tasks
from simia.report.pack_scores import print_pack_scores
from simia.report.perturbation_table import list_perturbation_lines, print_perturbations
from simia.statistics import RolloutStatistics, summarize_rewards
from simia.terminal import write_count
from simia.trajectory import write_compact_json

MOST_TASKS = 20
LONGEST = 200  # characters of an error


def print_rollout(run: Run, to: Console) -> None:
    """Print the report of a rollout, and of one over several packs a table by pack."""
    rewards: dict[str, list[float | None]] = defaultdict(list)
    scenarios: dict[str, str] = {}
    disturbed: list[dict[str, Any]] = []
    parts: dict[str, list[float]] = defaultdict(list)
    ends: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    calls = turns = 0
    for each in read_episodes(run):
        row = each.row
        reward, end = row.get("reward") or {}, row.get("end") or {}
        rewards[each.task].append(each.reward)
        if scenario := find_scenario(each):
            scenarios[each.task] = scenario
        disturbed.append({name: row.get(name) for name in ("perturbations", "extra", "reward")})
        ends[f"{end.get('kind', 'terminated')}: {end.get('code', 'no reason')}"] += 1
        for name, value in (reward.get("parts") or {}).items():
            parts[name].append(value)
        for message in row.get("messages", []):
            turns += message["role"] == "assistant"
            calls += len(message.get("calls", []))
            if message.get("error"):
                errors[message["error"]] += 1
    scores = summarize_rewards(rewards, scenarios)
    means = {name: sum(values) / len(values) for name, values in parts.items()}
    print_scores(scores, run, to, means)
    print_pack_scores(run, to)
    if scores.mean is None:
        return
    print_counts(to, "ended", ends, ends.total())
    print_counts(to, f"of {write_count(calls, 'call')} and {write_count(turns, 'turn')}, errors", errors, calls or 1)
    print_perturbations(count_perturbations(disturbed), to)
    hardest, unscored = rank_tasks(rewards)
    table = Table("task", "tries", "mean reward", title="hardest first", title_justify="left")
    table.columns[0].overflow = "fold"  # a task's name holds its pack's and must not be cut
    for mean, task, tries in hardest[:MOST_TASKS]:
        table.add_row(make_plain_text(task), str(tries), f"{mean:.2f}")
    to.print(table)
    if len(hardest) > MOST_TASKS:
        to.print(f"and {write_count(len(hardest) - MOST_TASKS, 'more task')}", highlight=False)
    if unscored:
        more = f" and {len(unscored) - MOST_TASKS} more" if len(unscored) > MOST_TASKS else ""
        to.print(make_plain_text(f"without a scored episode: {', '.join(unscored[:MOST_TASKS])}{more}"), soft_wrap=True)


def print_scores(scores: RolloutStatistics, run: Run, to: Console, parts: Mapping[str, float] | None = None) -> None:
    """Print the numbers of played and planned episodes, and their rewards. `parts`: means of the reward parts."""
    passed, kept = run.ledger.counts().get("passed", 0), run.ledger.accepted_count()
    accepted = f"{passed} accepted" + (f" ({kept} of them different)" if kept != passed else "")
    to.print(
        f"{run.id}: {count_episodes(scores, run)}, {scores.scored} scored, {scores.aborted} not; {accepted}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if scores.mean is None:
        return
    table = Table("figure", "value", "95 % interval")
    for name, each in [("mean reward", scores.mean), *scores.passes.items()]:
        table.add_row(name, f"{each.value:.3f}", f"{each.low:.3f} to {each.high:.3f}")
    for name, value in (parts or {}).items():
        table.add_row(f"part {name}", f"{value:.3f}", "")
    to.print(table)


def summarize_truncated(run: Run) -> str:
    """Write how many episodes below the wanted reward were cut by a limit, and by which; empty if none was."""
    codes: Counter[str] = Counter()
    for item in run.ledger.items():
        if item.status != REJECTED or (body := run.ledger.result(item.id)) is None:
            continue
        end = (body["trajectory"] or {}).get("end") or {}
        if end.get("kind") == "truncated":
            codes[str(end.get("code", "no reason"))] += 1
    if not codes:
        return ""
    listed = ", ".join(f"{name} {count:,}" for name, count in codes.most_common())
    limit = f" (episode.turns={run.saved_config()['episode']['turns']})" if Code.MAX_TURNS in codes else ""
    return f"of the episodes that were not accepted, {codes.total():,} {'was' if codes.total() == 1 else 'were'} truncated: {listed}{limit}"


def count_episodes(scores: RolloutStatistics, run: Run) -> str:
    """Write how many episodes and tasks have been played, and the planned number if some are left."""
    planned = int((run.ledger.meta("facts") or {}).get("planned") or 0)
    if scores.episodes >= planned:
        return f"{write_count(scores.episodes, 'episode')} of {write_count(scores.tasks, 'task')}"
    tasks = planned // int(run.saved_config().get("group") or 1)
    return f"{scores.episodes:,} of {write_count(planned, 'episode')}, {scores.tasks:,} of {write_count(tasks, 'task')}"


def print_counts(to: Console, what: str, counts: Counter[str], whole: int) -> None:
    if counts:
        listed = ", ".join(f"{name} {count:,} ({count / whole:.0%})" for name, count in counts.most_common())
        to.print(f"{what}: {listed}", markup=False, highlight=False, soft_wrap=True)


def rank_tasks(rewards: Mapping[str, Sequence[float | None]]) -> tuple[list[tuple[float, str, int]], list[str]]:
    """Return (mean reward of its scored episodes, task, number of its episodes) for each task, the hardest first; and the tasks without a
    scored episode, which have no mean."""
    found, unscored = [], []
    for task, values in sorted(rewards.items()):
        known = [value for value in values if value is not None]
        if known:
            found.append((sum(known) / len(known), task, len(values)))
        else:
            unscored.append(task)
    return sorted(found), unscored


def print_outcome(run: Run, item: str, row: Mapping[str, Any], to: Console) -> None:
    """Print the reward of an episode with its parts and reasons, its ending and, for a rollout, who failed. `row`: its stored trajectory."""
    lines = list_outcome_lines(row)
    if run.is_rollout:
        episodes = list(read_episodes(run, item))
        tasks, notes = load_users_tasks(run, episodes)
        failures = classify_failures(episodes, tasks)
        lines += list_failure_lines(failures, run.saved_config().get("backend"))
        lines += [f"note: {each}" for each in notes]
    lines += list_perturbation_lines(row)
    for line in lines:
        to.print(make_plain_text(line), soft_wrap=True)


def list_failure_lines(failures: Sequence[Failure], backend: Any) -> list[str]:
    """Write who failed. Where a simulator returned results, a note says that an agent's failure may be the simulator's."""
    lines = [f"failure: {each.party}, {each.kind}: {each.detail}" for each in failures]
    if backend not in ("executable", "shadow") and any(each.party == "agent" for each in failures):
        lines.append(
            "note: a simulator returned the results: if they or their changes are wrong, the agent is not at fault"
        )
    return lines


def refuse_unknown_item(run: Run, item: str) -> NoReturn:
    """Raise `UserError` for an item without a result. It names an existing one: the same item with a part or trial, else the first."""
    named = [each.id for each in run.ledger.items()]
    problem = f"run {run.id} has no result for item {item!r}"
    if item in named:
        raise UserError(
            f"{problem}, which was not finished: choose another, or continue with simia runs resume {run.id}"
        )
    if near := [each for each in named if f"/{each}".endswith(f"/{item}") or f"/{item}." in f"/{each}"]:
        form = " (TASK.N is episode N of a task, from 0)" if run.is_rollout else ""
        raise UserError(f"{problem}; did you mean {' or '.join(near[:3])}?{form}")
    form = "TASK.0, TASK.1, …" if run.is_rollout else "STEP.NAME" if run.is_training else "i000000, i000001, …"
    if run.saved_config().get("packs"):
        form = "PART/TASK.0, PART/TASK.1, …"
    raise UserError(
        f"{problem} (items are named {form}{f', the first {named[0]}' if named else ', and there is none yet'})"
    )


def list_compared_calls(run: Run, item: str) -> list[dict[str, Any]]:
    """Return the compared calls of an episode, each with `episode` set."""
    body = run.ledger.result(item)
    rows = (body["trajectory"].get("evidence") or {}).get("differences", []) if body and body["trajectory"] else []
    return [{**row, "episode": item} for row in rows]


def summarize_shadow(run: Run) -> str | None:
    """Count the compared calls, those that agree and those that were lost; None without a shadow back end."""
    if run.saved_config().get("backend") != "shadow":
        return None
    rows = [row for item in run.ledger.items() for row in list_compared_calls(run, item.id)]
    fates = Counter(map(compare_call_answers, rows))
    lost = Counter(str(row["lost"]) for row in rows if "lost" in row)
    why = f" (mostly {lost.most_common(1)[0][0][:LONGEST]})" if lost else ""
    other, changes = fates["differs"], fates["differs in the changes"]
    only = f" ({changes} only in the changes)" if changes else ""
    return f"shadow: {write_count(len(rows), 'call')}, {fates['agrees']} agree, {other + changes} differ{only}, {lost.total()} lost{why}"


def compare_call_answers(row: Mapping[str, Any]) -> str:
    """Return `agrees`, `differs`, `differs in the changes` (with equal answers) or, without a simulated answer, `lost`."""
    if "lost" in row:
        return "lost"
    if not has_same_answer(row):
        return "differs"
    return "agrees" if row.get("transition", {}).get("exact", True) else "differs in the changes"


def has_same_answer(row: Mapping[str, Any]) -> bool:
    """Whether both worlds refuse a call, or both return the same values."""
    real, simulated = row["real"], row["simulated"]
    one, two = real["content"], simulated["content"]
    if real["failed"] or simulated["failed"]:
        return bool(real["failed"] == simulated["failed"])
    return json_kind(one) == json_kind(two) and Counter(iterate_leaves(one)) == Counter(iterate_leaves(two))


def print_differences(rows: Sequence[Mapping[str, Any]], to: Console) -> None:
    """Print each call of an episode, both answers if they differ, and the changes of the state if there are any."""
    if rows:
        to.print("simulated world compared with the real one:", highlight=False)
    for row in rows:
        fate = compare_call_answers(row)
        lines = [f"{row['step']}. {row['name']} {write_compact_json(row['arguments'])}: {fate}"]
        if fate == "lost":
            lines.append(f"     {row['lost']}")
        for world in ("real", "simulated") if fate == "differs" else ():
            refusal = "refuses: " if row[world]["failed"] else ""
            lines.append(f"     {world:<9} {refusal}{write_compact_json(row[world]['content'])}")
        lines += list_change_lines(row.get("transition", {}))
        if row.get("issue"):
            lines.append(f"     issue     {row['issue']}")
        for line in lines:
            to.print(make_plain_text(f"  {line}"), soft_wrap=True)


def list_change_lines(step: Mapping[str, Any]) -> list[str]:
    """Write the true changes of a call and those that the simulator named: one line if they are equal, none if there are none."""
    real, simulated = step.get("real", []), step.get("simulated", [])
    if real == simulated:
        lines = [f"     changes   {write_compact_json(real)}"] if real else []
    else:
        told = {"expected": real, "named   ": simulated}
        lines = [f"     changes   {which} {write_compact_json(each)}" for which, each in told.items()]
    return [*lines, *([f"     changes   cannot be applied: {step['fault']}"] if "fault" in step else [])]


def print_named_changes(row: Mapping[str, Any], to: Console) -> None:
    """Print the changes that the simulator named in an episode of a simulated world, in the order of its answers; nothing if it named none.
    `row`: the stored trajectory."""
    evidence = row.get("evidence") or {}
    named = evidence.get("simulated") or []
    if not named or "differences" in evidence:
        return
    to.print("changes that the simulator named:", highlight=False)
    for change in named:
        to.print(make_plain_text(f"  {write_compact_json(change)}"), soft_wrap=True)
