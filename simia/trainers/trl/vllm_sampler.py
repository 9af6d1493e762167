"""Sample the policy from a server that `vllm serve` started: token in, token out, for TRL's rollouts.

Contexts are sent to `/v1/completions` as token ids, and the sampled ids and their log-probabilities are taken from its reply, so that
training uses exactly the sampled ids. Each episode runs on its own schedule: the server batches the requests that arrive. This module does not
send weights: with `use_vllm` and `vllm_mode: server` TRL's own client sends them to the server before each new step's episodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from simia.errors import UserError
from simia.trainers import ranks
from simia.trainers.tokens import TokenRow
from simia.trainers.turn_schedule import TurnSchedule
from simia.trainers.verl.play import PolicyLostError, PolicyPlayer, PolicyReply

PROBE_IDS = 512  # ids spread over the vocabulary, to compare the server's tokenizer with the trainer's
PROBE_TEXT = " <think></think><tool_call></tool_call><tool_response></tool_response><|im_start|><|im_end|>"
DRIFT = "sampling/sampling_logp_difference/mean"  # TRL's metric: difference of log-probabilities, trainer and server
MOST_DRIFT = 0.3  # nats a token; two engines with the same weights in bfloat16 differ by some hundredths


@dataclass(frozen=True, slots=True)
class EpisodeName:
    """The arguments of `Environment.reset` that identify an episode within a step."""

    task: str
    seed: int
    group: str
    name: str


class VLLMSampler:
    """The model of a server. Pass it as `sample` to `rollout_func`, which makes one from TRL's settings where they say `use_vllm`."""

    def __init__(self, base_url: str) -> None:
        """`base_url`: the server's address, such as http://127.0.0.1:8000."""
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self._checked = False

    @classmethod
    def from_arguments(cls, arguments: Any) -> VLLMSampler:
        """Make a sampler from the server fields of GRPOConfig. Raises `UserError` for vLLM in the trainer's own process."""
        check_vllm_settings(vars(arguments))
        return cls(
            arguments.vllm_server_base_url or f"http://{arguments.vllm_server_host}:{arguments.vllm_server_port}"
        )

    def play(self, player: PolicyPlayer, trainer: Any, episodes: Sequence[EpisodeName], at_once: int) -> list[TokenRow]:
        """Play episodes, at most `at_once` under way, and return their rows in the given order.

        If the server gives no reply, the episode is aborted. Raises `UserError` for a server that does not answer at the start, refuses a
        request, has another tokenizer, or does not return token ids.
        """
        schedule = TurnSchedule[str]()
        try:
            schedule.start("episodes", self._play(player, trainer, episodes, at_once))
            rows: list[TokenRow] = schedule.collect()["episodes"]
            return rows
        finally:
            schedule.close()

    async def _play(
        self, player: PolicyPlayer, trainer: Any, episodes: Sequence[EpisodeName], at_once: int
    ) -> list[TokenRow]:
        places = asyncio.Semaphore(at_once)
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None, sock_connect=30)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            model, player.model_tokens = await self._inspect(session, player.tokenizer)
            parameters = {"model": model, **make_parameters(trainer)}

            async def generate(context: list[int], most: int) -> PolicyReply:
                request = {**parameters, "prompt": context, "max_tokens": most}
                return self._read(context, *await self._post(session, "/v1/completions", request))

            async def play(it: EpisodeName) -> TokenRow:
                async with places:
                    played = await player.play(generate, it.task, seed=it.seed, group=it.group, name=it.name)
                    return played.row

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(play(episode)) for episode in episodes]
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _inspect(self, session: aiohttp.ClientSession, tokenizer: Any) -> tuple[str, int | None]:
        """Return the served model's name and its context length; at the first call compare the tokenizers."""
        try:
            async with session.get(f"{self.base_url}/v1/models") as response:
                found = orjson.loads(await response.read())["data"][0]
            name, most = str(found["id"]), found.get("max_model_len")
        except (aiohttp.ClientError, OSError) as error:
            raise UserError(f"{self.base_url}: no vLLM server answers ({error}): start it (docs/vllm.md)") from None
        except (ValueError, LookupError, TypeError):
            raise UserError(f"{self.base_url}/v1/models lists no model: is this the address of `vllm serve`?") from None
        if not self._checked:
            size = len(tokenizer)
            text = tokenizer.decode(list(range(0, size, max(1, size // PROBE_IDS)))) + PROBE_TEXT
            request = {"model": name, "prompt": text, "add_special_tokens": False}
            status, body = await self._post(session, "/tokenize", request)
            if status != 200 or body.get("tokens") != list(tokenizer(text, add_special_tokens=False)["input_ids"]):
                raise UserError(
                    f"{self.base_url} serves {name!r} with another tokenizer than the trainer's: serve the model that is trained"
                )
            self._checked = True
        return name, most

    async def _post(self, session: aiohttp.ClientSession, path: str, request: dict[str, Any]) -> tuple[int, Any]:
        """Return status and body. Raises `PolicyLostError` where another try could succeed."""
        headers = {"Content-Type": "application/json"}
        async with session.post(self.base_url + path, data=orjson.dumps(request), headers=headers) as response:
            body = await response.read()
            if response.status == 429 or response.status >= 500:
                raise PolicyLostError(
                    f"{self.base_url}: status {response.status}: {body.decode(errors='replace')}"[:300]
                )
            try:
                return response.status, orjson.loads(body)
            except ValueError:
                return response.status, body.decode(errors="replace")

    def _read(self, context: list[int], status: int, body: Any) -> PolicyReply:
        """Parse the sampled ids. Raises `UserError` for an error that every further request would cause too."""
        if status != 200:
            message = body["error"].get("message", body) if isinstance(body, dict) and "error" in body else body
            raise UserError(f"{self.base_url} refused a request ({status}): {' '.join(str(message).split())[:300]}")
        try:
            choice = body["choices"][0]
            ids, seen, logprobs = choice["token_ids"], choice["prompt_token_ids"], choice["logprobs"]["token_logprobs"]
        except (LookupError, TypeError):
            ids = seen = None
        if not isinstance(ids, list) or not isinstance(seen, list):
            raise UserError(
                f"{self.base_url} returns no token ids or no log-probabilities: serve the policy with a current version of `vllm serve`"
            )
        if seen != context:
            raise UserError(
                f"{self.base_url} sampled after other token ids than those that were sent: its replies cannot be trained on"
            )
        if choice.get("finish_reason") not in ("stop", "length"):
            raise PolicyLostError(f"{self.base_url} ended a reply with {choice.get('finish_reason')!r}")
        return PolicyReply(ids, logprobs)


def make_parameters(trainer: Any) -> dict[str, Any]:
    """Return the trainer's sampling parameters as vLLM takes them. Only the trainer's end tokens end a reply, not the server's."""
    return {
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,
        "min_p": trainer.min_p or 0.0,
        "repetition_penalty": trainer.repetition_penalty,
        "stop_token_ids": list(trainer.eos_token_ids),
        "ignore_eos": True,
        "logprobs": 0,  # of the sampled id alone
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **(trainer.args.generation_kwargs or {}),
    }


def check_vllm_settings(grpo: Mapping[str, Any]) -> None:
    """Raise `UserError` for fields of GRPOConfig that ask for vLLM in the trainer's own process."""
    mode = grpo.get("vllm_mode", "colocate")
    if grpo.get("use_vllm") and mode != "server":
        raise UserError(
            f"grpo.vllm_mode is {mode!r}: rollout_func samples from a server that `vllm serve` started (docs/vllm.md): "
            "set grpo.vllm_mode=server, grpo.use_vllm=false, or through=environment_factory"
        )


@contextmanager
def report_server_errors(used: bool) -> Iterator[None]:
    """If `used`, turn errors of TRL's client into `UserError`: the server is missing, or does not accept weights."""
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split())
        ours = isinstance(error, ImportError | NotImplementedError | ConnectionError)
        http = type(error).__module__.startswith("requests.") or words.startswith(
            ("Request failed: ", "The vLLM server")
        )
        if used and (ours or http):
            raise UserError(f"vLLM: {words[:400]}") from None
        raise


def make_drift_callback() -> Any:
    """Make a callback that stops the run if the server samples with other weights than the trained ones, by TRL's own metric."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class Drift(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            found = (logs or {}).get(DRIFT) or 0.0
            if found > MOST_DRIFT:
                raise ranks.Stopped(
                    f"step {state.global_step}: the vLLM server's log-probabilities are {found:.2f} a token from the trainer's: "
                    "it samples with another model or other weights, or without --logprobs-mode processed_logprobs"
                )

    return Drift()
