"""`simia pack report`: the figures of a pack, or of a folder of packs, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simia import event_loop
from simia.cli.options import GRANT_READ, NETWORK, UNSAFE, VARIABLES, collect_grants
from simia.errors import UserError
from simia.pack import Pack
from simia.report.console import Terminal
from simia.terminal import say, say_error

if TYPE_CHECKING:
    from simia.report.pack_comparison import ToolMap


async def make_map(packs: list[Pack], model: str | None, base_url: str | None) -> ToolMap:
    """Map the tools of several packs, by embeddings if a model is named."""
    from simia.llm.backends import LLMSettings
    from simia.llm.embedded import EmbeddedSettings
    from simia.llm.openai_settings import OpenAISettings
    from simia.llm.types import LLMFault
    from simia.report.pack_comparison import embed_tools, map_tools

    if model is None:
        if base_url is not None:
            raise UserError("--base-url needs --embeddings: name the model for embeddings at that endpoint")
        return map_tools(packs)
    settings: LLMSettings
    if model.endswith(".gguf"):
        settings = EmbeddedSettings(model=model, embeddings=True)
    else:
        settings = OpenAISettings(model=model, **({"base_url": base_url} if base_url else {}))
    try:
        return map_tools(packs, await embed_tools(packs, settings), model=Path(model).name)
    except LLMFault as error:
        raise UserError(f"the tools cannot be embedded by {model}: {error}") from None


def pack_report(
    pack: Annotated[str, typer.Argument(help="Name of a bundled pack, folder of a pack, or folder of several packs.")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a self-contained HTML page to this file.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Task to show as a conversation.")] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run/--no-run",
            help="Run the tools' tests in the sandbox, and the solution of the shown task if it is not recorded.",
        ),
    ] = True,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            help="For a folder of packs: model at an endpoint, or GGUF file, that embeds the tools for their map. Default: tools "
            "are compared by their words.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Base URL of the endpoint for --embeddings.")
    ] = None,
    unsafe: UNSAFE = False,
    network: NETWORK = False,
    variable: VARIABLES = None,
    grant_read: GRANT_READ = None,
) -> None:
    """Report on a pack: kept and dropped tools, tests by outcome, tasks by the gate's reason, tokens and cost by stage, graphs, difficulty, and
    one task as a conversation."""
    from simia.report.pack_report import print_folder, print_pack, write_folder_page, write_pack_page
    from simia.report.pack_statistics import PackStatistics, collect_pack, find_packs

    grants = collect_grants(unsafe, network, variable, grant_read)
    folder = Path(pack)
    if folder.is_dir() and not (folder / "pack.yaml").exists():
        packs = find_packs(folder)
        if not packs:
            raise UserError(f"{folder} has no pack.yaml, and no folder in it has one: name a pack or a folder of packs")
        if task is not None:
            raise UserError("--task is for the report of one pack: omit it")

        async def work() -> list[PackStatistics]:
            found = []
            for each in packs:
                try:
                    found.append(await collect_pack(Pack.load(each), execute=run, grants=grants))
                except UserError as error:
                    say_error(f"note: left out: {error}")
            return found

        found = event_loop.run_command(work())
        tools = event_loop.run_command(make_map([of.pack for of in found], embeddings, base_url))
        print_folder(found, tools, Terminal())
        if html is not None:
            write_folder_page(found, tools, folder.resolve().name, html)
    else:
        if embeddings is not None:
            raise UserError("--embeddings is for the report of a folder of packs: omit it")
        one = event_loop.run_command(collect_pack(Pack.load(pack), task=task, execute=run, grants=grants))
        print_pack(one, Terminal())
        if html is not None:
            write_pack_page(one, html)
    if html is not None:
        say(f"page: {html}")
