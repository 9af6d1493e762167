"""`simia pack vary`: other names, identifiers and prices, the same everywhere in a pack, and tasks that still hold."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.authoring.scaffold import TASKS as ROWS
from simia.authoring.varied_pack import VariedPackReport, vary_pack
from simia.authoring.varied_prices import (
    choose_factor,
    derive_amount,
    iterate_columns,
    list_amounts,
    replace_amounts,
    replace_literals,
    scale_amounts,
)
from simia.authoring.varied_values import (
    ValueMapping,
    collect_identifiers,
    collect_people,
    map_identifiers,
    map_people,
    replace_values,
)
from simia.cli.pack_vary import describe_columns
from simia.pack import Pack
from tests.command import run_simia
from tests.packs.small import small

SHOP = Pack.load("customer_service")
TASKS = ["cs-001", "cs-002", "cs-003", "cs-010", "cs-013", "cs-020", "cs-030"]
STATE = {
    "orders": {"ORD-20417": {"customer_id": "CUS-11", "lines": {"ITM-5101": {"price": 3.5}}}, "ORD-20318": {}},
    "customers": {"CUS-11": {"name": "Zoë de Wit", "email": "zoe.dewit@example.com"}},
}


def copy_shop(folder: Path, tasks: list[str] = TASKS) -> Pack:
    """The shop with some of its tasks."""
    assert SHOP.root is not None
    shutil.copytree(SHOP.root, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, key in (("tasks", "id"), ("references", "task_id"), ("seeds", "task_id")):
        path = folder / f"{name}.jsonl"
        kept = [line for line in path.read_bytes().splitlines() if orjson.loads(line).get(key) in tasks]
        path.write_bytes(b"".join(line + b"\n" for line in kept))
    tests = (folder / "tests.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "tests.jsonl").write_bytes(b"".join(tests[:4]))
    return Pack.load(folder)


def vary(pack: Pack, out: Path, **options: Any) -> VariedPackReport:
    return asyncio.run(vary_pack(pack, out, **options))


def test_identifiers_keep_form_and_order_and_hit_none_that_is_taken() -> None:
    assert collect_identifiers(STATE) == {"ORD-20417", "ORD-20318", "CUS-11", "ITM-5101"}
    old = [f"ORD-{n:05d}" for n in range(20000, 20400, 7)]
    taken = {f"ORD-{n:05d}" for n in range(10000, 100000, 2)}
    new = map_identifiers(old, taken - {"ORD-99999"}, random.Random(1)) or map_identifiers(old, set(), random.Random(1))
    assert [new[each] for each in old] == sorted(new.values())
    assert len(set(new.values())) == len(old)
    assert all(re.fullmatch(r"ORD-\d{5}", each) for each in new.values())
    few = map_identifiers(["R-10", "R-11"], {f"R-{n}" for n in range(10, 100)} - {"R-55", "R-77"}, random.Random(0))
    assert few in ({}, {"R-10": "R-55", "R-11": "R-77"})
    assert map_identifiers([f"R-{n}" for n in range(10, 90)], set(), random.Random(0)) == {}


def test_people_get_other_names_in_their_mail_addresses_too() -> None:
    names, mails = collect_people(STATE)
    assert (names, mails) == ({"Zoë de Wit"}, {"zoe.dewit@example.com"})
    found = map_people(
        ["Anna Kelly", "Will Kelly"], ["anna.kelly@example.com", "team@example.com"], {"will"}, random.Random(3)
    )
    assert found.values.keys() == {"Anna", "Kelly", "anna.kelly@example.com"}
    assert (
        found.values["anna.kelly@example.com"]
        == f"{found.values['Anna']}.{found.values['Kelly']}@example.com".casefold()
    )
    assert found.kept.keys() == {"Will", "team@example.com"}
    joined = map_people(names, mails, set(), random.Random(3)).values
    assert joined["zoe.dewit@example.com"] == f"{joined['Zoë']}.{joined['Wit']}@example.com".casefold()


def test_umlauts_are_written_in_two_ways_in_mail_addresses() -> None:
    mails = ["joerdis.assmann@x.example", "jordis_assmann@x.example", "m.mueller@x.example", "mueller@x.example"]
    found = map_people(["Jördis Aßmann", "Mia Müller"], mails, set(), random.Random(2)).values
    first, last = found["Jördis"].casefold(), found["Aßmann"].casefold()
    assert found["joerdis.assmann@x.example"] == f"{first}.{last}@x.example"
    assert found["jordis_assmann@x.example"] == f"{first}_{last}@x.example"
    assert found["m.mueller@x.example"] == f"{found['Mia'][0]}.{found['Müller']}@x.example".casefold()
    assert found["mueller@x.example"] == f"{found['Müller']}@x.example".casefold()


def test_people_are_known_by_their_table_too_and_initials_follow() -> None:
    state = {
        "staff": {"S-1": {"name": "Mirela Popa", "room": {"name": "North Wing"}}},
        "shelves": [{"name": "Upper Left"}],
    }
    assert collect_people(state) == ({"Mirela Popa"}, set())
    assert collect_people({"members": [{"name": "Ada Brandt"}]}) == ({"Ada Brandt"}, set())
    found = map_people(
        ["Henrike Vossberg"], ["h.vossberg@x.example", "k.vossberg@x.example"], set(), random.Random(0)
    ).values
    first, last = found["Henrike"].casefold(), found["Vossberg"].casefold()
    assert found["h.vossberg@x.example"] == f"{first[0]}.{last}@x.example"
    assert found["k.vossberg@x.example"] == f"k.{last}@x.example", "another person of that name"


def test_values_are_replaced_as_whole_words() -> None:
    mapping = ValueMapping({"Anna": "Berta", "ORD-1234": "ORD-7777", "anna@x.com": "berta@x.com"})
    text = "Anna's order ORD-1234, not ORD-12345 of Annabel; mail Anna@X.com."
    changed = replace_values({"ORD-1234": [text]}, mapping.compile(), mapping.values)
    assert changed == {"ORD-7777": ["Berta's order ORD-7777, not ORD-12345 of Annabel; mail berta@x.com."]}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("It is €39.85 now.", "It is €47.82 now."),
        ("It is 39,85 EUR.", "It is 47,82 EUR."),
        (r"(^|[^0-9])39\.85", r"(^|[^0-9])47\.82"),
        ("39[.,]85", "47[.,]82"),
        ("€75 or 75 euros", "€90 or 90 euros"),
        ("75 days, 39 pieces, room 75", "75 days, 39 pieces, room 75"),
        ("75", "90"),
        ("49.9", "59.88"),
        ("€12,5 and 12.5 euros", "€15,0 and 15.0 euros"),
        ("12.5 km on 12.5.2025, 49.9 %", "12.5 km on 12.5.2025, 49.9 %"),
        ("on 9 April 2025 (€75)", "on 9 April 2025 (€90)"),
        ("$1,200.50", "$2401.00"),
    ],
)
def test_amounts_are_told_from_other_numbers(text: str, changed: str) -> None:
    pairs = {39.85: 47.82, 75.0: 90.0, 1200.5: 2401.0, 2025.0: 1.0, 49.9: 59.88, 12.5: 15.0}
    assert replace_amounts(text, pairs, {75.0, 49.9}) == changed


def test_amounts_in_the_code_of_checks() -> None:
    code = "def check(final, initial): return final['a']['fee'] == 11900 and x == 12 and y == 4.5"
    assert replace_literals(code, {11900.0: 14280.0, 12.0: 14.0, 4.5: 5.4}) == code.replace("11900", "14280").replace(
        "4.5", "5.4"
    )


def test_amounts_of_a_state_keep_whole_cents_and_those_of_the_code() -> None:
    rng = random.Random(0)
    assert choose_factor([3.95, 4.5], rng) in (0.8, 1.2, 1.4, 1.6)
    assert choose_factor([3.99], rng) in (2, 3)
    assert choose_factor([0, 0.0], rng) is None
    row = {"price": 3.95, "fee": 4.5, "stock": 3, "rate_cents": 8500, "done": True, "lines": [{"price": 10}]}
    scaled = scale_amounts(row, 1.2, {4.5})
    assert scaled == {
        "price": 4.74,
        "fee": 4.5,
        "stock": 3,
        "rate_cents": 10200,
        "done": True,
        "lines": [{"price": 12}],
    }
    assert isinstance(scaled["rate_cents"], int)


def test_columns_with_and_without_amounts_are_named() -> None:
    state = {"jobs": {"J-1": {"labour": 25.0, "lines": [{"price": 3.5, "done": True}]}}, "stock": {"P-1": 3}}
    assert set(iterate_columns(state)) == {("labour", False), ("price", True), ("stock", False)}
    report = VariedPackReport(1, scaled=["price"], unscaled=["labour", "stock"])
    words = "columns with prices: price; other columns with numbers, left as they are: labour, stock"
    assert describe_columns(report) == words
    assert describe_columns(VariedPackReport(1)) == ""


def test_a_sum_follows_from_its_terms_or_is_unknown() -> None:
    pairs = {10.0: 12.0, 5.5: 6.6, 4.5: 4.5}
    assert derive_amount(15.5, pairs) == 18.6
    assert derive_amount(5.5 - 4.5, pairs) == pytest.approx(2.1)
    assert derive_amount(7.77, pairs) is None
    assert derive_amount(20.0, {10.0: 12.0, 4.0: 5.0, 16.0: 20.0}) is None, "10 + 10 and 4 + 16 give different sums"
    assert list_amounts("€5, 7.50 and 9 days") == {5.0, 7.5}


def read_all(folder: Path, *, code: bool = False) -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(folder.iterdir())
        if path.is_file() and code is (path.suffix == ".py")
    }


def test_a_varied_pack_holds_and_nothing_of_the_old_values_is_left(tmp_path: Path) -> None:
    pack = copy_shop(tmp_path / "shop")
    report = vary(pack, tmp_path / "new", seed=1)
    assert report.factor is not None
    assert report.replaced["ids"] > 300
    assert report.replaced["names"] > 80
    assert set(report.left_out) < set(TASKS)
    assert len(report.left_out) <= 2
    assert report.gate is not None
    assert report.gate.passed
    assert set(report.gate.floors.items()) >= {("nothing", 0.0), ("canned", 0.0), ("echo", 0.0)}
    new = Pack.load(tmp_path / "new")
    assert [task.id for task in new.tasks] == [each for each in TASKS if each not in report.left_out]
    assert {task.id for task in new.tasks} == new.references.keys()
    old_state, state = (
        orjson.loads((folder / "state.json").read_bytes()) for folder in (tmp_path / "shop", tmp_path / "new")
    )
    identifiers, (names, mails) = collect_identifiers(old_state), collect_people(old_state)
    written = "\n".join(read_all(tmp_path / "new").values())
    words = set(re.findall(r"[\w-]+", written))
    assert not (identifiers - report.kept.keys()) & words
    assert not [each for each in names | mails if each in written and each not in report.kept]
    one, two = (next(iter(each["orders"].values())) for each in (old_state, state))
    assert one["items"].keys() != two["items"].keys()
    assert one.keys() == two.keys()
    assert read_all(tmp_path / "new", code=True) == read_all(tmp_path / "shop", code=True)
    task = new.task("cs-002")
    credit = next(row["store_credit"] for row in state["customers"].values() if row["email"] in task.instruction)
    assert f"€{credit:.2f}" in str(task.script)
    assert task.reward.parts[1].model_dump()["expect"] == [f"{credit:.2f}"]


def test_the_same_seed_gives_the_same_pack_and_what_is_to_stay_stays(tmp_path: Path) -> None:
    pack = copy_shop(tmp_path / "shop", ["cs-001"])
    for name in "ab":
        vary(pack, tmp_path / name / "new", seed=1)
    first, second = (read_all(tmp_path / name / "new") for name in "ab")
    assert first == second
    others = {"Tern": "Heron", "Pebbleford": "Hillwick"}
    report = vary(pack, tmp_path / "ids", seed=2, keep=["names", "prices"], replace=others)
    assert report.replaced.keys() == {"ids", "texts"}
    assert report.factor is None
    text = (tmp_path / "ids" / "tasks.jsonl").read_text(encoding="utf-8")
    assert "declan.obrien@example.com" in text
    assert "Heron teapot" in text
    new = re.findall(r"ORD-\d{5}", text)
    assert "ORD-20417" not in new
    assert new[0] not in first["tasks.jsonl"], "another seed gives other values"
    assert report.kept["Pebbleford"] == "the pack's code names it"


def test_values_that_the_code_names_are_left_alone(tmp_path: Path) -> None:
    pack = small(tmp_path / "todos", tasks_jsonl=[{**row, "measured": {"me": {"n": 4, "solved": 1}}} for row in ROWS])
    code = (tmp_path / "todos" / "tools.py").read_text(encoding="utf-8")
    (tmp_path / "todos" / "tools.py").write_text(
        f"FIRST = 'T-1001'\n{code}".replace('"""A list', "# A list", 1).replace('`ToolError`s."""', ""),
        encoding="utf-8",
    )
    report = vary(pack, tmp_path / "new")
    assert report.kept == {"T-1001": "the pack's code names it"}
    assert report.replaced["ids"] == 1
    assert [task.measured for task in Pack.load(tmp_path / "new").tasks] == [{}, {}], "nobody measured them"
    written = (tmp_path / "new" / "state.json").read_text(encoding="utf-8")
    assert "T-1001" in written
    assert "T-1002" not in written


def test_the_command_says_what_was_done_and_what_is_wrong(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    done = run_simia("pack", "vary", "todos", "--out", "new", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "replaced: 2 ids, 0 names; prices as they were" in done.stdout
    assert "2 of 2 tasks passed the gate; doing nothing earns 0.000" in done.stdout
    for words, why in (
        (["--out", "new"], "exists and is not empty"),
        (["--out", "x", "--keep", "dates"], "--keep dates: expected one of names, ids, prices"),
        (["--out", "x", "--replace", "shop"], "write it as OLD=NEW"),
        (["--out", "x", "--keep", "ids"], "has no values to replace: no people"),
        (["--out", "x", "--keep", "ids", "--keep", "names", "--keep", "prices"], "all kinds are kept"),
        (["--out", "todos/x"], "is inside the pack"),
    ):
        failed = run_simia("pack", "vary", "todos", *words, cwd=tmp_path)
        assert failed.returncode != 0
        assert why in failed.stderr
    none = run_simia("pack", "vary", "todos", "--out", "other pack", "--replace", "nothing here=xx", cwd=tmp_path)
    assert none.stdout.splitlines()[-1].endswith("next: simia pack validate 'other pack'")
    assert "left alone, since no text of the pack has it: nothing here" in none.stdout + none.stderr
    failed = run_simia("pack", "vary", "office", "--out", "x", cwd=tmp_path)
    assert "keeps its state in files" in failed.stderr
