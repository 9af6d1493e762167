"""Each file of examples/ is run by a test that CI runs."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUN_BY = {
    "whole_path.py": ("tests/e2e/test_quickstart.py", "examples/whole_path.py"),
    "grpo.py": ("tests/trainers/test_trl_train.py", '"examples" / "grpo.py"'),
    "converters": ("tests/synthesis/test_example_recipe.py", '"examples" / "converters"'),
    "shell": ("tests/importers/test_agentbench.py", '"examples" / "shell"'),
}
"""File or folder of examples/ → the test that runs it, and the words by which the test names it."""


def test_every_example_is_run_by_a_test() -> None:
    examples = {path.name for path in (ROOT / "examples").iterdir() if path.name != "__pycache__"}
    assert examples == RUN_BY.keys()


@pytest.mark.parametrize("example", RUN_BY)
def test_the_test_names_the_example_and_is_not_a_long_one(example: str) -> None:
    test, words = RUN_BY[example]
    text = (ROOT / test).read_text(encoding="utf-8")
    assert words in text
    assert "pytestmark = pytest.mark.all" not in text


def test_the_shells_problems_use_every_file_of_their_folder() -> None:
    problems = (ROOT / "examples" / "shell" / "problems.json").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "examples" / "shell").iterdir()} - {"problems.json", "__pycache__"}
    assert {name for name in scripts if name in problems} == scripts


def test_the_recipe_uses_every_file_of_its_folder() -> None:
    recipe = (ROOT / "examples" / "converters" / "recipe.py").read_text(encoding="utf-8")
    others = {path.name for path in (ROOT / "examples" / "converters").iterdir()} - {"recipe.py", "__pycache__"}
    assert {name for name in others if name in recipe} == others
