"""Write docs/reference/packs.md: every field of a pack's files, from the models that read them.

python -m scripts.pack_reference            (writes the page; a test compares it)
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from scripts.api_reference import annotation_of, code, describe_field, write_docstring, write_table
from simia import pack, pack_provenance, reward_spec, state_schema, task, tool_test
from simia.tool import ToolSpec

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "packs.md"
HEAD = """\
# Fields of a pack

Every field of a pack's files, format 2. Written by `python -m scripts.pack_reference` from the models that read them; do not edit
it. What the files are for, with recipes: [packs.md](../packs.md).
"""
FILES: dict[str, list[type[BaseModel]]] = {
    "pack.yaml": [
        pack.PackFile,
        pack.ExecutableSpec,
        state_schema.StateSchema,
        state_schema.TableSpec,
        state_schema.ColumnSpec,
        task.CallLimits,
        pack_provenance.PackProvenance,
        pack_provenance.SourceQuote,
    ],
    "tools.json": [ToolSpec],
    "graph.jsonl": [pack_provenance.ToolEdge],
    "tasks.jsonl": [
        task.Task,
        task.Action,
        task.ScriptTurn,
        task.Goal,
        task.GoalCall,
        task.Reveal,
        task.WithheldFact,
        task.Measurement,
        reward_spec.RewardSpec,
        reward_spec.StateSpec,
        reward_spec.ChecklistSpec,
        reward_spec.TraceSpec,
        reward_spec.AnswerSpec,
        reward_spec.ValueSpec,
        reward_spec.GoalsSpec,
        reward_spec.PenaltySpec,
    ],
    "tests.jsonl": [tool_test.ToolTest, tool_test.Expectation],
}


def write_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, models in FILES.items():
        parts.append(f"## {name}\n")
        for model in models:
            rows = [
                (f"`{field.alias or key}`", code(annotation_of(model, key)), *describe_field(field))
                for key, field in model.model_fields.items()
            ]
            parts += [f"### {model.__name__}\n", write_docstring(model)]
            parts.append(write_table(("field", "type", "default", "description"), rows))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
