"""Count outcomes, tokens and cost by the model that wrote the items, for a run with several models."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from simia.errors import Code
from simia.jobs.tables import COST, build_token_sum
from simia.report.result_counts import VERDICT
from simia.report.run_statistics import ModelOutcomes, ReplyTotals

WRITER = "COALESCE(item.spec ->> '$.writer', 0)"
ITEMS = f"""
SELECT {WRITER}, {VERDICT}, reason, COUNT(*) FROM item LEFT JOIN accepted ON accepted.ord = item.ord
WHERE stage = 'amplify' GROUP BY 1, 2, 3
"""
TOKENS = f"""
SELECT {WRITER}, COUNT(*), {build_token_sum("prompt")}, {build_token_sum("completion")}, {build_token_sum("cached")}, {COST}, COUNT(cost)
FROM attempt JOIN item ON item.id = attempt.item WHERE attempt.status = 'got' GROUP BY 1
"""


def count_models(connection: sqlite3.Connection, facts: Mapping[str, Any]) -> list[ModelOutcomes]:
    """Count items and spending by model. Empty for a run of one model. `facts`: the facts that identify the run."""
    if not facts.get("mix"):
        return []
    models = [
        ModelOutcomes(model=str(each.get("model")), alias=str(each.get("alias")), weight=float(each.get("weight", 1)))
        for each in (facts, *facts["mix"])
    ]
    for place, verdict, reason, count in connection.execute(ITEMS):
        for _ in range(count):
            models[place].add(verdict, str(reason or Code.INTERNAL))
    for place, *figures in connection.execute(TOKENS):
        models[place].spent = ReplyTotals(*(value or 0 for value in figures))
    return models
