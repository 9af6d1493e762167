"""The public names of simia: there, typed, documented, and imported when they are first used."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import simia

ROOT = Path(__file__).parent.parent


def typed_names() -> dict[str, str]:
    """What a type checker sees: public name → its module."""
    tree = ast.parse(Path(simia.__file__).read_text(encoding="utf-8"))
    return {
        str(alias.asname): str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


def test_a_type_checker_sees_the_names_that_there_are() -> None:
    assert typed_names() == simia.MODULES | {"__version__": "simia.version"}
    assert set(simia.__all__) == set(typed_names()) <= set(dir(simia))
    assert 15 <= len(simia.__all__) <= 25


@pytest.mark.parametrize("name", simia.MODULES)
def test_every_name_is_documented(name: str) -> None:
    value = getattr(simia, name)
    assert value.__name__ == name
    assert (inspect.getdoc(value) or "").splitlines()[0].endswith((".", "?"))


def test_amplify_and_open_environment_are_coroutine_functions() -> None:
    assert asyncio.iscoroutinefunction(simia.amplify)
    assert asyncio.iscoroutinefunction(simia.open_environment)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'simia' has no attribute 'amplfy'"):
        simia.amplfy  # type: ignore[attr-defined]  # noqa: B018


def test_importing_simia_imports_nothing_heavy() -> None:
    code = "import sys, simia; print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'simia'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["simia", "simia.version"]


def test_the_version_is_that_of_the_package() -> None:
    assert f'\nversion = "{simia.__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    sections = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert sections[0][0] == simia.__version__
    released = next(section for section in sections if section[1] != "unreleased")
    assert (cited["version"], str(cited["date-released"])) == released
