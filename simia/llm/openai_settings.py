"""The settings of an OpenAI-compatible endpoint, and what `auto` means for it. Reading them opens no connection.

A config holds the name of the variable that holds the key, never the key: a value that looks like a key is refused and not printed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from string import Template
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator
from yarl import URL

from simia.config import Config, Operational
from simia.config_secrets import refuse_secret_headers, refuse_secrets
from simia.errors import UserError
from simia.llm.prices import Price

if TYPE_CHECKING:
    from openai import AsyncOpenAI

REASONING = re.compile(r"^(o[134](-|$)|gpt-5(?!.*-chat))")
NO_SCHEMA = re.compile(r"^(gpt-3\.5|gpt-4(-|$)|chatgpt|o1-(mini|preview))")
A_KEY = re.compile(r"^\s*(Bearer\s+)?sk-")  # refused anywhere in the config
SURELY_A_KEY = re.compile(r"^(sk|gsk|xai|hf|AIza)[-_]?[A-Za-z0-9_-]{12,}$")  # refused where only a name belongs
SECRET_FIELDS = {"api_key", "apikey", "key", "token", "secret", "password"}


DEFAULT_KEY_ENV = "OPENAI_API_KEY"  # meant for a hosted endpoint: a server on this machine is not sent it


class OpenAISettings(Config):
    """One model behind an OpenAI-compatible endpoint."""

    model_config = ConfigDict(hide_input_in_errors=True)

    kind: Literal["openai"] = "openai"
    """An endpoint with OpenAI's chat completions API."""
    model: str = Field(description="Name of the model at the endpoint.")
    base_url: Operational[str] = Field(
        "https://api.openai.com/v1",
        description="Base URL of the endpoint, without /chat/completions. A resume may change it: stored replies stay valid while "
        "`alias` is the same.",
    )
    alias: str | None = Field(
        None, description="Name of the endpoint in the keys of stored replies. null: the host of `base_url`."
    )
    key_env: Operational[str] = Field(
        DEFAULT_KEY_ENV, description="Name of the environment variable that holds the API key (not the key itself)."
    )
    api_version: str | None = Field(
        None, description="Azure's api-version. If it is set, Azure's URLs and header are used."
    )
    deployment: str | None = Field(None, description="Name of the Azure deployment. null: the model's name.")
    structured: Literal["auto"] | bool = Field(
        "auto",
        description="Whether the endpoint supports a JSON Schema in response_format. auto: true for OpenAI, Azure and servers on this "
        "machine, except for older models.",
    )
    timeout: Operational[float] = Field(
        500, gt=0, description="Timeout of one attempt, in seconds. The default is the paper's."
    )
    max_reply_bytes: Operational[int] = Field(
        8 << 20,
        ge=1024,
        description="Maximum size of a decompressed response body, in bytes. A larger response is an error and is not read to its end.",
    )
    connect_timeout: Operational[float] = Field(10, gt=0, description="Timeout for opening a connection, in seconds.")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="Additional fields of every request's body.")
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="Additional headers of every request. ${NAME} inserts an environment variable; only the variable of `key_env` is allowed.",
    )
    token_parameter: Literal["auto", "max_tokens", "max_completion_tokens"] = Field(
        "auto",
        description="Name of the request field with the token limit. auto: max_completion_tokens for reasoning models, else max_tokens.",
    )
    reasoning_model: Literal["auto"] | bool = Field(
        "auto",
        description="Whether to omit the sampling fields that reasoning models refuse. auto: decided by the model's name.",
    )
    price: Operational[Price | None] = Field(
        None,
        description="Price in US dollars per million tokens. null: the price in configs/prices.yaml, if the model is listed there.",
    )

    _client: AsyncOpenAI | None = PrivateAttr(None)  # the caller's client; not part of a dump

    @model_validator(mode="before")
    @classmethod
    def _no_secret(cls, data: Any) -> Any:
        # UserError, not ValueError: pydantic would print the value beside the message.
        if isinstance(data, dict):
            todo = "export it and give the variable's name in key_env"
            for name, value in data.items():
                if str(name).lower().replace("-", "_") in SECRET_FIELDS:
                    raise UserError(f"{name}: a config must not contain a key: {todo}")
                if isinstance(value, str) and A_KEY.match(value):
                    raise UserError(f"{name} looks like a key itself: {todo}")
            refuse_secret_headers(dict(data.get("headers") or {}))
            refuse_secrets({"extra_body": data.get("extra_body")}, "the model's config")
        return data

    @field_validator("key_env")
    @classmethod
    def _a_name(cls, value: str) -> str:
        if SURELY_A_KEY.match(value):
            raise UserError("key_env looks like a key itself: export the key and give the variable's name here")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
            raise UserError("key_env must be the name of an environment variable, such as OPENAI_API_KEY")
        return value

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, value: str) -> str:
        try:
            url = URL(value)
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host:
            shown = value if url.host is None or not url.user else "an address with a user"
            raise UserError(f"base_url: expected an address such as https://api.openai.com/v1, got {shown!r:.80}")
        if url.user or url.password or url.query_string:
            raise UserError("base_url must not hold a user, a password or a query: use key_env, headers or api_version")
        return value.rstrip("/").removesuffix("/chat/completions")

    @model_validator(mode="after")
    def _fits_together(self) -> OpenAISettings:
        """Check that the settings agree. An untrusted config must not send environment variables to an endpoint that it names itself."""
        for header, text in self.headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header):
                raise UserError(f"headers: {header!r} is not a valid name of a header: use letters, digits and hyphens")
            if not text.isprintable():
                raise UserError(f"header {header} holds a line break or a control character: write it as one line")
            for name in Template(text).get_identifiers():
                if name != self.key_env:
                    raise UserError(
                        f"header {header} reads the variable {name}: a config may read only the variable in key_env; "
                        f"set key_env to {name} if that is the key"
                    )
        if self.deployment and not self.api_version:
            raise UserError("deployment is for Azure only: set api_version too, such as 2024-10-21")
        return self

    @property
    def host(self) -> str:
        return URL(self.base_url).host or ""

    @property
    def loopback(self) -> bool:
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def url(self) -> URL:
        return self._locate("chat/completions")

    @property
    def embeddings_url(self) -> URL:
        return self._locate("embeddings")

    def _locate(self, kind: str) -> URL:
        if self.api_version is None:
            return URL(f"{self.base_url}/{kind}")
        path = f"{self.base_url}/openai/deployments/{self.deployment or self.model}/{kind}"
        return URL(path).with_query({"api-version": self.api_version})

    @property
    def _bare_model(self) -> str:
        return self.model.rpartition("/")[2].lower()  # routers write openai/gpt-5

    @property
    def is_reasoning(self) -> bool:
        return bool(REASONING.match(self._bare_model)) if self.reasoning_model == "auto" else self.reasoning_model

    @property
    def takes_schema(self) -> bool:
        """`auto` trusts OpenAI, Azure and servers of the user's own machine (vLLM, llama.cpp), except for models from before schemas."""
        if self.structured != "auto":
            return self.structured
        known = self.loopback or self.api_version is not None or self.host == "api.openai.com"
        return known and not NO_SCHEMA.match(self._bare_model)

    @property
    def limit_field(self) -> str:
        by_model = "max_completion_tokens" if self.is_reasoning else "max_tokens"
        return by_model if self.token_parameter == "auto" else self.token_parameter
