"""Files for LLaMA-Factory: rows that fit its context, `dataset_info.json`, `train.yaml` and the DeepSpeed config.

A row's length is estimated as the sum of its parts plus the tokens of the chat template, rather too high than too low: the trainer
would cut a row that is too long in the middle of a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from simia import search_path
from simia.errors import Code, Issue, UserError
from simia.exporting.export_records import ExportRow, Segment, Template
from simia.exporting.token_estimate import CountTokens, estimate_tokens
from simia.formats import llamafactory
from simia.quality.suites import detect_suite
from simia.trajectory import Trajectory

RESERVE = 2  # tokens: one for packing, one for the trainer's rounding of a row that fills the context exactly
TURN_TOKENS = 28  # role, end of turn, <tool_response> around a result, an empty thinking block
CALL_TOKENS = 10  # <tool_call> around a call
SYSTEM_TOKENS = 140  # the template's words about tools
TOOL_TOKENS = 12  # the wrapper around each tool
# Default system texts of templates, for rows without one; other templates have none.
OWN_SYSTEM: dict[Template, str] = {"qwen": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}

DATASET_INFO = {
    "simia": {
        "file_name": "data.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "system": "system", "tools": "tools"},
        "tags": {
            "role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt",
            "observation_tag": "observation", "function_tag": "function_call",
        },
    }
}  # fmt: skip


class ModelEntry(BaseModel):
    """One model of configs/llamafactory/models.yaml."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="The weights: a name on the Hub or a folder.")
    template: Template = Field(description="LLaMA-Factory's chat template of it.")

    @classmethod
    def named(cls, name: str) -> ModelEntry:
        """Load one model by name. Raises `UserError` with the known names."""
        file = search_path.find_resource("configs", "llamafactory/models.yaml")
        try:
            models = TypeAdapter(dict[str, cls]).validate_python(yaml.safe_load(file.read_text(encoding="utf-8")))  # type: ignore[valid-type]
        except (yaml.YAMLError, ValidationError) as error:
            raise UserError(f"{file} is not a list of models: {' '.join(str(error).split())[:200]}") from None
        if name not in models:
            raise UserError(f"no model is named {name!r} in {file.name}; there are: {', '.join(models)}")
        return models[name]


@dataclass
class LLaMAFactoryWriter:
    """Rows and configuration for one export."""

    segment: Segment
    reasoning: bool | None
    template: Template
    cutoff: int
    count: CountTokens | None = None
    model: ModelEntry | None = None
    step_reasons: bool = False

    def __post_init__(self) -> None:
        # Without reasoning the qwen3 template would add an empty thinking block to every turn, and train on it.
        if self.template == "qwen3" and not self.reasoning:
            self.template = "qwen3_nothink"
        self._count = self.count or estimate_tokens
        # System text and tools repeat from row to row of one pack.
        self._count_shared = lru_cache(maxsize=256)(self._count)

    @property
    def joint(self) -> str:
        """The text between the results of parallel calls."""
        return llamafactory.LLAMA3_RESULT_JOINT if self.template == "llama3" else llamafactory.RESULT_JOINT

    def count_tokens(self, text: str) -> int:
        """Count or estimate the tokens of a text."""
        return self._count(text)

    def keeps_reasoning(self, t: Trajectory) -> bool:
        """Whether this trajectory's reasoning is trained: as set; if not set, whether the prompt of its suite requires reasoning."""
        return detect_suite(t).reasoned if self.reasoning is None else self.reasoning

    def rows(self, t: Trajectory) -> Iterator[ExportRow | Issue]:
        """Yield the trajectory's rows, or an issue for each row that the trainer would not represent exactly."""
        try:
            c = llamafactory.convert_conversation(t, reasoning=self.keeps_reasoning(t), joint=self.joint)
            if self.segment == "whole":
                row = llamafactory.write_whole(c)
        except llamafactory.UntrainableError as unfit:
            yield unfit.issue
            return
        lengths = self.lengths(c)
        if self.segment == "whole":
            yield self.check_length(row, sum(turn.trained for turn in c.turns), lengths[-1])
            return
        for end in llamafactory.list_segment_ends(c):
            yield self.check_length(c.row(end), 1, lengths[end - 1])

    def check_length(self, row: dict[str, Any], trained: int, tokens: int) -> ExportRow | Issue:
        return self.explain_excess(tokens, row["turn"]) or ExportRow(
            json.dumps(row, ensure_ascii=False), trained, tokens
        )

    def explain_excess(self, tokens: int, place: int) -> Issue | None:
        """Return the issue of a row of this length that ends with message `place`; None if it fits."""
        if tokens + RESERVE <= self.cutoff:
            return None
        detail = (
            f"{tokens} tokens, at most {max(0, self.cutoff - RESERVE)} fit into a cutoff of {self.cutoff}: set --cutoff"
        )
        return Issue(code=Code.OVER_BUDGET, where=f"messages[{place}]", detail=detail)

    def count_head(self, system: str, tools: str) -> int:
        """Return an upper estimate of the tokens before the first turn. `tools`: JSON text."""
        listed = json.loads(tools) if tools else []
        # The llama3 template prints each tool over many indented lines.
        shown = json.dumps(listed, ensure_ascii=False, indent=4) if self.template == "llama3" else tools
        system = system or OWN_SYSTEM.get(self.template, "")
        return self._count_shared(system) + self._count_shared(shown) + SYSTEM_TOKENS + TOOL_TOKENS * len(listed)

    def count_trajectory(self, t: Trajectory) -> int:
        """Return an upper estimate of the tokens of a whole trajectory with its reasoning."""
        total = self.count_head(t.system or "", json.dumps([tool.flat() for tool in t.tools], ensure_ascii=False))
        for m in t.messages:
            calls = [json.dumps([call.name, call.arguments], ensure_ascii=False) for call in m.calls]
            texts = (m.text, m.reasoning or "", *calls)
            total += sum(map(self._count, texts)) + TURN_TOKENS + CALL_TOKENS * len(calls)
        return total

    def lengths(self, c: llamafactory.TrainerConversation) -> list[int]:
        """Return for each turn an upper estimate of the row's tokens up to and including it."""
        head = self.count_head(c.system, c.tools)
        each = [self._count(turn.value) + TURN_TOKENS + CALL_TOKENS * turn.calls for turn in c.turns]
        return [head + total for total in accumulate(each)]

    def recipe_values(self) -> dict[str, str]:
        """Return the values of train.yaml that belong to the rows, and the weights of a named model."""
        values = {
            "dataset": "simia",
            "template": self.template,
            "cutoff_len": str(self.cutoff),
            "mask_history": "true" if self.segment == "turns" else "false",
        }
        if self.model is not None:
            values["model_name_or_path"] = self.model.path
        return values

    def configuration(self) -> Iterator[tuple[str, str]]:
        """Yield (file name, text) of each file that the trainer needs in addition to the data."""
        yield "dataset_info.json", json.dumps(DATASET_INFO, indent=2) + "\n"
        yield "ds_zero3.json", read_config_text("ds_zero3.json")
        yield "train.yaml", set_recipe_values(read_config_text("sft.yaml"), self.recipe_values())


def read_config_text(name: str) -> str:
    return search_path.find_resource("configs", f"llamafactory/{name}").read_text(encoding="utf-8")


def set_recipe_values(recipe: str, changes: dict[str, str], name: str = "sft") -> str:
    """Replace the values of these keys in the recipe; comments stay."""
    for key, value in changes.items():
        recipe, found = re.subn(rf"(?m)^{key}:[ ]*[^\s#]*", f"{key}: {value}", recipe)
        if found != 1:
            raise UserError(f"configs/llamafactory/{name}.yaml must have exactly one line for {key!r}; it has {found}")
    return recipe
