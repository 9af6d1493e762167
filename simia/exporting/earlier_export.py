"""What an export does with the files of an earlier one in its folder.

The data file has the same name in most formats. So a folder holds the export of one format: mixed files, such as rows for OpenAI beside
LLaMA-Factory's train.yaml, would be trained on. An edited train.yaml is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from simia.errors import UserError
from simia.exporting.llamafactory_rows import set_recipe_values

FORMAT_LINE = re.compile(r"^\| format \| (\w+), (preference pairs|segment `)", re.MULTILINE)
PAIRS = "preference pairs for {}"
SIMULATOR = "simulator"
RECIPE = "train.yaml"


def name_format(to: str, *, pairs: bool = False) -> str:
    """Name a format as in `find_earlier_format`."""
    return PAIRS.format(to) if pairs else to


def find_earlier_format(folder: Path) -> str | None:
    """Find the format of the export in a folder by its data card; None if there is none."""
    try:
        card = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if (folder / "simulator.yaml").is_file() and (folder / "held_out.jsonl").is_file():
        return SIMULATOR
    found = FORMAT_LINE.search(card)
    return name_format(found[1], pairs=found[2].startswith("pref")) if found else None


def refuse_other_format(folder: Path, to: str, *, pairs: bool = False) -> None:
    """Raise `UserError` for a folder that holds the export of another format."""
    earlier = find_earlier_format(folder)
    if earlier not in (None, name_format(to, pairs=pairs)):
        raise UserError(
            f"--out {folder}: it holds an export of another format ({earlier}); choose another folder, or remove this one first"
        )


def keep_edited_recipe(folder: Path, fresh: str, values: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Return the files to write for train.yaml, and a note if the one in the folder differs from `fresh`.

    An earlier file is kept with `values`, which belong to the new rows. If it has no line for one of them, it becomes train.yaml.1 (or the
    next free number).
    """
    try:
        earlier = (folder / RECIPE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {RECIPE: fresh}, None
    try:
        text = set_recipe_values(earlier, dict(values))
    except UserError:
        number = next(n for n in range(1, 10_000) if not (folder / f"{RECIPE}.{n}").exists())
        note = f"the earlier {RECIPE} has no line for one of {', '.join(values)}: it is now {RECIPE}.{number}"
        return {RECIPE: fresh, f"{RECIPE}.{number}": earlier}, note
    if text == fresh:
        return {RECIPE: fresh}, None
    return {RECIPE: text}, f"the earlier {RECIPE} is kept; only these lines were set: {', '.join(values)}"
