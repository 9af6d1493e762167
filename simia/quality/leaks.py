"""Find leaks: turns that contain the format's markup, words of the prompt or an unfilled placeholder.

One search over all texts is enough for nearly every trajectory; the turns are searched one by one only after a match.
Tool results may quote anything except the markup of chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from simia.errors import Code, Issue
from simia.quality.trajectory_view import TrajectoryView

# Markup that ends or starts a turn when a trainer renders it: wrong in any text, also a result's.
TEMPLATE_MARKERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|assistant|>")
LEAK_MARKERS = (
    *TEMPLATE_MARKERS,
    *("<tool_call", "</tool_call", "<tool_response", "</tool_response", "<function=", "<function_call"),
    *("<user>", "</user>", "<assistant>", "</assistant>", "<tool>", "</tool>", "<think>", "</think>"),
    *("[inst]", "[/inst]", "<<sys>>", "```tool_call"),
    *(
        "seed trajectory",
        "exemplar",
        "example trajectory",
        "example conversation",
        "new conversation of similar length",
    ),
    *("simulated tool", "simulated result", "play every side", "form of your reply", "training data for an assistant"),
    *("as an ai language model", "as a large language model", "my system prompt", "the system prompt says"),
    *("lorem ipsum", "example_value", "your_email", "your-email@", "insert_here"),
)
# <order_id>, <ORDER ID>, <your name>; [Your Name], [order id]; {{customer}}. Neither HTML nor an index nor a link.
PLACEHOLDER = re.compile(
    r"(?<![\w>])<(?:[a-z]+(?:_[a-z]+)+|[A-Z]+(?:[_ ][A-Z]+)*|(?:your|insert|customer|order|product|first|last|full)"
    r"[ -][A-Za-z ]{1,30})>"
    r"|(?<!\w)\[(?:(?:[Yy]our|YOUR|[Ii]nsert|INSERT|[Ee]nter|[Cc]ustomer|[Uu]ser|[Rr]ecipient|[Aa]gent|[Cc]ompany|"
    r"[Ff]irst|[Ll]ast|[Ff]ull|[Oo]rder|[Pp]roduct|[Tt]racking|[Pp]hone|[Ee]mail)[ _'’][A-Za-z '’_]{1,30}|"
    r"[Nn]ame|NAME|[Dd]ate|[Ee]mail|[Aa]ddress|[Pp]laceholder|PLACEHOLDER)\](?![(\[])"
    r"|\{\{\s*[A-Za-z_][\w. ]{0,40}\}\}"
)


# All that PLACEHOLDER finds and a little more, in lower case.
MAYBE_PLACEHOLDER = re.compile(r"<[a-z]+[a-z_ -]*>|\[[a-z][a-z '’_]*\]|\{\{")
# What a small model says in place of a call (seen in recordings/small-tagged).
WRITTEN_CALL = re.compile(r'[\s>`*:#-]*\{\s*"name"\s*:\s*"[^"]+"\s*,\s*"(arguments|parameters)"\s*:')


def find_leaks(view: TrajectoryView, markers: Sequence[str]) -> Iterator[Issue]:
    """Report at most one finding per turn: its first marker, or a call that is written as text."""
    t = view.t
    if '"name"' in view.style:
        for i, (message, text) in enumerate(zip(t.messages, view.texts, strict=True)):
            if message.role == "assistant" and WRITTEN_CALL.match(text):
                yield Issue(code=Code.LEAK, where=f"messages[{i}]", detail="a call stands there as text")
    if not find_marker(view.style, markers) and not find_placeholder(view.style, MAYBE_PLACEHOLDER):
        return
    for i, (message, text) in enumerate(zip(t.messages, view.texts, strict=True)):
        if message.role == "tool":
            found = find_marker(view.lows[i], TEMPLATE_MARKERS)
        elif message.role != "system":
            whole = "\n".join([text, message.reasoning or "", *(given.decode() for given in view.arguments[i])])
            found = find_marker(whole.lower(), markers) or find_placeholder(whole)
        else:
            found = None
        if found:
            yield Issue(code=Code.LEAK, where=f"messages[{i}]", detail=f"it shows {found[:60]!r}")


def contains_words(marker: str, text: str) -> bool:
    """Return whether the marker occurs as whole words: "exemplary" contains no "exemplar"."""
    at = text.find(marker)
    while at >= 0:
        end = at + len(marker)
        starts = at == 0 or not (marker[0].isalnum() and text[at - 1].isalnum())
        if starts and not (marker[-1].isalnum() and text[end : end + 1].isalnum()):
            return True
        at = text.find(marker, at + 1)
    return False


def find_marker(low: str, markers: Sequence[str]) -> str | None:
    """Return the first marker in a lower-case text."""
    for first, group in group_markers(tuple(markers)):
        if first and first not in low:
            continue  # half of the markers are markup: none of them can be where no such bracket is
        for word, marker in group:
            if word in low and contains_words(word, low):
                return marker
    return None


@cache
def group_markers(markers: tuple[str, ...]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Group markers by their first bracket ("" for none): [(bracket, [(in lower case, as given)])]."""
    groups: dict[str, list[tuple[str, str]]] = {"<": [], "[": [], "": []}
    for marker in markers:
        groups[marker[:1] if marker[:1] in groups else ""].append((marker.lower(), marker))
    return list(groups.items())


def find_placeholder(text: str, pattern: re.Pattern[str] = PLACEHOLDER) -> str | None:
    """Return the first placeholder. Only brackets are tried: matching at every character would be slow."""
    for bracket in ("<", "[", "{{"):
        at = text.find(bracket)
        while at >= 0:
            if found := pattern.match(text, at):
                return found[0]
            at = text.find(bracket, at + 1)
    return None
