"""Suites of `simia eval`: the packs, tasks, trials and user simulator of a benchmark. A config becomes one rollout over all parts.

The name of a pack in a suite may be that of a benchmark that simia imports, such as `tau2:retail`. Its pack is made in the cache, once for
each version of the data and of the importers. Evaluation sections of the papers: Simia §3.1, ScaleEnv §5.2, CodeGym §5.2.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from simia.config import OPERATIONAL, load_config
from simia.envs.config import PackShare
from simia.envs.remote.remote_pack import list_server_settings
from simia.errors import UserError
from simia.evaluation.chained_tasks import hash_files
from simia.importers.acebench import NEEDED as ACEBENCH_FOLDER
from simia.importers.acebench import import_part
from simia.importers.agentbench import import_problems
from simia.importers.bfcl import NEEDED, import_multi_turn
from simia.importers.officebench import import_tasks
from simia.importers.tau2 import import_domain
from simia.importers.taubench import NEEDED as TAUBENCH_FOLDER
from simia.importers.taubench import import_domain as import_taubench
from simia.rollouts.settings import RolloutConfig, RolloutSettings
from simia.search_path import cache_root, find_named_resource, list_names
from simia.trajectory import digest
from simia.venvs import RECIPES, Say


class EvalConfig(RolloutSettings):
    """Settings of `simia eval`: a suite of packs, with the number of trials (`group`), user simulator and sampling."""

    kind: Literal["eval"] = Field("eval", description="Marks the config as that of an evaluation.")
    suite: str = Field("packs", description="Name of the suite in result tables.")
    data: str | None = Field(
        None,
        json_schema_extra=OPERATIONAL,
        description="Folder or file with the benchmark's data, for suites whose data simia does not install.",
    )


@dataclass(frozen=True)
class BenchmarkSource:
    """The importer of a benchmark's pack: `make(variant, data, out, say)`. `needs`: the data that `--data` must name; None: no
    data. `holds`: patterns of which the data's folder has at least one; it is not read otherwise, since it may be anything. `installed`:
    without `--data`, the benchmark that simia installs is read, and `data` is None."""

    make: Callable[[str, Any, Path, Say], object]
    needs: str | None = None
    holds: tuple[str, ...] = ()
    installed: bool = False


def import_agentbench(variant: str, data: Path, out: Path, say: Say) -> object:
    """Import the test problems of AgentBench's OS suite: `data/1/*.json` and so on, with their scripts; or files of problems."""
    standard = sorted((data / "data").glob("[0-9]*/*.json"))
    problems = standard or (sorted(data.glob("*.json")) if data.is_dir() else [data])
    if not problems:
        raise UserError(f"{data} holds no problems: give AgentBench's data/os_interaction, or a folder of JSON files")
    scripts = data / "scripts" if data.is_dir() else data.parent / "scripts"
    return import_problems(problems, out, scripts=scripts if scripts.is_dir() else None, say=say)


SOURCES: dict[str, BenchmarkSource] = {
    "bfcl": BenchmarkSource(
        lambda variant, data, out, say: import_multi_turn(data, out, say),
        NEEDED,
        ("multi_turn_func_doc", "*/multi_turn_func_doc", "*/*/multi_turn_func_doc", "*/*/*/multi_turn_func_doc"),
        installed=True,
    ),
    "tau2": BenchmarkSource(lambda variant, data, out, say: import_domain(variant, out, say)),
    "taubench": BenchmarkSource(
        lambda variant, data, out, say: import_taubench(data, variant, out, say),
        TAUBENCH_FOLDER,
        ("tau_bench/envs", "envs"),
    ),
    "acebench": BenchmarkSource(
        lambda variant, data, out, say: import_part(data, variant, out, say), ACEBENCH_FOLDER, ("data_all/data_en",)
    ),
    "officebench": BenchmarkSource(
        lambda variant, data, out, say: import_tasks(data, out, say=say),
        "OfficeBench's folder of tasks (1-1, 1-2, …)",
        ("[0-9]*-[0-9]*",),
    ),
    "agentbench": BenchmarkSource(
        import_agentbench,
        "AgentBench's folder data/os_interaction, or files of problems (.json)",
        ("data/[0-9]*/*.json", "*.json"),
    ),
}


def load_suite(name: str | Path, settings: list[str] | None = None, **overrides: Any) -> EvalConfig:
    """Load the config of a suite by its name in configs/eval, a config's name or a path. Raises `UserError`."""
    if Path(name).suffix not in ("", ".yaml", ".yml") and Path(name).is_file():
        raise UserError(f"{name} is no config: give a suite (see simia eval list) or a YAML file that extends one")
    plain = isinstance(name, str) and "/" not in name and not name.endswith((".yaml", ".yml"))
    if plain and find_named_resource("configs", f"eval/{name}.yaml") is None:
        known = sorted(Path(each).stem for each in list_names("configs") if Path(each).parent == Path("eval"))
        known.remove("default")
        near = difflib.get_close_matches(str(name), known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"no suite named {name!r}{meant} (there are: {', '.join(known)}; or give the path of a config)")
    return load_config(EvalConfig, f"eval/{name}" if plain else name, settings or [], **overrides)


def make_rollout_config(config: EvalConfig, say: Say = lambda line: None) -> RolloutConfig:
    """Make the missing packs of a suite, and return the rollout over all of them. Raises `UserError` if data are missing.

    A user is simulated only for an agent that is a model or a function: the reference follows its script, other baselines get the task's
    text. If servers play all packs, settings that only a server can have are dropped.
    """
    if not config.packs:
        raise UserError(f"suite {config.suite} names no packs: set packs, as packs: [{{pack: ./my-pack}}]")
    if config.data is not None and not any(reads_data(share) for share in config.packs):
        raise UserError(f"suite {config.suite} reads no data: leave out --data")
    packs = [make_share(share, config.data, say) for share in config.packs]
    player = config.player if config.agent in ("llm", "function") else None
    data = config.model_dump(mode="json", exclude={"kind", "data", "packs", "player"})
    shares = [share.model_dump(mode="json") for share in packs]
    player_data = None if player is None else player.model_dump(mode="json")
    made = RolloutConfig.model_validate({**data, "packs": shares, "player": player_data})
    left = list_server_settings(made)
    if not left:
        return made
    say(f"{', '.join(left)}: the suite's values are ignored, since the server plays the episodes with its own settings")
    return RolloutConfig.model_validate({k: v for k, v in made.model_dump(mode="json").items() if k not in left})


def find_source(share: PackShare) -> tuple[str, str] | None:
    """Return the benchmark and the variant that a share names; None for a pack."""
    name, _, variant = share.pack.partition(":")
    is_pack = name not in SOURCES or (not variant and Path(share.pack, "pack.yaml").is_file())
    return None if is_pack else (name, variant)


def reads_data(share: PackShare) -> bool:
    """Whether the share names a benchmark that reads the folder of `--data`."""
    found = find_source(share)
    return found is not None and SOURCES[found[0]].needs is not None


def make_share(share: PackShare, data: str | None, say: Say) -> PackShare:
    """Return the share of a suite with its pack's folder in place of a benchmark's name."""
    found = find_source(share)
    if found is None:
        return share
    name, variant = found
    return share.model_copy(update={"pack": str(make_pack(name, variant, data, say))})


def make_pack(name: str, variant: str, data: str | None, say: Say) -> Path:
    """Return the folder of a benchmark's pack in the cache, and make it if it is not there. Raises `UserError`."""
    source = SOURCES[name]
    given = None if data is None or source.needs is None else Path(data).expanduser().absolute()
    if source.needs is not None and not (given is None and source.installed):
        if given is None:
            raise UserError(f"suite {name} needs its data: add --data FOLDER, {source.needs}")
        if not given.exists():
            raise UserError(f"{data} does not exist: --data names {source.needs}")
    if given is not None and not is_data(given, source.holds):
        raise UserError(f"{data} has no {' and no '.join(source.holds[:2])}: --data names {source.needs}")
    installed = RECIPES[name].key if name in RECIPES else None
    key = digest([name, variant, hash_data(given) if given else None, hash_importers(), installed])[:12]
    title = "-".join(part for part in (name, variant) if part)
    target = cache_root() / "packs" / f"{title}-{key}" / title
    if target.is_dir():
        return target
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=target.parent.parent) as draft:
        made = Path(draft) / title
        source.make(variant, given, made, lambda line: say(line.replace(str(made), str(target))))
        target.parent.mkdir(exist_ok=True)
        try:
            made.rename(target)
        except OSError:  # another process has made the same pack meanwhile
            if not target.is_dir():
                raise
    return target


def is_data(path: Path, holds: tuple[str, ...]) -> bool:
    """Whether a folder holds one of the patterns, or a file has the name of one."""
    if not path.is_dir():
        return any(path.match(pattern) for pattern in holds)
    return any(next(iter(path.glob(pattern)), None) is not None for pattern in holds)


def hash_data(path: Path) -> list[tuple[str, str]]:
    """List every file of a benchmark's data with its hash. Raises `UserError` for a file that cannot be read."""
    try:
        return hash_files(path if path.is_dir() else path.parent)
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be read: {error.strerror}") from None


def hash_importers() -> list[tuple[str, str]]:
    """List the code that writes packs and the code that is copied into them, with hashes."""
    return [row for name in ("simia.importers", "simia.drivers") for row in hash_files(Path(str(files(name))))]
