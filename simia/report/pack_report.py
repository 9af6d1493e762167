"""`simia pack report`: print the figures of a pack, or of a folder of packs, and write them as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from simia.report import pack_rows
from simia.report.console import make_plain_text, make_table
from simia.report.conversation import print_trajectory
from simia.report.graph_drawing import GraphEdge, GraphNode, draw_graph
from simia.report.html_page import make_page_environment, read_page_file, save_page
from simia.report.html_sample import fit_turns, format_arguments, format_result
from simia.report.pack_comparison import (
    MAP_HEAD,
    STRUCTURE_HEAD,
    ToolMap,
    describe_map,
    draw_map,
    draw_structures,
    list_map_cells,
    list_structure_cells,
    measure_structures,
)
from simia.report.pack_statistics import (
    PackStatistics,
    make_access_graph,
    make_table_graph,
)
from simia.report.report_rows import Rows, draw_sparkline, format_counts
from simia.report.synthesis_counts import RunPrice, list_dropped_tools, measure_price
from simia.report.terminal_report import make_grid
from simia.report.tool_graph_report import (
    find_pack_graph,
    list_graph_rows,
    make_tool_drawing,
    measure_pack,
    name_edge_source,
)
from simia.terminal import write_count

FOLDER_HEAD = (
    "pack", "recipe", ">tools", ">dropped", ">tests", ">failed", ">tasks", ">refused", ">calls", ">tokens", ">cost",
)  # fmt: skip
FOLDER_TITLE = "packs (tokens and cost are those of the whole run)"
PAGE_ONLY = frozenset(("recipe", "what it does", "by", "refused for"))
"""Columns that only the page shows, since a terminal is too narrow."""


def print_pack(of: PackStatistics, to: Console) -> None:
    """Print the report of a pack."""
    to.print(Text(f"pack {of.pack.name}", style="bold"), make_grid(pack_rows.list_pack_rows(of)))
    for title, head, cells in (
        ("tools", pack_rows.TOOL_HEAD, pack_rows.list_tool_cells(of)),
        ("dropped tools", pack_rows.DROPPED_HEAD, pack_rows.list_dropped_cells(of)),
        ("refused tasks", pack_rows.REASON_HEAD, pack_rows.list_reason_cells(of)),
        ("stages (~: tokens are estimates)", pack_rows.STAGE_HEAD, pack_rows.list_stage_cells(of)),
        ("difficulty", pack_rows.AGENT_HEAD, pack_rows.list_agent_cells(of)),
        ("tables and their tools", ("table", "written by", "read by"), pack_rows.list_access_cells(of)),
    ):
        print_cells(title, head, cells, to)
    stages = of.record.stages if of.record else []
    refused = [(stage.name, format_counts(stage.refused)) for stage in stages if stage.refused]
    print_grid("refused by stage", refused, to)
    print_grid("for each accepted", pack_rows.list_price_rows(of), to)
    if lines := pack_rows.list_reference_lines(of):
        to.print(Text("\nforeign keys", style="bold"))
        for line in lines:
            to.print(make_plain_text(f"  {line}"))
    if (figures := measure_pack(of.pack)) is not None:
        print_grid(f"tool graph, {name_edge_source(of.pack)}", list_graph_rows(figures), to)
    if of.is_gym:
        print_gyms([len(of.pack.tools)], of.calls, to)
    to.print(Text(f"\n{describe_played(of)}", style="bold"))
    if of.played is not None:
        print_trajectory(of.played, to)


def print_cells(title: str, head: Sequence[str], cells: pack_rows.Cells, to: Console) -> None:
    if cells:
        to.print(Text(f"\n{title}", style="bold"))
        shown = [n for n, name in enumerate(head) if name not in PAGE_ONLY]
        table = make_table(*(head[n] for n in shown))
        for row in cells:
            table.add_row(*(make_plain_text(row[n]) for n in shown))
        to.print(table)


def print_grid(title: str, rows: Rows, to: Console) -> None:
    if rows:
        to.print(Text(f"\n{title}", style="bold"), make_grid(rows))


def print_gyms(tools: Sequence[int], calls: Sequence[int], to: Console) -> None:
    """Print the statistics of CodeGym's Fig. 4."""
    print_grid("gyms", pack_rows.list_gym_rows(tools, calls), to)
    for name, values in (("tools", tools), ("calls to solve", calls)):
        bins = pack_rows.list_bins(values)
        if len(bins) > 1:
            most = max(count for _, count, _ in bins)
            line = draw_sparkline(count / most for _, count, _ in bins)
            to.print(make_plain_text(f"  {name}: {bins[0][0]} {line} {bins[-1][0]}"))


def describe_played(of: PackStatistics) -> str:
    if of.task is None or of.played is None:
        return f"no conversation: {of.not_played or 'no task has a solution'}"
    reward = of.played.reward.value if of.played.reward else None
    how = "as recorded in the pack" if of.recorded else "played now in the sandbox"
    return f"the reference of task {of.task.id}, {how}" + (f": reward {reward:g}" if reward is not None else "")


def write_pack_page(of: PackStatistics, path: Path) -> None:
    """Write the page of a pack, without scripts. Raises `UserError` if it cannot be written."""
    turns = fit_turns(of.played.messages)[0] if of.played else []
    tools, tasks = [len(of.pack.tools)], of.calls
    page = render_pack_page(
        title=of.pack.name,
        about=of.pack.description,
        summary=pack_rows.list_pack_rows(of),
        tables=[
            ("Tools", pack_rows.TOOL_HEAD, pack_rows.list_tool_cells(of)),
            ("Dropped tools", pack_rows.DROPPED_HEAD, pack_rows.list_dropped_cells(of)),
            ("Refused tasks", pack_rows.REASON_HEAD, pack_rows.list_reason_cells(of)),
            ("Stages (~: tokens are estimates)", pack_rows.STAGE_HEAD, pack_rows.list_stage_cells(of)),
            ("Difficulty", pack_rows.AGENT_HEAD, pack_rows.list_agent_cells(of)),
        ],
        prices=pack_rows.list_price_rows(of),
        measured=pack_rows.list_measured_cells(of),
        measured_head=pack_rows.TASK_HEAD,
        graphs=[
            (title, draw_markup(*graph), note)
            for title, graph, note in (
                ("Tables", make_table_graph(of.pack), "A table points to those that its foreign keys (→) name."),
                (
                    "Tools and tables",
                    make_access_graph(of.pack),
                    "Strong: writes; thin: reads, as the tools declare it.",
                ),
                (
                    f"Tool graph, {name_edge_source(of.pack)}",
                    make_tool_drawing(find_pack_graph(of.pack)),
                    "A tool points to those whose results it takes; light: it can do without. Dashed: a condition that they fulfil.",
                ),
            )
            if graph[0]
        ],
        gym=list_gym_parts(tools, tasks) if of.is_gym else [],
        gym_rows=pack_rows.list_gym_rows(tools, tasks) if of.is_gym else [],
        played=describe_played(of),
        turns=turns,
        more=len(of.played.messages) - len(turns) if of.played else 0,
    )
    save_page(page, path)


def list_gym_parts(tools: Sequence[int], calls: Sequence[int]) -> list[tuple[str, list[tuple[str, int, str]], int]]:
    """Histograms: name, bins, and the largest count."""
    parts = [(name, pack_rows.list_bins(values)) for name, values in (("tools", tools), ("calls to solve", calls))]
    return [(name, bins, max(count for _, count, _ in bins)) for name, bins in parts if len(bins) > 1]


def draw_markup(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> Markup:
    """Return a drawing as safe markup; its texts are already escaped."""
    return Markup(draw_graph(nodes, edges))


def render_pack_page(**values: object) -> str:
    environment = make_page_environment()
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "pretty": format_result,
        "arguments": format_arguments,
        "meaning": lambda code: code,
        "align": lambda name: name.lstrip(">"),
    }
    defaults = {
        "about": "", "prices": [], "measured": [], "measured_head": (), "graphs": [], "played": "", "turns": [], "more": 0,
    }  # fmt: skip
    style = Markup(read_page_file("page.css"))
    return environment.get_template("pack.html.j2").render({**defaults, **values, "style": style})


def list_folder_cells(found: Sequence[PackStatistics]) -> pack_rows.Cells:
    """A row for each pack, and the totals."""
    rows = [count_pack(of) for of in found]
    totals = [sum(row[n] for row in rows) for n in range(7)]
    runs = {of.record.identity: of for of in found if of.record}
    whole = [sum_record(of) for of in runs.values()]
    calls = [n for of in found for n in of.calls]
    cells = [
        (
            of.pack.name,
            of.recipe or "by hand",
            *format_counts_row(row[:6]),
            format_mean(of.calls),
            *format_price(*sum_record(of)),
        )
        for of, row in zip(found, rows, strict=True)
    ]
    known = [cost for _, cost, _ in whole if cost is not None]
    price = format_price(sum(n for n, _, _ in whole), sum(known) if known else None, any(e for _, _, e in whole))
    return [
        *cells,
        ("all", write_count(len(found), "pack"), *format_counts_row(totals[:6]), format_mean(calls), *price),
    ]


def count_pack(of: PackStatistics) -> tuple[int, ...]:
    """Tools kept and dropped, tests and failed ones, tasks and refused ones, and calls to solve."""
    record, outcomes = of.record, of.sum_outcomes()
    dropped = len(list_dropped_tools(record)) if record else 0
    return (
        len(of.pack.tools),
        dropped,
        len(of.pack.tests),
        outcomes["failure"],
        len(of.pack.tasks),
        of.count_refused().total(),
        sum(of.calls),
    )


def sum_record(of: PackStatistics) -> tuple[int, float | None, bool]:
    """Tokens and cost of a pack's synthesis, and whether tokens are estimated."""
    stages = of.record.stages if of.record else []
    costs = [stage.cost for stage in stages if stage.cost is not None]
    return sum(s.tokens for s in stages), sum(costs) if costs else None, any(s.estimated for s in stages)


def format_counts_row(values: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{value:,}" for value in values)


def format_mean(values: Sequence[int]) -> str:
    return f"{sum(values) / len(values):.2f}" if values else ""


def format_price(tokens: int, cost: float | None, estimated: bool) -> tuple[str, str]:
    return (f"{'~' if estimated else ''}{tokens:,}" if tokens else "", "" if cost is None else f"${cost:,.2f}")


def list_folder_rows(found: Sequence[PackStatistics]) -> Rows:
    """List the prices over all packs. Packs of one run share its record, which is counted once."""
    runs: dict[str, list[PackStatistics]] = {}
    for of in found:
        if of.record and of.record.stages:
            runs.setdefault(of.record.identity, []).append(of)
    price = RunPrice()
    for packs in runs.values():
        record = packs[0].record
        assert record is not None
        price.add(measure_price(record, [(len(of.pack.tools), len(of.pack.tasks)) for of in packs]))
    return pack_rows.list_price_texts(price) if runs else []


def print_folder(found: Sequence[PackStatistics], tools: ToolMap, to: Console) -> None:
    """Print the table of a folder's packs with totals, their structure, and the statistics of its gyms."""
    print_cells(FOLDER_TITLE, FOLDER_HEAD, list_folder_cells(found), to)
    print_grid("for each accepted", list_folder_rows(found), to)
    structures = measure_structures([of.pack for of in found])
    print_cells("structure of the tool graphs", STRUCTURE_HEAD, list_structure_cells(structures), to)
    if len(found) > 1:
        print_cells("likeness of the tools", MAP_HEAD, list_map_cells(tools), to)
    gyms = [of for of in found if of.is_gym]
    if gyms:
        print_gyms([len(of.pack.tools) for of in gyms], [n for of in gyms for n in of.calls], to)


def write_folder_page(found: Sequence[PackStatistics], tools: ToolMap, title: str, path: Path) -> None:
    """Write the page of a folder of packs. Raises `UserError` if it cannot be written."""
    gyms = [of for of in found if of.is_gym]
    counts, calls = [len(of.pack.tools) for of in gyms], [n for of in gyms for n in of.calls]
    structures = measure_structures([of.pack for of in found])
    page = render_pack_page(
        title=title,
        summary=[("packs", str(len(found))), ("gyms", str(len(gyms)))],
        tables=[
            (FOLDER_TITLE.capitalize(), FOLDER_HEAD, list_folder_cells(found)),
            ("Structure of the tool graphs", STRUCTURE_HEAD, list_structure_cells(structures)),
            ("Likeness of the tools", MAP_HEAD, list_map_cells(tools) if len(found) > 1 else []),
        ],
        prices=list_folder_rows(found),
        graphs=[
            (
                "Tools, tables and density",
                Markup(draw_structures(structures)),
                "A bubble for each pack; the larger and stronger, the denser its tool graph (ScaleEnv, Fig. 5).",
            ),
            ("Map of the tools", Markup(draw_map(tools)), describe_map(tools)),
        ],
        gym=list_gym_parts(counts, calls),
        gym_rows=pack_rows.list_gym_rows(counts, calls),
    )
    save_page(page, path)
