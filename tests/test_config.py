"""One way in: extends, --set, suggestions, identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.amplify.settings import AmplifyConfig
from simia.cli.amplify import resolve
from simia.config import differences, identity, load
from simia.errors import UserError
from simia.resources import data_root, find
from simia.rollout.settings import RolloutConfig


def test_unknown_keys_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("sampling: {temprature: 1}\n")
    with pytest.raises(UserError, match=r"mine.yaml: unknown key 'sampling.temprature': did you mean 'temperature'"):
        load(AmplifyConfig, tmp_path / "mine.yaml")
    with pytest.raises(UserError, match="did you mean 'base_url'"):
        load(AmplifyConfig, "amplify/default", ["llm.base_urll=http://127.0.0.1:1/v1"])


def test_a_place_is_named_as_it_is_written() -> None:
    with pytest.raises(UserError, match=r"unknown key 'llm.temprature': known here: .*base_url"):
        load(AmplifyConfig, "amplify/default", ["llm.temprature=1"])
    with pytest.raises(UserError, match=r": llm.timeout: "):
        load(AmplifyConfig, "amplify/default", ["llm.timeout=soon"])
    with pytest.raises(UserError, match=r"judge needs a kind, as judge.kind=openai; there are: openai, pool, embedded"):
        load(RolloutConfig, None, ["judge.modl=x"])
    with pytest.raises(UserError, match=r"unknown key 'judge.modl': did you mean 'model'"):
        load(RolloutConfig, None, ["judge.kind=openai", "judge.modl=x"])


@pytest.mark.parametrize(
    ("name", "said"), [("nope.jsonl", "no such file"), ("at/nope", "no such file"), ("nope", "no pack named")]
)
def test_a_path_that_is_not_there_is_no_misspelt_pack(name: str, said: str) -> None:
    with pytest.raises(UserError, match=f"^{said}.*customer_service"):
        find("seeds", name)


def test_extends_merges_deeply_and_replaces_a_section_of_another_kind() -> None:
    config = load(AmplifyConfig, "amplify/quickstart")
    assert config.llm.kind == "embedded"
    assert config.seeds.packs == ["customer_service", "office"]


def test_set_reads_numbers_as_people_write_them() -> None:
    assert load(AmplifyConfig, "amplify/default", ["limits.max_cost=5e-1"]).limits.max_cost == 0.5
    with pytest.raises(UserError, match="write it as"):
        load(AmplifyConfig, "amplify/default", ["n"])


def test_an_extends_loop_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(UserError, match="extends itself"):
        load(AmplifyConfig, tmp_path / "a.yaml")


def test_the_quickstart_has_the_checks_of_every_other_run() -> None:
    quick, full = load(AmplifyConfig, "amplify/quickstart"), load(AmplifyConfig, "amplify/default")
    assert quick.checks == full.checks
    assert quick.stop == full.stop


def test_an_endpoint_in_sight_takes_the_local_models_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(None, None, None, []).llm.kind == "embedded"
    chosen = resolve(None, None, None, ["llm.base_url=http://127.0.0.1:9/v1", "llm.model=tiny"])
    assert (chosen.llm.kind, chosen.llm.model, chosen.n) == ("openai", "tiny", 8)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    assert resolve(None, None, None, []).llm.kind == "openai"
    assert resolve(None, None, None, ["llm.kind=embedded"]).llm.kind == "embedded"


def test_a_packs_own_file_without_its_tools_is_no_seed() -> None:
    pack = data_root() / "seeds" / "customer_service"
    with pytest.raises(UserError, match=r"lists no tools; give the pack's folder: --seeds .*customer_service$"):
        resolve(None, [str(pack / "seeds.jsonl")], None, [])
    assert resolve(None, [str(pack)], None, []).seeds.packs == [str(pack)]


def test_identity_leaves_out_what_is_operational() -> None:
    base = load(AmplifyConfig, "amplify/default")
    faster = load(AmplifyConfig, "amplify/default", ["limits.concurrency=99", "n=5", "llm.timeout=7", "stop.outage=3"])
    assert identity(base) == identity(faster)
    other = load(AmplifyConfig, "amplify/default", ["sampling.temperature=0.5"])
    assert differences(identity(base), identity(other)) == ["sampling.temperature: 1.0 → 0.5"]


@pytest.mark.parametrize(
    "path", sorted((data_root() / "configs" / "amplify").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_config_of_ours_is_read(path: Path) -> None:
    config = load(AmplifyConfig, f"amplify/{path.stem}")
    assert config.n >= 8
    assert config.sampling.temperature in (0.4, 1.0)
