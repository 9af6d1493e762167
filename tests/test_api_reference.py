"""docs/reference/api.md is what `scripts/api_reference.py` writes, and its links lead somewhere."""

from __future__ import annotations

import re

import simia
from scripts.api_reference import PAGE, write_docstring, write_page


def test_the_page_is_current() -> None:
    assert write_page() == PAGE.read_text(encoding="utf-8"), "run: python scripts/api_reference.py"


def test_every_public_name_has_a_section() -> None:
    sections = re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert sections[: len(simia.__all__) - 1] == simia.__all__[1:]
    assert {name.lower() for name in re.findall(r"\]\(#(\w+)\)", PAGE.read_text("utf-8"))} == set(
        map(str.lower, sections)
    )


def test_sections_of_a_docstring_become_markdown() -> None:
    def function() -> None:
        """Do it.

        Args:
            a: First
                line.
            b: Second.

        Raises:
            UserError: Never.

        Plain text.
        """

    assert write_docstring(function) == (
        "Do it.\n\n**Arguments**\n\n- `a`: First\n  line.\n- `b`: Second.\n\n**Raises**\n\n- `UserError`: Never.\n\nPlain text.\n"
    )
