"""An agent that plays the reference, with ids replaced by those that the tools of this world made.

A reference names the ids that the pack's code makes (`GU-4920`). A model that plays the tools makes other ids, and a fixed script would
continue with ids that do not exist there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from simia.envs.play.baseline_agents import Act, ReferenceAgent
from simia.envs.users import EpisodeView
from simia.envs.worlds.compare_worlds import rename_identifiers
from simia.json_values import iterate_strings
from simia.task import Task
from simia.trajectory import Message

ID = re.compile(r"\b[A-Za-z][A-Za-z_]*[-_#]?\d[A-Za-z0-9-]*\b")
DIGITS = re.compile(r"\d+")


class FollowingAgent(ReferenceAgent):
    """Plays the reference. A scripted id that no message contains is replaced by a new id of the same form from a result."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        super().__init__(task, seed)
        self._scripted = {each for message in self._messages for each in list_ids(message)}
        self._made: dict[str, str] = {}

    async def act(self, view: EpisodeView) -> Act:
        message, sample = await super().act(view)
        seen = {each for text in (view.system or "", *(m.text for m in view.messages)) for each in ID.findall(text)}
        for scripted in list_ids(message):
            if scripted not in seen and scripted not in self._made:
                found = self._find_made(view, read_form(scripted))
                if found is not None:
                    self._made[scripted] = found
        return rename(message, self._made) if self._made else message, sample

    def _find_made(self, view: EpisodeView, form: str) -> str | None:
        """Return a new id of a form, one that the script does not have: from the result with the fewest such ids, the latest of equals."""
        known = {*self._scripted, *self._made.values()}
        rows = [
            [each for each in dict.fromkeys(ID.findall(m.text)) if each not in known and read_form(each) == form]
            for m in reversed(view.messages)
            if m.role == "tool"
        ]
        return next((row[0] for row in sorted(filter(None, rows), key=len)), None)


def read_form(text: str) -> str:
    """Return the form of an id, in which every number is 0: the same for all ids of one kind."""
    return DIGITS.sub("0", text)


def list_ids(message: Message) -> list[str]:
    """The ids in a message's text and in the arguments of its calls."""
    texts = [message.text, *(text for call in message.calls for text in iterate_strings(call.arguments))]
    return [each for text in texts for each in ID.findall(text)]


def rename(message: Message, made: Mapping[str, str]) -> Message:
    """The message with ids replaced."""
    calls = [call.model_copy(update={"arguments": rename_identifiers(call.arguments, made)}) for call in message.calls]
    content = message.content
    if isinstance(content, str):
        content = ID.sub(lambda found: made.get(found.group(), found.group()), content)
    return message.model_copy(update={"calls": calls, "content": content})
