"""Our parser beside json-repair alone, over the corpus of malformed replies (tests/corpus).

    python eval/bench/repair.py [--wrong]

Right: the messages that a careful reader makes of the text, or a refusal where it has no single reading. Refused: readable, and we
would not. Silently wrong: something else than what stands there, which is the one thing that must not happen. json-repair alone
means `json_repair.loads` over the whole text and the messages taken as they come. The last line is one JSON object; exit 1 where
less than 95 % are right or one is silently wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import json_repair

from simia.amplify.parse import parse_reply
from simia.trajectory import Message

CORPUS = Path(__file__).parents[2] / "tests" / "corpus"
Row = dict[str, Any]


def rows() -> list[Row]:
    files = (CORPUS / "made.jsonl", CORPUS / "model.jsonl")
    return [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def value(text: Any) -> Any:
    """A result is the same whether it stands as JSON or as its text."""
    if not isinstance(text, str):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip()
    return found if isinstance(found, dict | list) else text.strip()


def plain(role: Any, content: Any, reasoning: Any, calls: list[Any]) -> list[Any]:
    said = value(content) if role == "tool" else (content or "").strip() if isinstance(content, str | None) else content
    return [role, said, (reasoning or "").strip() if isinstance(reasoning, str | None) else reasoning, calls]


def expected(row: Row) -> list[Any] | None:
    if row["expect"] is None:
        return None
    return [
        plain(m["role"], m.get("content"), m.get("reasoning"), [[c["name"], c["arguments"]] for c in m.get("calls", [])])
        for m in row["expect"]
    ]


def of_messages(messages: list[Message]) -> list[Any]:
    return [plain(m.role, m.text, m.reasoning, [[c.name, c.arguments] for c in m.calls]) for m in messages]


def ours(row: Row) -> list[Any] | None:
    parsed = parse_reply(row["text"])
    return of_messages(parsed.messages) if parsed.messages and not parsed.issues else None


def alone(row: Row) -> list[Any] | None:
    try:
        found = json_repair.loads(row["text"])
    except (ValueError, RecursionError, IndexError):
        return None
    messages = found.get("messages") if isinstance(found, dict) else found
    if not isinstance(messages, list) or not messages:
        return None
    told = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        calls = message.get("calls") or []
        named = [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
        pairs = [[call.get("name"), call.get("arguments")] for call in named]
        told.append(plain(message.get("role"), message.get("content"), message.get("reasoning"), pairs))
    return told


def verdict(row: Row, got: list[Any] | None) -> str:
    want = expected(row)
    if got is None:
        return "right" if want is None else "refused"
    return "right" if json.dumps(got, sort_keys=True) == json.dumps(want, sort_keys=True) else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true", help="list every row that is not right")
    args = parser.parse_args()
    corpus = rows()
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("simia", "json-repair")}
    kinds: dict[str, Counter[str]] = {}
    for row in corpus:
        mine = verdict(row, ours(row))
        counts["simia"][mine] += 1
        counts["json-repair"][verdict(row, alone(row))] += 1
        kinds.setdefault(f"{row['form']}, {row['kind']}", Counter())[mine] += 1
        if args.wrong and mine != "right":
            print(f"{mine:8}{row['id']}  {row['form']}: {row['kind']}")
    real = sum(row["source"] == "model" for row in corpus)
    print(f"{len(corpus)} replies, {real} of them real models', {len(kinds)} kinds")
    print(f"{'':14}{'right':>8}{'refused though readable':>26}{'silently wrong':>17}")
    for name, found in counts.items():
        print(f"{name:14}{found['right'] / len(corpus):>8.1%}{found['refused']:>26}{found['wrong']:>17}")
    share, wrong = counts["simia"]["right"] / len(corpus), counts["simia"]["wrong"]
    short = [f"{share:.1%} right, bound 95 %"] if share < 0.95 else []
    short += [f"{wrong} silently wrong"] if wrong else []
    print(
        json.dumps(
            {
                "replies": len(corpus),
                "real": real,
                "right": round(share, 4),
                "silently_wrong": wrong,
                "json_repair_right": round(counts["json-repair"]["right"] / len(corpus), 4),
                "json_repair_silently_wrong": counts["json-repair"]["wrong"],
                "falls_short": short,
            }
        )
    )
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
