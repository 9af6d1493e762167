"""Environments as one: names, references, code and tests, which run in the composition."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from simia.authoring.tool_tests import run_tests
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.conversations.environment_composition import choose_names, compose_environments
from simia.synthesis.conversations.source_renaming import rename_method
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.graph_building import make_graph
from simia.synthesis.stages.compositions import connect_environments
from tests.synthesis.build_fixtures import load_library
from tests.synthesis.conversation_fixtures import load_both, load_studio


def list_findings(built: BuiltEnvironment, folder: Path) -> list[str]:
    """Run the tests of an environment as those of a pack."""

    async def run() -> list[str]:
        write_environment(folder, built)
        backend = ExecutableBackend(pack := Pack.load(folder))
        try:
            return [f"{each.fault} {each.where} {each.detail}" for each in await run_tests(pack, backend)]
        finally:
            await backend.close()

    return asyncio.run(run())


def test_the_tests_of_all_environments_pass_in_the_composition(tmp_path: Path) -> None:
    parts = load_both()
    composed = compose_environments(parts)
    built = composed.built
    assert len(built.tests) == sum(len(each.tests) for each in parts.values())
    assert list_findings(built, tmp_path / "pack") == []
    again = compose_environments(load_both())
    write_environment(tmp_path / "again", again.built)
    for file in (tmp_path / "pack").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_only_names_that_clash_are_prefixed() -> None:
    composed = compose_environments(load_both())
    built = composed.built
    assert composed.tables["studio"] == ["studio_members", "machines", "bookings"]
    assert composed.tools["library/get_member"] == "library_get_member"
    assert composed.tools["studio/get_member"] == "studio_get_member"
    assert composed.tools["studio/book_machine"] == "book_machine"
    assert set(built.tools) == set(composed.tools.values())
    assert built.design.state.tables["loans"].columns["member_id"].references == "library_members"
    assert built.design.state.tables["bookings"].columns["member_id"].references == "studio_members"
    assert not built.design.state.find_violations(built.example)
    assert "Open workshop: studio_get_member shows the credit." in built.design.rules
    described = built.tools["search_machines"]
    assert described.spec.description.endswith("Use `studio_get_member` or list_bookings for what a member has booked")
    assert "studio_members" not in built.tools["find_members"].spec.description


def test_a_composition_that_forgets_a_name_fails_its_tests(tmp_path: Path) -> None:
    built = compose_environments(load_both()).built
    old = built.tools["book_machine"]
    source = old.source.replace("self.state.studio_members", "self.state.library_members")
    assert source != old.source
    built.tools["book_machine"] = old.model_copy(update={"source": source})
    findings = list_findings(built, tmp_path / "pack")
    assert any("a free machine" in each for each in findings)


def test_one_environment_stays_as_it_is() -> None:
    built = load_studio()
    composed = compose_environments({"studio": built})
    assert composed.built is built
    assert composed.tools["studio/add_credit"] == "add_credit"


def test_what_cannot_be_composed_is_refused() -> None:
    with pytest.raises(ValueError, match="4 environments"):
        compose_environments({name: load_library() for name in "abcd"})
    strange = load_studio().model_copy(update={"state_model": "class State:\n    pass\n"})
    with pytest.raises(ValueError, match="studio: its state model"):
        compose_environments({"library": load_library(), "studio": strange})


def test_prefixed_names_are_unique() -> None:
    names = choose_names({"a": ["get", "b_get"], "b": ["get"]}, 63)
    assert names == {"a": {"get": "a_get", "b_get": "b_get"}, "b": {"get": "b_get_"}}


def test_renaming_touches_only_what_it_names() -> None:
    source = '''@write
def add(self, members: str) -> dict[str, Any]:
    """Add as `add` does, see add.

    Args:
        members: A list.
    """
    state, other = self.state, {"members": members}
    own = self.state
    own.members["é"] = Member(name=members)  # members
    return {"members": len(self.state.members), "é": other["members"], "x": members.members}
'''
    found = rename_method(source, tables={"members": "t"}, rows={"Member": "R"}, tools={"add": "b_add"})
    assert found.splitlines()[1:3] == [
        "def b_add(self, members: str) -> dict[str, Any]:",
        '    """Add as `b_add` does, see add.',
    ]
    assert 'own.t["é"] = R(name=members)  # members' in found
    assert '{"members": len(self.state.t), "é": other["members"], "x": members.members}' in found


def test_the_graph_of_a_composition_crosses_environments() -> None:
    parts = load_both()
    composed = compose_environments(parts)
    graph = connect_environments(composed, {key: make_graph(built) for key, built in parts.items()})
    assert set(graph.tools) == set(composed.tools)
    known = set(graph.tools)
    assert all({edge.source, edge.target} <= known for edge in graph.edges)
    inside = [edge for edge in graph.edges if edge.source.split("/")[0] == edge.target.split("/")[0]]
    assert len(inside) == sum(len(make_graph(built).edges) for built in parts.values())
    # Both have members, but a member's id of one is none of the other: nothing crosses.
    assert len(inside) == len(graph.edges)
