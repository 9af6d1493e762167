"""Short prompts for small models that are trained on the rows of `simia export --to simulator`.

The rules are a few lines and the same for every pack, so a prefix cache serves them for all packs. The request shows only the called tool,
the rows that the call can read or write, and the call. Earlier answers are in the state, so no history is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.envs.worlds.simulated.feedback import AnsweredCall, Feedback, describe_tool
from simia.envs.worlds.simulated.result_examples import ExampleCall
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall, write_compact_json


class BriefFeedback(Feedback):
    """Prompts of `dialect: brief`, for a held state. Replies have the form of `simia`."""

    def name_prompts(self) -> tuple[str, str]:
        return "simulated/brief_system.j2", "simulated/brief_request.j2"

    def find_examples(self) -> dict[str, list[ExampleCall]]:
        return {}

    def describe_tools(self) -> list[dict[str, Any]]:
        return []

    def state_messages(
        self,
        task: Task,
        history: Sequence[AnsweredCall],
        call: tuple[str, ToolCall],
        *,
        state: str,
        source: str = "",
        time: str = "",
    ) -> list[dict[str, Any]]:
        _, asked = call
        tools: dict[str, ToolSpec] = {tool.name: tool for tool in (*self.pack.tools, *self.pack.user_tools)}
        text = self._request.render(
            tool=describe_tool(tools[asked.name], []),
            state=state,
            source=source,
            time=time,
            arguments=write_compact_json(asked.arguments or {}),
        ).strip()
        return [{"role": "system", "content": self.system}, {"role": "user", "content": text}]
