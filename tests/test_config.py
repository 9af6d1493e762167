"""One way in: extends, --set, suggestions, identity."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simia
from simia.amplification.settings import AmplifyConfig
from simia.cli.amplify import resolve_amplify_config
from simia.config import LARGEST_YAML, find_config, list_differences, load_config, load_yaml, select_identity
from simia.errors import UserError
from simia.rollouts.settings import RolloutConfig
from simia.search_path import data_root, find_resource
from simia.synthesis.recipes.codegym import CodeGymConfig


def test_unknown_keys_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("sampling: {temprature: 1}\n")
    with pytest.raises(
        UserError, match=r"mine.yaml: unknown key 'sampling.temprature': did you mean 'sampling.temperature'"
    ):
        load_config(AmplifyConfig, tmp_path / "mine.yaml")
    with pytest.raises(UserError, match=r"did you mean 'llm\.base_url'"):
        load_config(AmplifyConfig, "amplify/default", ["llm.base_urll=http://127.0.0.1:1/v1"])


def test_a_short_key_has_a_near_one() -> None:
    with pytest.raises(UserError, match=r"unknown key 'solutions.kk': did you mean 'solutions.k'"):
        load_config(CodeGymConfig, None, ["solutions.kk=2"])


def test_a_place_is_named_as_it_is_written() -> None:
    with pytest.raises(UserError, match=r"^--set: unknown key 'llm.temprature': known here: .*base_url"):
        load_config(AmplifyConfig, "amplify/default", ["llm.temprature=1"])
    with pytest.raises(UserError, match=r"^--set llm.timeout: expected a number, got 'soon'$"):
        load_config(AmplifyConfig, "amplify/default", ["llm.timeout=soon"])
    with pytest.raises(UserError, match=r"judge needs a kind, as judge.kind=openai; there are: openai, pool, embedded"):
        load_config(RolloutConfig, None, ["judge.modl=x"])
    with pytest.raises(UserError, match=r"unknown key 'judge.modl': did you mean 'judge.model'"):
        load_config(RolloutConfig, None, ["judge.kind=openai", "judge.modl=x"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nope.jsonl", "nope.jsonl does not exist$"),
        ("at/nope", "no such file.*customer_service"),
        ("nope", "no pack named.*customer_service"),
    ],
)
def test_a_path_that_is_not_there_is_no_misspelt_pack(name: str, said: str) -> None:
    with pytest.raises(UserError, match=f"^{said}"):
        find_resource("seeds", name)


def test_extends_merges_deeply_and_replaces_a_section_of_another_kind() -> None:
    config = load_config(AmplifyConfig, "amplify/quickstart")
    assert config.llm.kind == "embedded"
    assert config.seeds.packs == ["customer_service", "office"]


def test_set_reads_numbers_as_people_write_them() -> None:
    assert load_config(AmplifyConfig, "amplify/default", ["limits.max_cost=5e-1"]).limits.max_cost == 0.5
    with pytest.raises(UserError, match="write it as"):
        load_config(AmplifyConfig, "amplify/default", ["n"])


@pytest.mark.parametrize(
    "text",
    [
        "2024-10-21",
        "123",
        "007",
        "1e3",
        "1.50",
        "true",
        "off",
        "12:30",
        "0x1f",
        "[a]",
        "a: b",
        ".inf",
        "2024-10-21 10:00:00",
    ],
)
def test_a_text_field_takes_what_is_set_as_it_is_written(text: str) -> None:
    config = load_config(
        AmplifyConfig, "amplify/default", [f"llm.model={text}", f"llm.api_version={text}", "n=5", "llm.timeout=1e2"]
    )
    assert config.llm.kind == "openai"
    assert (config.llm.model, config.llm.api_version) == (text, text)
    assert (config.n, config.llm.timeout) == (5, 100)


def test_what_is_set_is_a_value_everywhere_else() -> None:
    said = ["sampling.extra={min_p: 0.05, day: 2024-10-21}", "sampling.extra.top_k=20", "prompt.scenarios=true"]
    config = load_config(AmplifyConfig, "amplify/default", [*said, "llm.api_version=null", "llm.model='2024-10-21'"])
    assert config.sampling.extra == {"min_p": 0.05, "day": "2024-10-21", "top_k": 20}
    assert config.prompt.scenarios is True
    assert (config.llm.model, config.llm.api_version) == ("2024-10-21", None)
    assert load_config(RolloutConfig, None, ["tasks=[a, b]"]).tasks == ["a", "b"]


def test_a_value_that_no_field_takes_is_named_as_it_is_read() -> None:
    with pytest.raises(UserError, match=r"^--set n: expected an integer, got 1\.5$"):
        load_config(AmplifyConfig, "amplify/default", ["n=1.5", "llm.model=5"])
    with pytest.raises(UserError, match=r"^--set llm\.model: expected text, got null$"):
        load_config(AmplifyConfig, "amplify/default", ["llm.model=null"])
    with pytest.raises(UserError, match=r"unknown key 'llm\.modl'"):
        load_config(AmplifyConfig, "amplify/default", ["llm.modl=5", "llm.model=5"])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("n: x", "n: expected an integer, got 'x'"),
        ("n: 0", "n: expected a number of at least 1, got 0"),
        ("sampling: {top_p: 2}", "sampling.top_p: expected a number of at most 1.0, got 2"),
        ("sampling: {top_p: .inf}", "sampling.top_p: expected a finite number, got inf"),
        ("sampling: {temperature: [1]}", "sampling.temperature: expected a number, got a list of 1"),
        ("prompt: {hints: 7}", "prompt.hints: expected true or false, got 7"),
        ("prompt: {system: null}", "prompt.system: expected text, got null"),
        ("reply: {shape: fre}", "reply.shape: expected 'free' or 'seed', got 'fre'"),
        ("reply: x", "reply: expected a mapping of names to values, got 'x'"),
        ("seeds: {packs: office}", "seeds.packs: expected a list, got 'office'"),
        ("seeds: {packs: []}", "seeds.packs: expected at least 1 values, got a list of 0"),
        ("llm: {kind: opnai}", "llm.kind: expected 'openai', 'pool'"),
        ("llm: {kind: replay}", "llm.path: a value is required; set it"),
        ("n: " + "y" * 200, f"n: expected an integer, got '{'y' * 59}…"),
    ],
)
def test_a_problem_names_the_key_and_what_it_should_hold(section: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"extends: amplify/default\n{section}\n")
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path))}/mine.yaml: {re.escape(message)}") as caught:
        load_config(AmplifyConfig, tmp_path / "mine.yaml")
    assert "\n" not in str(caught.value)


def test_a_problem_of_the_command_line_names_its_option() -> None:
    with pytest.raises(UserError, match=r"^--set seeds\.limit: expected a number of at least 1, got 0$"):
        load_config(AmplifyConfig, "amplify/default", ["seeds.limit=0"])
    with pytest.raises(UserError, match=r"^--set llm\.headers\.x: expected text, got null$"):
        load_config(AmplifyConfig, "amplify/default", ["llm.headers={x: null}"])
    with pytest.raises(UserError, match=r"^--set llm\.headers\.Authorization holds a secret: "):
        load_config(AmplifyConfig, "amplify/default", ["llm.headers={Authorization: abc}"])
    with pytest.raises(UserError, match=r"^amplify/default: n: expected a number of at least 1, got 0$"):
        load_config(AmplifyConfig, "amplify/default", ["llm.model=x"], n=0)


def test_a_date_in_a_file_is_text_and_a_number_needs_quotes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: amplify/default\nllm: {api_version: 2024-10-21}\n")
    assert load_config(AmplifyConfig, tmp_path / "mine.yaml").llm.api_version == "2024-10-21"
    (tmp_path / "mine.yaml").write_text("extends: amplify/default\nllm: {model: 123}\n")
    with pytest.raises(UserError, match=r"mine.yaml: llm\.model: expected text, got 123; write it in quotes$"):
        load_config(AmplifyConfig, tmp_path / "mine.yaml")


def test_an_extends_loop_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(UserError, match="extends itself"):
        load_config(AmplifyConfig, tmp_path / "a.yaml")


def test_the_quickstart_has_the_checks_of_every_other_run() -> None:
    quick, full = load_config(AmplifyConfig, "amplify/quickstart"), load_config(AmplifyConfig, "amplify/default")
    assert quick.checks == full.checks
    assert quick.stop == full.stop


def test_an_endpoint_in_sight_takes_the_local_models_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_amplify_config(None, None, None, []).llm.kind == "embedded"
    chosen = resolve_amplify_config(None, None, None, ["llm.base_url=http://127.0.0.1:9/v1", "llm.model=tiny"])
    assert (chosen.llm.kind, chosen.llm.model, chosen.n) == ("openai", "tiny", 8)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    assert resolve_amplify_config(None, None, None, []).llm.kind == "openai"
    assert resolve_amplify_config(None, None, None, ["llm.kind=embedded"]).llm.kind == "embedded"


def test_a_model_that_is_named_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a key: a dry run must price the model and the seeds of the run that is meant."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    named = resolve_amplify_config(None, None, None, ["llm.model=gpt-5-mini"])
    assert (named.llm.kind, named.llm.model, named.seeds.max_messages) == ("openai", "gpt-5-mini", None)
    batch = resolve_amplify_config(None, None, None, ["llm.kind=batch", "llm.folder=b"])
    assert (batch.llm.kind, batch.llm.model, batch.reply.shape) == ("batch", "gpt-5-mini", "free")
    for local in ("smollm2-135m", "mine.gguf"):
        assert resolve_amplify_config(None, None, None, [f"llm.model={local}"]).llm.kind == "embedded"


def test_a_batch_asks_the_model_of_the_config(tmp_path: Path) -> None:
    own = ["llm.model=o4-mini", "llm.price={input: 1, cached: 1, output: 1}", "llm.extra_body={a: 1}", "llm.timeout=9"]
    batch = load_config(AmplifyConfig, "amplify/tau2-90k", [*own, "llm.kind=batch", "llm.folder=b"]).llm
    assert (batch.kind, batch.model) == ("batch", "o4-mini")
    assert batch.extra_body == {"a": 1}
    assert batch.batch_price() is not None
    back = load_config(AmplifyConfig, "amplify/tau2-90k", ["llm.kind=batch", "llm.folder=b", "llm.kind=openai"]).llm
    assert (back.kind, back.model) == ("openai", "o4-mini")
    (tmp_path / "mine.yaml").write_text("extends: amplify/tau2-90k\nllm: {kind: batch, folder: b}\n")
    assert load_config(AmplifyConfig, tmp_path / "mine.yaml").llm.model == "o4-mini"
    local = load_config(AmplifyConfig, "amplify/tau2-90k", ["llm.kind=embedded"]).llm
    assert local.model == "qwen2.5-coder-0.5b", "another kind has models of its own"


def test_a_packs_own_file_without_its_tools_is_no_seed() -> None:
    pack = data_root() / "seeds" / "customer_service"
    with pytest.raises(UserError, match=r"lists no tools; give the pack's folder: --seeds .*customer_service$"):
        resolve_amplify_config(None, [str(pack / "seeds.jsonl")], None, [])
    assert resolve_amplify_config(None, [str(pack)], None, []).seeds.packs == [str(pack)]


def test_identity_leaves_out_what_is_operational() -> None:
    base = load_config(AmplifyConfig, "amplify/default")
    faster = load_config(
        AmplifyConfig, "amplify/default", ["limits.concurrency=99", "n=5", "llm.timeout=7", "stop.outage=3"]
    )
    assert select_identity(base) == select_identity(faster)
    other = load_config(AmplifyConfig, "amplify/default", ["sampling.temperature=0.5"])
    assert list_differences(select_identity(base), select_identity(other)) == ["sampling.temperature: 1.0 → 0.5"]


@pytest.mark.parametrize(
    "path", sorted((data_root() / "configs" / "amplify").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_config_of_ours_is_read(path: Path) -> None:
    config = load_config(AmplifyConfig, f"amplify/{path.stem}")
    assert config.n >= 8
    assert config.sampling.temperature in (0.4, 1.0)


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    return "\n".join(lines + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)])


EXCESS = {
    "mappings within each other": (f"llm: {'{a: ' * 5000}{'}' * 5000}", "levels deep"),
    "lists within each other": (f"llm: {'[' * 3000}", "levels deep"),
    "depth by aliases": (
        "\n".join(["a0: &a0 [1]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200))]),
        "levels deep",
    ),
    "a mapping within itself": ("llm: &x {extra_body: {y: *x}}", "contain itself"),
    "a list within itself": ("llm: {extra_body: {y: &x [*x]}}", "contain itself"),
    "values by aliases": (bomb(9), "aliases included"),
    "values by merge keys": ("\n".join([bomb(6), "b: &b {c: *a5}", "d: {<<: [*b, *b, *b]}"]), "aliases included"),
    "digits": (f"n: {'9' * 5000}", "quotes"),
    "hexadecimal digits": (f"n: 0x{'F' * 5000}", "quotes"),
    "base 60": (f"n: 1{':1' * 3000}", "quotes"),
    "no integer": ('n: !!int ""', "quotes"),
    "no truth value": ("n: !!bool x", "quotes"),
    "no date": ("n: !!timestamp x", "quotes"),
    "half a character": ('llm: {model: "\\ud800"}', "a lone surrogate"),
    "size": (f"# {'x' * LARGEST_YAML}", "larger than"),
    "a Python object": ("n: !!python/object/apply:os.getcwd []", "not YAML"),
    "an unknown alias": ("n: *x", "not YAML"),
}


@pytest.mark.attack("a config exhausts memory or time, or ends in a traceback")
@pytest.mark.parametrize("case", EXCESS)
def test_excessive_yaml_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, words = EXCESS[case]
    (tmp_path / "mine.yaml").write_text(f"extends: amplify/default\n{text}\n")
    with pytest.raises(UserError, match=words) as caught:
        load_config(AmplifyConfig, tmp_path / "mine.yaml")
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


@pytest.mark.attack("a config exhausts memory or time, or ends in a traceback")
@pytest.mark.parametrize(
    "setting",
    [f"n={'9' * 5000}", f"n={'[' * 3000}", f"{'a.' * 3000}a=1", "n=!!bool x"],
)
def test_an_excessive_setting_is_refused_in_one_line(setting: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config(AmplifyConfig, "amplify/default", [setting])
    assert "\n" not in str(caught.value)


def test_aliases_anchors_and_merge_keys_are_read() -> None:
    text = "a: &a {x: 1, y: [1, 2]}\nb: *a\nc: {<<: *a, z: 2026-01-01}"
    found = {"x": 1, "y": [1, 2]}
    assert load_yaml(text, "text") == {"a": found, "b": found, "c": {**found, "z": "2026-01-01"}}


def test_a_link_to_a_device_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to("/dev/zero")
    with pytest.raises(UserError):
        load_config(AmplifyConfig, tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n: 3\nllm: [3\n", "line 3, column 1: expected ',' or ']'"),
        ("n: 3\n\tx: 4\n", "line 2, column 1: .*indent with spaces"),
    ],
)
def test_broken_yaml_is_named_by_its_line(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"a\.yaml is not YAML: {problem}"):
        load_yaml(text, tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "defalt",
            "no config named 'defalt'; did you mean amplify/default or eval/default or rollout/default or simulator/default? ",
        ),
        ("amplify/defautl", "no config named 'amplify/defautl'; did you mean amplify/default? "),
        ("./none.yaml", "./none.yaml does not exist"),
    ],
)
def test_an_unknown_config_names_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        find_config(name)


def test_an_unknown_kind_is_named_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"^--set llm\.kind: expected 'openai', .*, got 'opnai': did you mean 'openai'\?$"
    ):
        load_config(AmplifyConfig, "amplify/default", ["llm.kind=opnai"])
    with pytest.raises(UserError, match=r"base_url: expected an address such as .*, got '127\.0\.0\.1:9'"):
        load_config(AmplifyConfig, "amplify/default", ["llm.base_url=127.0.0.1:9"])


async def test_wrong_arguments_of_the_public_functions_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^'customer_service' is a pack, not a config: rollout\(\{'pack': "):
        await simia.rollout("customer_service")
    with pytest.raises(UserError, match="seeds is empty: give a pack"):
        await simia.amplify([])
    wrong: Any = ["limits.max_cost=2"]
    with pytest.raises(UserError, match="settings: expected a mapping"):
        await simia.amplify("office", settings=wrong)
    options: list[tuple[dict[str, Any], str]] = [
        ({"to": "trll"}, "^to: expected .*, got 'trll': did you mean 'trl'"),
        ({"segment": "turn"}, "^segment: expected .* did you mean 'turns'"),
        ({"cutoff": 0}, "^cutoff: expected a number of at least 1, got 0"),
        ({"take": 2}, "^take needs a mix"),
    ]
    for given, words in options:
        with pytest.raises(UserError, match=words):
            simia.export("office", tmp_path / "d", **given)
    with pytest.raises(UserError, match=r"^nope\.jsonl does not exist: give a file"):
        simia.export("nope.jsonl", tmp_path / "d")
    nothing: Any = None
    with pytest.raises(TypeError, match="out: expected str or Path, got None"):
        simia.export("office", nothing)
    with pytest.raises(TypeError, match="path: expected str or Path, got None"):
        simia.load_trajectories(nothing)


LONG = "99999999999999999999"


@pytest.mark.parametrize("name", ["seed", "sampling.extra.a", "llm.extra_body.a.1", "limits.max_tokens"])
def test_an_integer_that_no_run_can_store_is_refused(name: str) -> None:
    key, value = (name[:-4], f"{{a: [0, {LONG}]}}") if name.endswith(".a.1") else (name, LONG)
    with pytest.raises(UserError, match=rf"^--set {name} is an integer beyond 64 bits") as refused:
        load_config(AmplifyConfig, "amplify/default", [f"{key}={value}"])
    assert "\n" not in str(refused.value)


def test_a_text_of_many_digits_is_no_integer() -> None:
    assert load_config(AmplifyConfig, "amplify/default", [f"llm.model={LONG}"]).llm.model == LONG  # type: ignore[union-attr]
