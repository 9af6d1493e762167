"""Back end that writes requests to files and reads replies from files: OpenAI's Batch API, `vllm run-batch`, another system, or a person.

A batch is half the price at providers and needs no connection. In the folder:

    requests-0001.jsonl   questions, a line each, in the form of /v1/batches and `vllm run-batch`; never written to again
    results/*.jsonl       answers, with any file names, put there by the user

The first session of a run writes its questions and stops; a later one finds the answers, decides about them, and writes the questions
that are still open. A row that failed is asked again in the next file, unless its request was refused, as with status 400. An answer
names its question by `custom_id`, which is the reply's key, so it may come from anywhere and be read repeatedly. A person may answer
{"custom_id", "text"}.

Each line is flushed as it is written and synced to disk with its file: questions lost in a power cut are asked again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import orjson
from pydantic import Field

from simia.config import Config, Operational
from simia.errors import Code, UserError
from simia.llm.http_response import read_fault
from simia.llm.openai_backend import OpenAIBackend, clean_text, read_body
from simia.llm.openai_settings import DEFAULT_KEY_ENV, OpenAISettings
from simia.llm.prices import Price, look_up_price
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.masking import MASK, hide, mask_bytes
from simia.search_path import locate
from simia.terminal import write_count

Say = Callable[[str], None]


class BatchSettings(Config):
    """A folder of request and answer files, in place of an endpoint."""

    kind: Literal["batch"] = "batch"
    """Files for a batch API. The answers are read in a later session."""
    model: str = Field(description="Name of the model at the endpoint that runs the batch.")
    folder: Operational[Path] = Field(
        description="Folder to which requests are written. Answers are read from its subfolder `results/`."
    )
    alias: str = Field("batch", description="Name of the endpoint in the keys of stored replies.")
    structured: Literal["auto"] | bool = Field(
        "auto", description="Whether the model supports a JSON Schema in response_format. auto: decided by its name."
    )
    token_parameter: Literal["auto", "max_tokens", "max_completion_tokens"] = Field(
        "auto",
        description="Name of the request field with the token limit. auto: max_completion_tokens for reasoning models, else max_tokens.",
    )
    reasoning_model: Literal["auto"] | bool = Field(
        "auto",
        description="Whether to omit the sampling fields that reasoning models refuse. auto: decided by the model's name.",
    )
    extra_body: dict[str, Any] = Field(default_factory=dict, description="Additional fields of every request's body.")
    url: Operational[str] = Field(
        "/v1/chat/completions", description="URL path of the requests, written to each line of a file."
    )
    per_file: Operational[int] = Field(
        50_000, ge=1, description="Maximum number of requests in a file. The default is OpenAI's limit."
    )
    file_mb: Operational[int] = Field(
        190, ge=1, description="Maximum size of a file in megabytes. OpenAI's limit is 200."
    )
    discount: Operational[float] = Field(
        0.5, gt=0, le=1, description="Price of a batch as a share of the usual price (0 to 1)."
    )
    reask: Operational[bool] = Field(
        False,
        description="Whether to write the unanswered requests of earlier files again, in this session alone. Set it if those files were lost.",
    )
    price: Operational[Price | None] = Field(
        None,
        description="Price in US dollars per million tokens, before the discount. null: the price in configs/prices.yaml, if the "
        "model is listed there.",
    )

    def batch_price(self) -> Price | None:
        whole = self.price or look_up_price(self.model)
        return whole and Price(**{name: value * self.discount for name, value in whole.model_dump().items()})


@dataclass(slots=True)
class BatchAnswers:
    """The places of the answers in their files. The texts of ninety thousand answers would need too much memory."""

    places: dict[str, tuple[Path, int, int]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    refused: dict[str, LLMFault] = field(default_factory=dict)
    files: int = 0
    repeated: int = 0
    unreadable: int = 0

    def read(self, path: Path) -> None:
        self.files += 1
        end = 0
        with path.open("rb") as lines:
            for line in lines:
                end += len(line)
                if not line.strip():
                    continue
                row, name = read_row(line)
                if name is None:
                    self.unreadable += 1
                elif read_reply(row) is None:
                    if (fault := read_refusal(row)) is not None:
                        self.refused[name] = fault
                    else:
                        self.failed[name] += 1
                elif name in self.places:
                    self.repeated += 1  # the first answer counts
                else:
                    self.places[name] = (path, end - len(line), len(line))

    def get(self, name: str) -> Reply | None:
        if name not in self.places:
            return None
        path, start, length = self.places[name]
        with path.open("rb") as lines:
            lines.seek(start)
            line = mask_bytes(lines.read(length))
        return Reply(text=line.decode(), finish="stop") if line == MASK else read_reply(orjson.loads(line))

    def summarize(self, asked: Counter[str], results: Path) -> str:
        """One line for the user. `asked`: how often each question was written."""
        strange = sum(name not in asked for name in self.places)
        again = sum(name not in self.places and asked[name] <= times for name, times in self.failed.items())
        counts = {
            "were refused for good": len(self.refused.keys() - self.places.keys()),
            "failed and are asked again": again,
            "were there already": self.repeated,
            "answer no question of this folder": strange,
            "lines cannot be read": self.unreadable,
        }
        found = [f"{write_count(len(self.places), 'answer')} in {write_count(self.files, 'file')} of {results}"]
        return "; ".join(found + [f"{count:,} {what}" for what, count in counts.items() if count])


class BatchBackend:
    """Return the replies in `results/`; write every other question once and raise `Code.PENDING`."""

    def __init__(self, settings: BatchSettings, *, say: Say | None = None) -> None:
        self.settings = settings
        self.alias, self.model = settings.alias, settings.model
        shared = ("model", "structured", "token_parameter", "reasoning_model", "extra_body")
        endpoint = OpenAISettings(**settings.model_dump(include=set(shared)))
        self.structured = endpoint.takes_schema
        self.pending = 0
        self._body = OpenAIBackend(endpoint).body
        self._folder = locate(settings.folder)
        self._say = say or (lambda _: None)
        self._answers = BatchAnswers()
        self._asked: Counter[str] = Counter()  # by custom_id: how often it was written down
        self._file: IO[bytes] | None = None
        self._written: list[Path] = []
        self._lines = self._bytes = 0

    @property
    def place(self) -> str:
        """Where the requests wait and what to do."""
        files = ", ".join(path.name for path in self._written) or "the files written before"
        return f"{files} in {self._folder}: put the answers into {self._folder / 'results'}"

    async def start(self) -> None:
        hide(os.environ.get(DEFAULT_KEY_ENV, ""))  # used to send the files, and an answer may repeat it
        results = self._folder / "results"
        try:
            results.mkdir(parents=True, exist_ok=True)
            for path in sorted(results.glob("*.jsonl")):
                self._answers.read(path)
            for path in list_question_files(self._folder):
                self._read_questions(path)
        except OSError as error:
            raise UserError(f"cannot use the batch's folder {self._folder}: {error.strerror}") from None
        if self._answers.files:
            self._say(self._answers.summarize(self._asked, results))
        if self.settings.reask:
            self._asked.clear()
            self._answers.failed.clear()
            self._answers.refused.clear()

    def _read_questions(self, path: Path) -> None:
        """Count the questions of an earlier file. A kill may have left half a line: that question is then asked again."""
        whole = 0
        with path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                _, name = read_row(line)
                if name is None:
                    raise UserError(f"{path} has a line that is not a question: restore the file, or delete it")
                self._asked[name] += 1
        if whole < path.stat().st_size:
            os.truncate(path, whole)

    async def close(self) -> None:
        try:
            self._finish_file()
        except OSError as error:
            raise UserError(f"cannot write the batch in {self._folder}: {error.strerror}") from None

    async def complete(self, request: Request, *, draw: str) -> Reply:
        name = f"simia-{make_reply_key(self.alias, self.model, request, draw)}"
        reply = self._answers.get(name)
        if reply is not None:
            return reply
        if name in self._answers.refused:
            raise self._answers.refused[name]
        if self._asked[name] <= self._answers.failed[name]:  # never asked, or failed each time
            self._write(name, request)
            self._asked[name] += 1
        self.pending += 1
        raise LLMFault(Code.PENDING, f"waits for its answer as {name}", retry=False)

    def _write(self, name: str, request: Request) -> None:
        line = orjson.dumps(
            {"custom_id": name, "method": "POST", "url": self.settings.url, "body": self._body(request)},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        full = self._lines >= self.settings.per_file or self._bytes + len(line) > self.settings.file_mb * 1_000_000
        try:
            if self._file is None or full:
                self._open_next()
            assert self._file is not None
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise UserError(f"cannot write the batch in {self._folder}: {error.strerror}") from None
        self._lines += 1
        self._bytes += len(line)

    def _open_next(self) -> None:
        """Open the next file. A session never continues a file of an earlier one, which may have been sent already."""
        self._finish_file()
        last = max((int(path.stem.rpartition("-")[2]) for path in list_question_files(self._folder)), default=0)
        path = self._folder / f"requests-{last + 1:04}.jsonl"
        self._file = path.open("xb")
        self._written.append(path)
        self._lines = self._bytes = 0

    def _finish_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())


def list_question_files(folder: Path) -> list[Path]:
    """The files that this back end has written, in their order."""
    return sorted(path for path in folder.glob("requests-*.jsonl") if path.stem.rpartition("-")[2].isdecimal())


def read_row(line: bytes) -> tuple[dict[str, Any], str | None]:
    """A line of a file and the name of its question; None if the line is no such row."""
    try:
        row = orjson.loads(line)
        name = row["custom_id"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}, None
    return row, name if isinstance(name, str) else None


def read_reply(row: dict[str, Any]) -> Reply | None:
    """The reply in a line of results; None for a failed request."""
    if isinstance(row.get("text"), str):
        return Reply(text=row["text"], finish="stop")
    response = row.get("response")
    if row.get("error") or not isinstance(response, dict) or response.get("status_code", 200) != 200:
        return None
    return read_body(orjson.dumps(response.get("body")))


def read_refusal(row: dict[str, Any]) -> LLMFault | None:
    """The fault of a request that would be refused again; None for one that may succeed in another batch."""
    response = row.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    if not isinstance(response, dict) or not isinstance(status, int):
        return None
    fault = read_fault(status, {}, orjson.dumps(response.get("body") or row.get("error")), clean_text)
    return fault if fault.code in (Code.BAD_REQUEST, Code.CONTENT_FILTER) else None
