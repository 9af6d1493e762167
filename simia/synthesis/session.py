"""Run a synthesis: `simia.synthesize`, the session of a new run, and the session of a resumed run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from simia import search_path, terminal
from simia.authoring.pack_draft import refuse_existing
from simia.config import apply_settings, merge_sections, parse_config, read_config_file
from simia.errors import UserError, require_type
from simia.formats import pin_hub_name
from simia.jobs import Run, find_run
from simia.jobs.coordinator import Coordinator
from simia.jobs.nodes.ray_launcher import open_cluster
from simia.jobs.run import refuse_taken, saved_config
from simia.jobs.run_session import OpenRun, SessionOptions, SessionResult, continue_run, coordinate, reopen_run
from simia.llm.backends import LLMSettings, attach_client, find_price, open_backend, read_llm
from simia.llm.budget import share_budget
from simia.llm.engine import Engine
from simia.llm.question_files import note_shared_batches
from simia.llm.types import ModelBackend, RecordedBackend
from simia.pack_provenance import PackProvenance
from simia.prompts import read_prompt, refuse_other_prompts
from simia.synthesis.job import SynthesisWork, list_stage_inputs
from simia.synthesis.node_work import SynthesisNodeWork
from simia.synthesis.pack_output import refuse_unusable, write_packs
from simia.synthesis.recipes import find_recipe
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Recipe, StageOutputs
from simia.synthesis.stage_figures import SynthesisFigures, collect_figures
from simia.synthesis.stage_progress import SynthesisProgress

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OnProgress = Callable[[SynthesisProgress], None]


@dataclass(slots=True)
class Synthesized(SessionResult):
    """The result of a synthesis: the run's folder, the reason why it stopped, and the packs, written once it is complete."""

    progress: SynthesisProgress
    """The last figures."""
    outputs: StageOutputs
    """What the stages made and refused."""
    figures: SynthesisFigures
    """Items, replies, tokens and cost by stage; each pack holds them as `synthesis.json`."""
    packs: list[Path]
    """The folders of the packs; empty before the run is complete."""
    summary: list[str] = field(default_factory=list)
    """Lines for people about the results of a complete run, if the recipe writes them."""


async def synthesize(
    recipe: str,
    source: str | Path = "",
    *,
    out: str | Path,
    llm: str | Mapping[str, Any] | LLMSettings | AsyncOpenAI | None = None,
    config: str | Path | None = None,
    runs: str | Path = "runs",
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Synthesized:
    """Make packs without existing environment code: environments whose tools and tasks are tested by execution.

    Every reply is stored before it is used, so that a run that was stopped or killed can be resumed (`simia runs resume`) without
    asking for anything twice. The same replies make the same packs.

    Args:
        recipe: `codegym`, `envfactory`, `envscaler`, `scaleenv`, `vary`, or a Python file that defines `RECIPE`.
        source: What the recipe works on: a domain in words, or a file.
        out: The folder of the packs, which must not exist.
        llm: The model: its name at an OpenAI-compatible endpoint, `"embedded"`, an `llm:` section as a mapping or as settings, or an
            `openai.AsyncOpenAI`. None: as the config says.
        config: The config to start from, by name or path. None: `synth/RECIPE`.
        runs: The folder in which the run's folder is made.
        name: The run's id. None: one is made up from the time.
        settings: Any further setting by its dotted name, such as `{"limits.max_cost": 20}`.
        on_progress: Called with the current figures while the run works.

    Returns:
        The run's folder, the reason why it stopped, the folders of the packs, and figures by stage.

    Raises:
        UserError: The caller must change something. Other failures, such as a failing endpoint, raise nothing: `stop` has the reason.

    Example:
        ```python
        made = await simia.synthesize("envscaler", "hotel front desk", out="hotel", llm="gpt-5-mini")
        print(made.stop.kind, made.packs)
        ```
    """
    require_type("recipe", recipe, str)
    section = read_llm(llm)
    base = choose_config(recipe, config)
    data = read_config_file(base) if base is not None else {}
    if section:
        data["llm"] = merge_sections(data.get("llm", {}), section)
    apply_settings(data, settings)
    parsed = parse_synthesis_config(recipe, source, data, where=str(base or "settings"))
    attach_client(parsed.llm, llm)
    options: SessionOptions = {"say": terminal.say_error, "on_progress": on_progress}
    return await start_synthesis(parsed, Path(out), runs=Path(runs), name=name, **options)


def choose_config(recipe: str, config: str | Path | None) -> str | Path | None:
    """Return the config to start from: the given one, that of the recipe, or None for the defaults."""
    if config is not None:
        return config
    return f"synth/{recipe}" if search_path.find_named_resource("configs", f"synth/{recipe}.yaml") else None


def parse_synthesis_config(recipe: str, source: str | Path, data: dict[str, Any], *, where: str) -> SynthesisConfig:
    """Check a config of this recipe. Files are named by their absolute paths, for a resume from another folder. Raises `UserError`."""
    kind = find_recipe(recipe)
    data["recipe"] = str(Path(recipe).expanduser().absolute()) if recipe.endswith(".py") else recipe
    if str(source):
        data["source"] = str(source)
    parsed = parse_config(kind.config, data, where=where)
    file = find_source_file(parsed.source)
    return parsed if file is None else parsed.model_copy(update={"source": str(file)})


def find_source_file(source: str) -> Path | None:
    """Return the absolute path of a source that is a file; None for words."""
    try:
        path = Path(source).expanduser()
        return path.absolute() if source and path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # the words cannot be a path
        return None


async def start_synthesis(
    config: SynthesisConfig,
    out: Path,
    *,
    runs: Path = Path("runs"),
    name: str | None = None,
    **options: Unpack[SessionOptions],
) -> Synthesized:
    """Start a run and work on it until its packs are written to `out` or it stops. Raises `UserError` if `out` exists.

    A data set of the hub is pinned to its commit, so that a resume reads the same rows.
    """
    refuse_existing(out)
    refuse_unusable(out)
    config = config.model_copy(update={"source": pin_hub_name(config.source)})
    if name is not None and config.engine.kind != "local":  # otherwise the workers would be started before this check
        refuse_taken(runs, name, config)
    for line in note_shared_batches(config.model_dump(mode="json")):
        options.get("say", terminal.say)(line)
    open_run: OpenRun = lambda facts: Run.create(runs, config, name=name, facts=facts)  # noqa: E731
    recipe = find_recipe(config.recipe).make(config)
    return await work_on_synthesis(config, recipe, make_absolute(out), open_run, **options)


def make_absolute(path: Path) -> Path:
    return path.expanduser().absolute()


async def resume_synthesis(
    run_id: str,
    out: Path | None = None,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    **options: Unpack[SessionOptions],
) -> Synthesized:
    """Continue a run. `out`: another folder for the packs. `changes`: operational settings by their dotted names."""
    say = options.get("say", terminal.say)
    kind = find_recipe(saved_config(find_run(runs, run_id)).get("recipe"))
    with reopen_run(kind.config, runs, run_id, changes, say=say) as (run, config):
        refuse_changed_source(run, config, kind.make(config))
        if out is not None:
            refuse_existing(out)
            refuse_unusable(out)
        out = make_absolute(out or Path(run.ledger.meta("out") or f"{run.id}-packs"))
        known = run.ledger.meta("facts") or {}
        prompts = known.get("prompts", {})

        def open_run(facts: dict[str, Any]) -> Run:
            if known and "files" not in known:  # a run of an earlier version
                facts.pop("files", None)
            return continue_run(run, config, facts)

        return await work_on_synthesis(config, kind.make(config), out, open_run, prompts=prompts, **options)


async def work_on_synthesis(
    config: SynthesisConfig,
    recipe: Recipe,
    out: Path,
    open_run: OpenRun,
    *,
    prompts: Mapping[str, str] | None = None,
    say: Callable[[str], None] = terminal.say,
    on_progress: Callable[[Any], None] | None = None,
    handle_signals: bool = False,
) -> Synthesized:
    """Start the models, open the run, work on the stages, and write the packs to `out`, an absolute path, if all stages are complete.
    `prompts`: the prompt files that earlier sessions used."""
    stages = recipe.list_stages()
    list_stage_inputs(stages[0], StageOutputs())  # a source that cannot be read is refused before a model is started
    async with contextlib.AsyncExitStack() as stack:
        models = {"writer": config.llm, **config.roles}
        cluster = open_cluster(config.engine, say, needs_sandbox=True)
        if cluster is None:
            backends = {role: open_backend(settings, say=say) for role, settings in models.items()}
        else:
            stack.push_async_callback(cluster.close)
            backends = await cluster.open_models(models)
        for backend in backends.values():
            await backend.start()
            stack.push_async_callback(backend.close)
        facts = collect_facts(config, recipe, backends, prompts or {})
        run = stack.enter_context(contextlib.closing(open_run(facts)))
        run.ledger.set_meta("out", str(out), twice=True)
        engines = {
            role: Engine(backend, run.ledger, config.limits, find_price(models[role]))
            for role, backend in backends.items()
        }
        for engine in engines.values():
            stack.callback(engine.gate.close)
        keep = PromptKeeper(run, recorded=bool(list_recordings(backends)))
        if cluster is not None:
            cluster.on_note = keep.keep_of_node
            stack.push_async_callback(cluster.disconnect)
            await cluster.connect(run)
            await cluster.begin(engines, SynthesisNodeWork(config.recipe, config.model_dump(mode="json")))
        share_budget(list(engines.values()), run.ledger.earlier_spending())
        SynthesisWork(run, config, stages, engines).drop_stale_items()
        work = SynthesisWork(run, config, stages, engines, keep)
        job = Coordinator(
            run,
            work,
            list(engines.values()),
            work.progress,
            config.stop,
            on_progress=on_progress,
            produce=None if cluster is None else lambda item: cluster.produce(work.find_input(item)),
        )
        stop = await coordinate(job, handle_signals=handle_signals, say=say)
        names = [stage.name for stage in stages]
        figures = collect_figures(recipe.name, facts["model"], names, work.outputs, work.spent)
        prompts = run.ledger.meta("facts")["prompts"]
        work.outputs.origin = PackProvenance(recipe=recipe.name, model=facts["model"], prompts=prompts)
        packs = write_packs(recipe, work.outputs, figures, out, run.id) if stop.kind == "complete" else []
        summarize: Callable[[StageOutputs], list[str]] | None = getattr(recipe, "summarize", None)
        lines = summarize(work.outputs) if summarize is not None and stop.kind == "complete" else []
        return Synthesized(run.folder, stop, work.progress, work.outputs, figures, packs, lines)


class PromptKeeper:
    """Adds each prompt file that a run uses to the run's facts, before its first question."""

    def __init__(self, run: Run, *, recorded: bool) -> None:
        """`recorded`: the run asks recorded requests; its facts already contain their prompt files."""
        self._run, self._facts, self._recorded = run, run.ledger.meta("facts"), recorded

    def __call__(self, name: str, hashed: str) -> None:
        known = self._facts["prompts"]
        if name not in known and not self._recorded:
            self._facts["prompts"] = dict(sorted([*known.items(), (name, hashed)]))
            self._run.ledger.set_meta("facts", self._facts, twice=True)

    def keep_of_node(self, prompt: tuple[str, str]) -> None:
        """Add a prompt file that a node is about to use. Raises `UserError` if the node has another file than this process."""
        if not self._recorded:
            refuse_other_prompts(dict([prompt]))
        self(*prompt)


def collect_facts(
    config: SynthesisConfig, recipe: Recipe, backends: Mapping[str, ModelBackend], prompts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the facts that identify a run in addition to its config: models, content of the source, present prompt files of these names."""
    writer, source = backends["writer"], find_source_file(config.source)
    recorded = list_recordings(backends)
    files = {name: hashed for each in recorded for name, hashed in each.prompts.items()}
    return {
        "model": writer.model,
        "alias": writer.alias,
        "roles": {
            role: {"model": each.model, "alias": each.alias} for role, each in backends.items() if role != "writer"
        },
        "recipe": recipe.name,
        **({"source": search_path.file_hash(source)} if source else {}),
        **({"files": source_files} if (source_files := hash_source_files(recipe)) else {}),
        "prompts": dict(sorted(files.items()))
        if recorded
        else {name: read_prompt(name)[1] for name in sorted(prompts)},
    }


def hash_source_files(recipe: Recipe) -> dict[str, str]:
    """File of the source, as the recipe names it → hash; empty if the recipe has no method `list_source_files`."""
    list_files: Callable[[], Mapping[str, Path]] = getattr(recipe, "list_source_files", dict)
    return {name: search_path.file_hash(path) for name, path in list_files().items()}


def find_changed_source(run: Run, config: SynthesisConfig, recipe: Recipe) -> str:
    """Name the first file of a run's source that has changed since the run was made, and how; empty if none has. Runs that did not store
    the hashes of their files are not checked."""
    facts, source = run.ledger.meta("facts") or {}, find_source_file(config.source)
    if source is not None and facts.get("source", search_path.file_hash(source)) != search_path.file_hash(source):
        return f"{source} has changed"
    known: dict[str, str] = facts.get("files") or {}
    present = hash_source_files(recipe) if known else {}
    for name in sorted(known.keys() | present.keys()):
        if known.get(name) != present.get(name):
            what = "is new" if name not in known else "is missing" if name not in present else "has changed"
            return f"{Path(config.source) / name} {what}"
    return ""


def refuse_changed_source(run: Run, config: SynthesisConfig, recipe: Recipe) -> None:
    """Raise `UserError` if a file of the run's source has changed: other items would follow from it."""
    if changed := find_changed_source(run, config, recipe):
        raise UserError(
            f"{changed} since run {run.id} was made, so its stored replies answer other questions: restore it, or start a new run"
        )


def list_recordings(backends: Mapping[str, ModelBackend]) -> list[RecordedBackend]:
    """Return the back ends that ask recorded requests instead of newly rendered ones."""
    return [each for each in backends.values() if isinstance(each, RecordedBackend) and each.matches_draws]
