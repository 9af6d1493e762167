"""An endpoint with known errors: it simulates a pack's tools and judges episodes exactly, except for a chosen share of wrong replies.

It reads only the prompts, as a model does. For tools it runs the pack's code on the state in the prompt. For a verdict it repeats the
calls of the transcript from the task's initial state, and compares the state with that after the task's solution. Only the prompt
determines whether a reply is wrong, so the same question always gets the same answer.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from eval.simulator.answer_errors import corrupt_answer
from eval.simulator.code_simulator import CALL, CodeSimulator, cut_section
from simia.pack import Pack
from simia.sandbox.inside.drivers import make_driver
from simia.state import are_equal, merge_patch
from simia.task import Action, Task

Messages = Sequence[dict[str, Any]]


class StandIn:
    """Replies to the prompts of one pack. `answers`, `verdicts`: shares of wrong replies, 0 to 1; `seed`: selects the wrong replies."""

    def __init__(self, pack: Pack, *, answers: float = 0.0, verdicts: float = 0.0, seed: int = 0) -> None:
        self.pack, self.answers, self.verdicts, self.seed = pack, answers, verdicts, seed
        self.counts: Counter[str] = Counter()
        """Replies: `answers` and `verdicts`, and of them each kind of error and `flipped`."""
        self._simulator = CodeSimulator(pack)
        self._tasks = {task.instruction: task for task in pack.tasks}
        self._lock = threading.Lock()

    def reply(self, messages: Messages) -> str:
        """The reply to a prompt of the simulated world, or of the judge."""
        prompt = str(messages[1]["content"])
        with self._lock:  # the code of a pack is written for one thread
            chance = random.Random(f"{self.seed}\n{prompt}")
            return self._judge(prompt, chance) if "# What happened\n" in prompt else self._answer(prompt, chance)

    def _answer(self, prompt: str, chance: random.Random) -> str:
        answer = self._simulator.answer(prompt)
        self.counts["answers"] += 1
        if chance.random() < self.answers:
            call = CALL.fullmatch(cut_section(prompt, "Calls to answer now"))
            assert call is not None
            answer, kind = corrupt_answer(
                answer, self._simulator.read_state(prompt), json.loads(call["arguments"]), chance
            )
            self.counts[kind] += 1
        return json.dumps({"answers": [{"call": 1, **answer}]})

    def _judge(self, prompt: str, chance: random.Random) -> str:
        task = self._tasks[cut_section(prompt, "What the user wanted")]
        solved = are_equal(self._play(task, read_calls(prompt)), self._play(task, task.actions))
        self.counts["verdicts"] += 1
        if chance.random() < self.verdicts:
            solved = not solved
            self.counts["flipped"] += 1
        return json.dumps({"why": "by the state at the end", "solved": solved})

    def _play(self, task: Task, calls: Sequence[Action]) -> Any:
        """Return the state after these calls from the start of a task. A refused call changes nothing."""
        driver = make_driver(self._simulator.loaded, isolated=True)
        state = task.initial.get("state") or merge_patch(self._simulator.loaded.pristine, task.initial.get("patch", {}))
        driver.reset({"state": state}, 0)
        for number, call in enumerate(calls):
            try:
                driver.call(call.by, call.name, call.arguments, number)
            except Exception as error:
                if not getattr(type(error), "__simia_refusal__", False):
                    raise
        return driver.dump()


def read_calls(prompt: str) -> list[Action]:
    """Return the assistant's successful calls in a judge's prompt, in order."""
    rows = [json.loads(line) for line in prompt.splitlines() if line.startswith('{"turn":')]
    failed = {row["answers_call"] for row in rows if row["by"] == "tool" and "error" in row}
    return [
        Action(name=call["name"], arguments=call["arguments"])
        for row in rows if row["by"] == "assistant"
        for call in row.get("calls", []) if "arguments" in call and call["call"] not in failed
    ]  # fmt: skip


@contextmanager
def serve(stand_in: StandIn) -> Iterator[str]:
    """Serve chat completions on a free port of loopback; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": stand_in.reply(body["messages"])}
            reply = {
                "id": "0", "object": "chat.completion", "created": 0, "model": body["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            }  # fmt: skip
            data = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
