"""The console of all commands. It removes control sequences from printed text and never interprets text as markup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from simia.terminal import CONTROL, clean

WIDEST = 10_000  # characters of a line in a file


class Terminal(Console):
    """rich's console without markup, emoji codes and highlighting. All text passes `clean`, also in tables and live panels."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(clean(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None and CONTROL.search(segment.text):
                yield Segment(clean(segment.text), segment.style)
            else:
                yield segment


def make_plain_text(text: str, style: str = "") -> Text:
    """Return the text without control characters and without interpreting markup."""
    return Text(clean(text), style=style)


def print_whole(table: Table, to: Console) -> None:
    """Print a table. If the output is not a terminal, such as a log file, no cell is cut or wrapped."""
    if to.is_terminal:
        to.print(table)
    else:
        print_uncut(table, to)


def print_uncut(table: Table, to: Console) -> None:
    """Print a table without cutting or wrapping a cell, also where its lines are longer than a terminal's."""
    before, needed = to.width, to.measure(table, options=to.options.update(max_width=WIDEST)).maximum
    to.width = max(before, needed)
    to.print(table)
    to.width = before


def make_table(*names: str) -> Table:
    """Make a table without lines; `>` before a name right-aligns its column."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        number = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table
