"""simia.cdx.json lists the packages of requirements.lock with versions, hashes, licences and what needs what; no network is used."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import simia
from scripts.bill_of_materials import find_required, read_lock
from scripts.licences import PAGE, ROW
from tests.supply.test_lock import LOCK, NOT_LOCKED, blocks

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BILL: dict[str, Any] = json.loads((ROOT / "simia.cdx.json").read_text())
COMPONENTS: dict[str, dict[str, Any]] = {each["name"]: each for each in BILL["components"]}
NEEDS = {each["ref"]: each.get("dependsOn", []) for each in BILL["dependencies"]}
RUN = "the bill of materials is not that of requirements.lock: run make bill"


def reach(names: list[str]) -> set[str]:
    """The packages that these need, by the bill."""
    found, waiting = set[str](), [COMPONENTS[canonicalize_name(name)]["bom-ref"] for name in names]
    while waiting:
        ref = waiting.pop()
        if ref not in found:
            found.add(ref)
            waiting += NEEDS[ref]
    return found


def test_it_lists_the_locked_packages_with_their_hashes() -> None:
    assert BILL["bomFormat"] == "CycloneDX"
    assert COMPONENTS.keys() == blocks().keys(), RUN
    for name, block in blocks().items():
        component = COMPONENTS[name]
        assert block.startswith(f"{name}=={component['version']}"), RUN
        assert component["purl"] == component["bom-ref"] == f"pkg:pypi/{name}@{component['version']}"
        (files,) = component["externalReferences"]
        assert {f"--hash=sha256:{each['content']}" for each in files["hashes"]} == {
            word for word in block.split() if word.startswith("--hash")
        }, RUN
        markers = [each["value"] for each in component.get("properties", [])]
        assert markers == ([block.partition(" ; ")[2].partition(" \\")[0]] if " ; " in block else []), RUN


def test_it_names_the_version_and_the_licences() -> None:
    root = BILL["metadata"]["component"]
    assert (root["name"], root["version"]) == ("simia", simia.__version__), RUN
    listed = {name: expression for name, expression, _ in ROW.findall(PAGE.read_text())}
    assert {name: each["licenses"][0]["expression"] for name, each in COMPONENTS.items()} == {
        name: listed[name] for name in COMPONENTS
    }, RUN


def test_what_simia_needs_without_extras_is_required_and_the_rest_optional() -> None:
    core = [Requirement(each).name for each in PROJECT["dependencies"]]
    extras = PROJECT["optional-dependencies"]
    direct = [Requirement(each).name for extra in extras.keys() - NOT_LOCKED for each in extras[extra]]
    refs = {COMPONENTS[canonicalize_name(name)]["bom-ref"] for name in [*core, *direct]}
    assert refs == set(NEEDS[BILL["metadata"]["component"]["bom-ref"]]), RUN
    required = {each["bom-ref"] for each in COMPONENTS.values() if each["scope"] == "required"}
    assert required == reach(core)
    assert reach([*core, *direct]) == {each["bom-ref"] for each in COMPONENTS.values()}
    assert COMPONENTS["ray"]["scope"] == "optional"


def test_edges_are_those_of_installed_packages() -> None:
    """A package that is installed here needs, by its own metadata, what the bill says."""
    from importlib.metadata import requires

    for name in ("aiohttp", "jsonschema", "pydantic", "typer"):
        wanted = {
            canonicalize_name(each.name)
            for each in map(Requirement, requires(name) or [])
            if not each.marker or each.marker.evaluate({"extra": ""})
        }
        version = COMPONENTS[name]["version"]
        assert wanted <= {
            ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in NEEDS[f"pkg:pypi/{name}@{version}"]
        }


def test_a_lock_file_is_read_with_markers_and_owners() -> None:
    text = f"""\
a-b==1 ; sys_platform == 'win32' \\
    --hash=sha256:{"0" * 64}
    # via
    #   -c constraints.txt
    #   simia (pyproject.toml)
c==2 \\
    --hash=sha256:{"1" * 64} \\
    --hash=sha256:{"2" * 64}
    # via A_b
d==3 \\
    --hash=sha256:{"3" * 64}
    # via simia (pyproject.toml)
"""
    found = read_lock(text)
    assert (found["a-b"].marker, found["a-b"].needed_by) == ("sys_platform == 'win32'", {"simia"})
    assert (len(found["c"].hashes), found["c"].needed_by, found["c"].marker) == (2, {"a-b"}, None)
    assert find_required(found, ["a-b"]) == {"a-b", "c"}
    with pytest.raises(ValueError, match="c==2: no hash"):
        read_lock("c==2\n    # via d\n")


def test_the_lock_has_what_the_bill_reads() -> None:
    assert read_lock(LOCK).keys() == blocks().keys()
