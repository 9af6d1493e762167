"""The amplification experiment of eval/loop: its tasks, its rows and its figures, without training."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import NormalDist, stdev
from typing import Any

import pytest

from simia.errors import UserError
from simia.pack import Pack
from simia.statistics import compute_wilson_interval
from simia.trajectory import Message, ToolCall, Trajectory

sys.path.append(str(Path(__file__).parents[2] / "eval" / "loop"))
import amplification
import amplification_data
import amplification_failures
import amplification_figures
import amplification_report
import amplification_tasks
import figures
import tasks

LOOP = Path(__file__).parents[2] / "eval" / "loop"
KINDS = {"move": 60, "hold": 60, "return": 60, "long": 30, "hold_number": 30, "return_number": 30, "both": 30}
SEEDS = list(Pack.load(LOOP / "pack").seeds)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lockers") / "pack"
    amplification_tasks.write_pack(out, set())
    return out


def read_tasks(pack: Path, split: str) -> list[dict[str, Any]]:
    rows = map(json.loads, (pack / "tasks.jsonl").read_text().splitlines())
    return [row for row in rows if row["split"] == split]


def make_row(*names: str) -> Trajectory:
    calls = [ToolCall(id=f"call_{n}", name=name, arguments={}) for n, name in enumerate(names)]
    return Trajectory(messages=[Message(role="user", content="Hi"), Message(role="assistant", calls=calls)])


def test_tasks_of_earlier_experiments_have_the_same_bytes() -> None:
    made = tasks.tasks({"dev": 40, "train": 160, "test": 100}, {"Ada Abbott", "A123"})
    text = "\n".join(json.dumps(row) for row in made)
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "6807015d0aa89e6203f279ecb21146489b8439842429c89a9627818bca8bab73"
    )


def test_each_wording_has_two_test_tasks_with_other_values(pack: Path) -> None:
    made = read_tasks(pack, "test")
    wordings = {wording.id: wording for wording in amplification_tasks.load_wordings()}
    assert Counter(row["tags"][0] for row in made) == KINDS
    assert set(Counter(row["tags"][1] for row in made).values()) == {2}
    assert len({row["instruction"] for row in made}) == 300
    for row in made:
        kind, wording = row["tags"]
        words = wordings[wording].text.replace("{", "\0{").replace("}", "}\0").split("\0")
        assert wordings[wording].kind == kind
        assert all(part in row["instruction"] for part in words if not part.startswith("{")), "worded as it was written"


def test_splits_share_no_value_or_request(pack: Path) -> None:
    held = {split: read_tasks(pack, split) for split in ("test", "dev", "train")}
    assert [len(rows) for rows in held.values()] == [300, 40, 160]
    found = amplification_tasks.check_apart(held, {"seeds": SEEDS})
    assert set(found) >= {"test and dev", "test and train", "test and seeds", "dev and seeds"}
    for left, right in (("test", "dev"), ("test", "train"), ("dev", "train")):  # without the functions of the check
        values = [
            {value for row in held[split] for value in (*row["initial"]["patch"]["parcels"], *row["initial"]["patch"]["lockers"])}
            for split in (left, right)
        ]  # fmt: skip
        assert not values[0] & values[1]


def test_rows_that_share_a_parcel_with_a_test_task_stop_the_run(pack: Path) -> None:
    held = {"test": read_tasks(pack, "test"), "dev": read_tasks(pack, "dev")}
    parcel = next(iter(held["test"][7]["initial"]["patch"]["parcels"]))
    row = Trajectory(messages=[Message(role="user", content=f"Where is {parcel}?")])
    with pytest.raises(UserError, match=f"test and amplified share.*{parcel}"):
        amplification_tasks.check_apart(held, {"amplified": [row]})


def test_a_row_with_the_request_of_a_dev_task_stops_the_run(pack: Path) -> None:
    held = {"dev": [{**read_tasks(pack, "dev")[0], "instruction": "Move it."}]}
    with pytest.raises(UserError, match="dev and real share"):
        amplification_tasks.check_apart(
            held, {"real": [Trajectory(messages=[Message(role="user", content="Move it.")])]}
        )


def test_a_second_try_has_other_values_in_the_same_wordings() -> None:
    wordings = amplification_tasks.load_wordings()
    first, second = (amplification_tasks.make_test_tasks(wordings, set(), attempt) for attempt in (1, 2))
    assert [row["tags"] for row in first] == [row["tags"] for row in second]
    assert not {row["instruction"] for row in first} & {row["instruction"] for row in second}


def test_copies_have_the_calls_of_the_rows_and_other_values() -> None:
    rows = SEEDS * 7
    taken = set[str]().union(*(tasks.entities(amplification_tasks.render_row(seed)) for seed in SEEDS))
    copies = amplification_data.make_swapped(rows, SEEDS, taken)
    assert [amplification_data.list_calls(copy) for copy in copies] == [
        amplification_data.list_calls(row) for row in rows
    ]
    assert len({copy.id for copy in copies}) == 70
    used = [tasks.entities(amplification_tasks.render_row(copy)) for copy in copies]
    assert not set[str]().union(*used) & taken
    parcels = [{value for value in values if tasks.NUMBER.fullmatch(value)} for values in used]
    assert sum(map(len, parcels)) == len(set[str]().union(*parcels)) == 70, "each copy has a parcel of its own"
    days = [
        call.arguments["days"]
        for copy in copies
        for _, _, call in copy.calls()
        if call.arguments and "days" in call.arguments
    ]
    assert set(days) == set(range(1, 8))


def test_copies_are_consistent_in_request_call_result_and_answer() -> None:
    for copy in amplification_data.make_swapped(SEEDS * 7, SEEDS, ()):
        request = copy.messages[0].text
        answer = copy.messages[-1].text
        calls = {call.name: call.arguments or {} for _, _, call in copy.calls()}
        if "find_parcel" in calls:
            assert calls["find_parcel"]["name"] in request
            found = json.loads(next(m.text for m in copy.messages if m.name == "find_parcel"))
            assert all(a["parcel"] == found["parcel"] for name, a in calls.items() if "parcel" in a)
            if "free_locker" in calls:
                assert calls["free_locker"]["size"] == found["size"]
        if hold := calls.get("hold_parcel"):
            asked = amplification_data.parse_days(next(amplification_data.DAYS.finditer(request)))  # type: ignore[arg-type]
            assert hold["days"] == min(asked, 7)
            assert f"{tasks.plural(hold['days'])}" in answer
            if asked > 7:
                assert "the longest we can" in answer


def test_equal_input_gives_equal_copies() -> None:
    one, other = (amplification_data.make_swapped(SEEDS, SEEDS, ()) for _ in range(2))
    assert [copy.id for copy in one] == [copy.id for copy in other]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (("find_parcel", "hold_parcel"), {"hold", "long"}),
        (("find_parcel", "hold_parcel", "return_parcel"), {"both"}),
        (("find_parcel",), {"move", "hold", "long", "return", "hold_number", "return_number"}),
    ],
)
def test_a_copy_is_of_a_seed_with_the_same_calls_or_as_many_goals(calls: tuple[str, ...], expected: set[str]) -> None:
    found = amplification_data.match_seeds(make_row(*calls), SEEDS)
    assert {seed.extra["tags"][0] for seed in found} == expected


def test_failures_are_counted_by_what_was_changed(pack: Path) -> None:
    task = next(row for row in read_tasks(pack, "test") if row["tags"][0] == "both")
    solution = [step["calls"][0] for step in task["script"] if "calls" in step]
    right = {call["name"]: call["arguments"] for call in solution}
    move, hold = (["move_parcel", right["move_parcel"]], ["hold_parcel", right["hold_parcel"]])
    days = right["hold_parcel"]["days"] % 7 + 1
    cases = {
        "nothing done": [["find_parcel", right["find_parcel"]]],
        "one of two requests done": [move],
        "another tool than asked": [move, hold, ["return_parcel", {"parcel": right["hold_parcel"]["parcel"]}]],
        "another parcel than found": [move, ["hold_parcel", {**hold[1], "parcel": "A100"}]],
        "wrong number of days": [move, ["hold_parcel", {**hold[1], "days": days}]],
        "other": [["move_parcel", {**move[1], "locker": "10A"}], hold],
    }
    assert set(cases) == set(amplification_failures.FAILURES)
    assert {name: amplification_failures.classify_failure(task, calls) for name, calls in cases.items()} == {
        n: n for n in cases
    }
    assert amplification_failures.classify_failure(task, [["hold_parcel", None]]) == "one of two requests done"


def store(folder: Path, arm: str, seed: int, solved: int) -> None:
    """Results of 40 tasks in 20 wordings, of which the first are solved."""
    told = {
        f"test-{n:03d}": {
            "reward": int(n < solved), "kind": "move" if n < 20 else "hold", "wording": f"w-{n // 2}",
            **({} if n < solved else {"failure": "nothing done"}),
        }
        for n in range(40)
    }  # fmt: skip
    row = {"arm": arm, "seed": seed, "rate": 0.0005, "rows": 80, "attempt": 1, "tasks": told}
    (folder / f"{arm}-{seed}.json").write_text(json.dumps(row))


def test_the_report_is_that_of_the_stored_results(tmp_path: Path) -> None:
    for seed in range(6):
        store(tmp_path, "swapped", seed, 20)
        store(tmp_path, "amplified", seed, 30 + 4 * (seed % 2))
    (tmp_path / "dev-amplified-0.0005.json").write_text("{}")
    said = subprocess.run(
        [sys.executable, LOOP / "amplification_report.py", tmp_path], capture_output=True, text=True, check=True
    ).stdout
    assert "| swapped | 80 | 5e-4 | 50.0, 50.0, 50.0, 50.0, 50.0, 50.0 | 50.0 [" in said
    assert "| amplified | 80 | 5e-4 | 75.0, 85.0, 75.0, 85.0, 75.0, 85.0 | 80.0 [" in said
    assert "| amplified over swapped (primary) | +30.0 [+" in said
    assert "| swapped | 0.00 | 1.00 |" in said
    assert "| amplified | 192 | 0 | 0 | 0 | 0 | 48 | 0 |" in said
    told = json.loads((tmp_path / "results.json").read_text())["comparisons"]["amplified - swapped"]
    assert 0 < told["low"] < 0.3 < told["high"] < 0.6
    assert "amplified over swapped +30.0 [" in (tmp_path / "results.svg").read_text()
    for path in (*tmp_path.glob("swapped-*.json"), *tmp_path.glob("amplified-*.json")):
        path.write_text(path.read_text().replace('"attempt": 1', '"attempt": 2'))
    said = subprocess.run(
        [sys.executable, LOOP / "amplification_report.py", tmp_path], capture_output=True, text=True, check=True
    ).stdout
    assert "(primary, interval of 97.5 %)" in said, "the files name the try"
    wider = json.loads((tmp_path / "results.json").read_text())["comparisons"]["amplified - swapped"]
    assert wider["high"] - wider["low"] > told["high"] - told["low"]


def test_results_are_not_read_before_the_primary_arms_are_complete(tmp_path: Path) -> None:
    for seed in range(2):
        store(tmp_path, "swapped", seed, 20)
    store(tmp_path, "amplified", 0, 30)
    with pytest.raises(UserError, match="amplified is tested with 1 of 2 training seeds"):
        amplification_report.report(tmp_path, 2)
    assert not (tmp_path / "results.json").exists()
    store(tmp_path, "amplified", 1, 30)
    amplification_report.check_complete(amplification_report.load_results(tmp_path), 2)
    with pytest.raises(UserError, match="swapped is tested with 2 of 6 training seeds"):
        amplification_report.report(tmp_path)


def test_results_of_both_tries_are_not_joined(tmp_path: Path) -> None:
    store(tmp_path, "swapped", 0, 20)
    store(tmp_path, "amplified", 0, 20)
    path = tmp_path / "amplified-0.json"
    path.write_text(path.read_text().replace('"attempt": 1', '"attempt": 2'))
    with pytest.raises(UserError, match="different test tasks"):
        amplification_report.load_results(tmp_path)


@pytest.mark.parametrize(("name", "level"), [("amplification", ""), ("amplification-2", "97.5 % interval ")])
def test_published_results_are_those_of_the_stored_outcomes(name: str, level: str, tmp_path: Path) -> None:
    """Data, tables and figure are made again; the pages have each row and the primary difference."""
    published, pages = LOOP / name, LOOP.parents[1]
    page, loop, readme = (
        (pages / path).read_text() for path in ("docs/experiments/amplification.md", "docs/loop.md", "README.md")
    )
    for path in published.glob("*-?.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = amplification_report.report(tmp_path)
    for made in ("results.json", "results.md", "results.svg"):
        assert (tmp_path / made).read_bytes() == (published / made).read_bytes(), made
    arms = ("seeds", "swapped", "amplified", "real", "amplified, local", "growth")
    rows = [line for line in text.splitlines() if line.startswith(tuple(f"| {arm} |" for arm in arms))]
    assert len(rows) == 3 * (2 if level else 6)
    assert [row for row in rows if row not in page.splitlines()] == []
    told = json.loads((published / "results.json").read_text())
    for pair in () if level else ("local - real", "local - swapped", "real - swapped"):
        one, other = (amplification_report.ARMS[arm] for arm in pair.split(" - "))
        difference = figures.shown(told["comparisons"][pair], signed=True).replace("-", "−")
        assert f"| {one} over {other} | {difference} |" in page
    primary, without = (
        figures.shown(row, signed=True).replace("-", "−")
        for row in (told["comparisons"]["amplified - swapped"], told["without_both"])
    )
    mean, _, ends = primary.partition(" ")
    assert f"amplified over swapped is {mean} points{',' if level else ''} {level}{ends}" in page
    assert f"{without.replace(' [', ' points [')}" in page
    assert (f"{mean}, {level}{ends}" if level else f"{mean} points, 95 % interval {ends}") in loop
    scores = " and ".join(f"{100 * told['arms'][arm]['mean']:.1f}" for arm in ("amplified", "swapped"))
    assert f"| {scores} | {mean}{',' if level else ''} {level}{ends}: no difference found |" in readme


def test_the_rates_are_those_that_the_dev_tasks_chose() -> None:
    page = (LOOP.parents[1] / "docs" / "experiments" / "amplification.md").read_text()
    for arm, name in (
        ("local", "amplified, local"),
        *((name, name) for name in ("swapped", "amplified", "seeds", "real")),
    ):
        solved = [
            sum(
                row["reward"]
                for row in json.loads((LOOP / "amplification" / f"dev-{arm}-{rate}.json").read_text())["tasks"].values()
            )
            for rate in ("0.0005", "0.0002")
        ]
        assert f"| {name} | {solved[0]} | {solved[1]} |" in page


def test_results_of_other_test_tasks_are_not_joined(tmp_path: Path, pack: Path) -> None:
    rows = read_tasks(pack, "test")
    digest = amplification.digest_tasks(rows)
    assert digest == amplification.digest_tasks(json.loads(json.dumps(rows)))
    assert digest != amplification.digest_tasks([{**rows[0], "instruction": "Move it."}, *rows[1:]])
    for seed, test in enumerate((digest, "another")):
        store(tmp_path, "swapped", seed, 20)
        path = tmp_path / f"swapped-{seed}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"test": test}))
    with pytest.raises(UserError, match="of different test tasks"):
        amplification_report.load_results(tmp_path)


def test_a_report_without_results_says_what_to_run(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, LOOP / "amplification_report.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"amplification: {tmp_path}: no results; run")


def test_results_of_different_test_tasks_are_refused(tmp_path: Path) -> None:
    store(tmp_path, "swapped", 0, 20)
    store(tmp_path, "amplified", 0, 20)
    told = json.loads((tmp_path / "amplified-0.json").read_text())
    told["tasks"].popitem()
    (tmp_path / "amplified-0.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="different test tasks"):
        amplification_report.load_results(tmp_path)


def test_the_detectable_effect_is_that_of_the_plan() -> None:
    page = (LOOP.parents[1] / "docs" / "experiments" / "amplification.md").read_text()
    found = {c: amplification_figures.Power(correlation=c).compute_detectable_effect() for c in (0.0, 0.3, 1.0)}
    assert f"**Detectable effect: {found[0.3]:.1f} points**" in page
    assert f"With a correlation of 0 it is {found[0.0]:.1f}, with 1 it is {found[1.0]:.1f};" in page
    assert f"it is {amplification_figures.Power(seed_sd=4.5).compute_detectable_effect():.1f}." in page


def test_the_detectable_effect_of_the_second_try_follows_from_the_first() -> None:
    page = " ".join((LOOP.parents[1] / "docs" / "experiments" / "amplification.md").read_text().split())
    found = amplification_report.load_results(LOOP / "amplification")
    wordings = {task: row["wording"] for task, row in found["swapped"][0]["tasks"].items()}
    rewards = {arm: amplification_report.read_rewards(found[arm]) for arm in ("amplified", "swapped")}
    normal, effects = NormalDist(), []
    for level in (0.95, 0.975):
        row = amplification_figures.compare_arms(rewards["amplified"], rewards["swapped"], wordings, level)
        width, edge = 50 * (row["high"] - row["low"]), normal.inv_cdf((1 + level) / 2)
        effects.append((edge + normal.inv_cdf(0.8)) * width / edge)
        assert f"half width of {width:.2f}" in page
        assert f"({edge:.3f} + 0.842) × {width / edge:.2f} = {effects[-1]:.1f}" in page
    assert f"**Detectable effect: {effects[0]:.1f} points with an interval of 95 %, {effects[1]:.1f} with" in page
    spread = [stdev(100 * sum(row.values()) / len(row) for row in arm.values()) for arm in rewards.values()]
    assert [round(sd, 1) for sd in spread] == [4.5, 8.0]
    power = amplification_figures.Power(seed_sd=math.sqrt(sum(sd**2 for sd in spread) / 2))
    both = [power.compute_detectable_effect(), power.compute_detectable_effect(0.025)]
    assert f"these two standard deviations gives {both[0]:.1f} and {both[1]:.1f}" in page


def test_tasks_of_one_wording_widen_the_interval() -> None:
    """40 tasks, a difference on every second one: twenty independent pairs are more certain than five groups of eight."""
    names = [f"t{n:02d}" for n in range(40)]
    base = {0: dict.fromkeys(names, 0.0)}
    better = {0: {name: float(n % 8 < 4) for n, name in enumerate(names)}}
    alone = amplification_figures.compare_arms(better, base, {name: name for name in names})
    grouped = amplification_figures.compare_arms(better, base, {name: f"w{n % 8}" for n, name in enumerate(names)})
    assert alone["mean"] == grouped["mean"] == 0.5
    assert (alone["wordings"], grouped["wordings"]) == (40, 8)
    assert grouped["high"] - grouped["low"] > 1.5 * (alone["high"] - alone["low"])


def test_training_seeds_that_differ_widen_the_interval() -> None:
    names = [f"t{n:02d}" for n in range(40)]
    words = {name: name for name in names}
    base = {seed: {name: float(n % 2) for n, name in enumerate(names)} for seed in range(4)}
    same = {seed: dict.fromkeys(names, 1.0) for seed in range(4)}
    apart = {seed: dict.fromkeys(names, float(seed < 2)) for seed in range(4)}
    even, uneven = (amplification_figures.compare_arms(arm, base, words) for arm in (same, apart))
    assert uneven["high"] - uneven["low"] > 2 * (even["high"] - even["low"])


def test_the_rollouts_of_the_local_model_are_those_of_the_page() -> None:
    found = amplification.read_result(LOOP / "amplification" / "rollouts.json")
    rows = amplification_data.load_rollouts(LOOP / "amplification" / "real.jsonl", 70)
    solved = {name: row["kind"] for name, row in found["tasks"].items() if row["reward"]}
    assert (len(found["tasks"]), len(solved), len(rows)) == (160, 31, 24)
    assert {row.task_id for row in rows} < solved.keys()
    assert Counter(solved.values()) == {"return_number": 16, "hold_number": 14, "move": 1}
    assert Counter(row.get("failure") for row in found["tasks"].values())["another parcel than found"] == 81
    page = (LOOP.parents[1] / "docs" / "experiments" / "amplification.md").read_text(encoding="utf-8")
    for said in (
        "31 of 160",
        "*real* has 24 rows, all of the two kinds that one call solves",
        "16 of 16 of\n`return_number`, 14 of 16 of `hold_number`, 1 of 32 of `move`",
        "In 81 episodes",
    ):
        assert said in page


def test_the_local_models_trajectories_are_those_of_the_page() -> None:
    found = amplification.read_result(LOOP / "amplification" / "local_replies.json")["items"]
    reasons = Counter(row.get("reason", row["status"]) for row in found.values())
    rows = amplification_data.load_amplified(LOOP / "amplification" / "local.jsonl", None)
    assert (len(found), len(rows), reasons["passed"]) == (98, 33, 33)
    looked_up = [
        "find_parcel" in amplification_data.list_calls(row) for row in rows[:24]
    ]  # row 25 is the first that is left out
    assert (sum(looked_up), Counter(map(amplification_data.count_goals, rows[:24]))) == (22, {1: 20, 2: 4})
    page = (LOOP.parents[1] / "docs" / "experiments" / "amplification.md").read_text(encoding="utf-8")
    low, high = compute_wilson_interval(33, 98)
    for said in (
        f"33 of 98 replies are accepted, {33 / 98:.2f} [{low:.2f}, {high:.2f}]. Of the 65 rejected ones {reasons['goal_missed']} miss a planned goal",
        f"{reasons['unpaired_call']} have a call without a result, {reasons['bad_ending']} end with a tool\nresult",
        f"{reasons['role_order']} have messages in a wrong order and {reasons['unpaired_result']} a result without a call",
    ):
        assert said in page, said
