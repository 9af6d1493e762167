"""The client of `vllm serve` against a small server that speaks its protocol: schedules, rows, and what each mistake is answered with.

tests/trainers/test_trl_vllm.py does the same with vLLM itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.trainers.trl import rollout_func
from simia.trainers.trl.rollout import Rollout
from simia.trainers.trl.vllm_sampler import DRIFT, VLLMSampler, report_server_errors
from tests.trainers.test_tokens import END, Letters

TASKS = ["lamps-0", "lamps-1", "lamps-2"]
Change = Callable[[dict[str, Any]], Any]


class Vocabulary(Letters):
    def __len__(self) -> int:
        return 128


TOKENIZER = Vocabulary()


class Served:
    """Plays every task of the pack rightly. `change` alters a reply, `wait` is awaited before each."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.models: Any = {"data": [{"id": "policy", "max_model_len": 4096}]}
        self.tokenizer: Letters = TOKENIZER
        self.change: Change = lambda reply: reply
        self.status = 200

    async def wait(self, context: str) -> None:
        await asyncio.sleep(0)

    async def complete(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.requests.append(asked)
        context = "".join(map(chr, asked["prompt"]))
        await self.wait(context)
        if self.status != 200:
            return web.json_response(
                {"error": {"message": "The model\nis busy", "code": self.status}}, status=self.status
            )
        heard = context.rsplit("user\n", 1)[1]
        text = "Done."
        if " lamp on" in heard or " lamp off" in heard:
            lamp = heard.split("the ")[1].split(" lamp")[0]
            call = {"name": "switch", "arguments": {"lamp": lamp, "on": " lamp on" in heard}}
            text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        ids = [*map(ord, text), END][: asked["max_tokens"]]
        choice = {
            "token_ids": ids,
            "prompt_token_ids": asked["prompt"],
            "finish_reason": "stop" if ids[-1] == END else "length",
        }
        choice["logprobs"] = {"token_logprobs": [-0.5 - at / 100 for at in range(len(ids))]}
        return web.json_response(self.change({"choices": [choice]}))

    async def tokenize(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"tokens": self.tokenizer(asked["prompt"])["input_ids"]})

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response(self.models)


@contextmanager
def listening(served: Served) -> Iterator[str]:
    app = web.Application()
    app.add_routes(
        [
            web.get("/v1/models", served.list_models),
            web.post("/tokenize", served.tokenize),
            web.post("/v1/completions", served.complete),
        ]
    )
    runner = web.AppRunner(app)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    try:
        yield f"http://127.0.0.1:{event_loop.run(start())}"
    finally:
        event_loop.run(runner.cleanup())


def make_trainer(**changes: Any) -> Any:
    known = {
        "args": SimpleNamespace(max_completion_length=2000, generation_kwargs=None),
        "processing_class": TOKENIZER,
        "eos_token_ids": [END],
        "model": SimpleNamespace(training=True),
        "state": SimpleNamespace(global_step=4),
        "accelerator": SimpleNamespace(process_index=0),
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
    }
    return SimpleNamespace(**(known | changes))


@pytest.fixture(scope="module")
def environment(lamps: Path) -> Iterator[Environment]:
    opened = event_loop.run(open_environment(str(lamps), user="scripted"))
    yield opened
    event_loop.run(opened.close())


def play(environment: Environment, url: str, tasks: list[str] = TASKS, at_once: int = 8, **changes: Any) -> list[Any]:
    return Rollout(environment, make_trainer(**changes), VLLMSampler(url), 0, None).run(tasks, at_once)


def test_rows_are_what_was_sampled(environment: Environment) -> None:
    served = Served()
    with listening(served) as url:
        rows = play(environment, url)
    assert [row.episode.task.id for row in rows] == TASKS
    sampled = {tuple(request["prompt"]): request for request in served.requests}
    for row in rows:
        assert row.reward == 1.0
        assert row.turns == 4
        own = [i for i, mask in zip(row.completion_ids, row.mask, strict=True) if mask]
        assert own.count(END) == 4
        assert all((lp < 0) == bool(mask) for lp, mask in zip(row.logprobs, row.mask, strict=True))
        first = sampled[tuple(row.prompt_ids)]
        assert first["max_tokens"] == 2000
    asked = {name: value for name, value in served.requests[0].items() if name not in ("prompt", "max_tokens")}
    assert asked == {
        "model": "policy",
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": [END],
        "ignore_eos": True,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def test_an_episode_does_not_wait_for_a_slower_one(environment: Environment) -> None:
    """The first episode's first reply comes when the others' last one is asked for: in step with them that would never be."""

    class Slow(Served):
        others = 0

        def __init__(self) -> None:
            super().__init__()
            self.released = asyncio.Event()

        async def wait(self, context: str) -> None:
            if "Switch the kitchen" in context:
                await asyncio.wait_for(self.released.wait(), 20)
                return
            self.others += 1
            if self.others == 2 * 4:
                self.released.set()

    with listening(Slow()) as url:
        rows = play(environment, url)
    assert [row.reward for row in rows] == [1.0, 1.0, 1.0]


def test_at_once_bounds_the_episodes(environment: Environment) -> None:
    class Counting(Served):
        busy = most = 0

        async def wait(self, context: str) -> None:
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(0.02)
            self.busy -= 1

    served = Counting()
    with listening(served) as url:
        play(environment, url, at_once=1)
        assert served.most == 1
        play(environment, url, at_once=3)
        assert served.most > 1


def test_the_servers_context_ends_an_episode(environment: Environment) -> None:
    served = Served()
    with listening(served) as url:
        length = len(play(environment, url, ["lamps-0"])[0].prompt_ids)
        served.models["data"][0]["max_model_len"] = length + 5
        (row,) = play(environment, url, ["lamps-0"])
    assert len(row.completion_ids) == 5
    assert row.episode.end.code == "max_tokens"
    assert row.reward == 0.0


def test_a_server_that_fails_aborts_the_episode(environment: Environment) -> None:
    served = Served()
    served.status = 503
    with listening(served) as url:
        rows = play(environment, url)
    assert [row.reward for row in rows] == [None] * 3
    assert all(row.episode.end.kind == "aborted" for row in rows)
    assert "status 503" in rows[0].episode.issues[-1].detail


def without(*names: str) -> Change:
    def change(reply: dict[str, Any]) -> dict[str, Any]:
        choices = [{key: value for key, value in each.items() if key not in names} for each in reply["choices"]]
        return {"choices": choices}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"change": without("token_ids")}, r"returns no token ids"),
        ({"change": without("prompt_token_ids")}, r"returns no token ids"),
        ({"change": without("logprobs")}, r"no log-probabilities"),
        ({"status": 404}, r"refused a request \(404\): The model is busy"),
        ({"models": {"object": "error"}}, r"/v1/models lists no model: is this the address of `vllm serve`\?"),
    ],
)
def test_a_wrong_server_is_one_line(environment: Environment, change: dict[str, Any], message: str) -> None:
    served = Served()
    vars(served).update(change)
    with listening(served) as url, pytest.raises(UserError, match=message) as caught:
        play(environment, url)
    assert "\n" not in str(caught.value)


def test_replies_behind_other_ids_are_refused(environment: Environment) -> None:
    served = Served()

    def shift(reply: dict[str, Any]) -> dict[str, Any]:
        reply["choices"][0]["prompt_token_ids"] = [1, *reply["choices"][0]["prompt_token_ids"]]
        return reply

    served.change = shift
    with listening(served) as url, pytest.raises(UserError, match="after other token ids than those that were sent"):
        play(environment, url)


def test_another_tokenizer_is_refused_before_an_episode(environment: Environment) -> None:
    class Other(Letters):
        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [ord(c) + 1 for c in text]}

    served = Served()
    served.tokenizer = Other()
    with listening(served) as url, pytest.raises(UserError, match="'policy' with another tokenizer than the trainer's"):
        play(environment, url)
    assert not served.requests


def test_a_server_that_is_gone_is_one_line(environment: Environment) -> None:
    with listening(Served()) as url:
        play(environment, url, ["lamps-0"])
    with pytest.raises(UserError, match=rf"{url}: no vLLM server answers \(.*\): start it"):
        play(environment, url)


def test_vllm_inside_the_trainer_is_refused(environment: Environment) -> None:
    arguments = SimpleNamespace(vllm_mode="colocate", use_vllm=True)
    with pytest.raises(UserError, match=r"vllm_mode is 'colocate': .*grpo.vllm_mode=server"):
        rollout_func(environment)(["lamps-0"], SimpleNamespace(use_vllm=True, args=arguments))
    by_port = SimpleNamespace(
        use_vllm=True, vllm_mode="server", vllm_server_base_url=None, vllm_server_host="gpu7", vllm_server_port=8001
    )
    assert VLLMSampler.from_arguments(by_port).base_url == "http://gpu7:8001"
    by_port.vllm_server_base_url = "http://gpu8:8000/v1/"
    assert VLLMSampler.from_arguments(by_port).base_url == "http://gpu8:8000"


def test_what_trls_client_raises_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^vLLM: Request failed: 500, \{\} x$"), report_server_errors(True):
        raise Exception("Request failed: 500, {}\nx")
    with pytest.raises(UserError, match=r"^vLLM: vLLM is not available"), report_server_errors(True):
        raise ImportError("vLLM is not available and `use_vllm` is set to True.")
    with pytest.raises(RuntimeError, match="out of memory"), report_server_errors(True):
        raise RuntimeError("CUDA out of memory")
    with pytest.raises(ImportError), report_server_errors(False):
        raise ImportError("another")
    assert DRIFT.startswith("sampling/")
