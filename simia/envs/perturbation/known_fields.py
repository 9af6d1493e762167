"""The fields of a tool's results, as far as they are known without running the pack's code."""

from __future__ import annotations

from simia.envs.perturbation.effects import list_fields
from simia.envs.worlds.simulated.result_examples import iterate_training_references
from simia.pack import Pack
from simia.prompts import decode_result


def collect_fields(pack: Pack, tool: str) -> list[str]:
    """Names of the plain fields of a tool's results, sorted: those that its schema requires, else those of the first recorded result that
    succeeded, in the pack's seeds or the references of its training tasks."""
    spec = next((each for each in pack.tools if each.name == tool), None)
    schema = spec.result_schema if spec is not None else None
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        plain = [name for name, each in properties.items() if not is_nested(each)]
        return sorted(set(schema.get("required", plain)) & set(plain))
    for recorded in (*pack.seeds, *iterate_training_references(pack)):
        names = {call.id: call.name for _, _, call in recorded.calls()}
        for message in recorded.messages:
            answers = message.role == "tool" and names.get(message.call_id or "", message.name) == tool
            fields = list_fields(decode_result(message.text)) if answers and message.error is None else []
            if fields:
                return fields
    return []


def is_nested(schema: object) -> bool:
    """Whether a schema describes an object or a list."""
    return isinstance(schema, dict) and schema.get("type") in ("object", "array")
