"""Runs inside the bfcl environment: BFCL's own checker over episodes, given as JSON on stdin.

Each episode is `{"task": row of BFCL's file, "truth": its ground truth, "turns": [[calls of a message as text, …], …]}`; stdout has for each
an empty text where the checker finds it valid, and else its type of error.
"""

import contextlib
import io
import json
import sys

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker


def check(number, episode):
    task = episode["task"]
    with contextlib.redirect_stdout(io.StringIO()):
        found = multi_turn_checker(
            episode["turns"], episode["truth"], task, task["id"].rsplit("_", 1)[0], f"model{number}"
        )
    return "" if found["valid"] else found["error_type"]


json.dump([check(*each) for each in enumerate(json.load(sys.stdin))], sys.stdout)
