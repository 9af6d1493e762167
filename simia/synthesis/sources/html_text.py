"""The visible text of an HTML page, a paragraph for each block."""

from __future__ import annotations

from html.parser import HTMLParser

HIDDEN = frozenset({"script", "style", "template", "noscript", "head", "svg"})
INLINE = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "kbd", "mark", "q", "small", "span", "strong", "sub", "sup", "u"}
)


class VisibleText(HTMLParser):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, or a part that is not shown."""
        self._hidden += tag in HIDDEN
        if tag not in INLINE:
            self._parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """End a block, or a part that is not shown."""
        self._hidden = max(0, self._hidden - (tag in HIDDEN))
        if tag not in INLINE:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Keep text that is shown."""
        if not self._hidden:
            self._parts.append(data.replace("\n", " "))

    def join(self) -> str:
        """The paragraphs, with an empty line between two of them."""
        lines = (" ".join(line.split()) for line in "".join(self._parts).split("\n"))
        return "\n\n".join(line for line in lines if line)


def extract_text(page: str) -> str:
    """Return the visible text of a page."""
    reader = VisibleText()
    reader.feed(page)
    reader.close()
    return reader.join()
