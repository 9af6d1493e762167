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
    """How to reach one model behind one OpenAI-compatible endpoint."""

    model_config = ConfigDict(hide_input_in_errors=True)

    kind: Literal["openai"] = "openai"
    """An endpoint that speaks OpenAI's chat completions."""
    model: str = Field(description="The model's name as the endpoint knows it.")
    base_url: Operational[str] = Field(
        "https://api.openai.com/v1",
        description="The address up to, not including, /chat/completions. Moving a server (the alias stays) is no change of data.",
    )
    alias: str | None = Field(
        None, description="The endpoint's name in the replies' keys; the host of base_url if unset."
    )
    key_env: Operational[str] = Field(
        DEFAULT_KEY_ENV, description="The NAME of the environment variable that holds the key."
    )
    api_version: str | None = Field(
        None, description="Azure's api-version; setting it selects Azure's addresses and header."
    )
    deployment: str | None = Field(None, description="Azure's deployment; the model's name if unset.")
    structured: Literal["auto"] | bool = Field(
        "auto", description="Whether the endpoint obeys a JSON Schema in response_format."
    )
    timeout: Operational[float] = Field(500, gt=0, description="Seconds for one whole attempt (the paper's).")
    max_reply_bytes: Operational[int] = Field(
        8 << 20, ge=1024, description="Bytes of a reply's body at most, decompressed. A larger one is not read further."
    )
    connect_timeout: Operational[float] = Field(10, gt=0, description="Seconds to get a connection.")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="Fields added to every request's body.")
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="Headers added to every request; ${NAME} is the variable that key_env names, no other.",
    )
    token_parameter: Literal["auto", "max_tokens", "max_completion_tokens"] = Field(
        "auto", description="Which field limits the completion; auto decides by the model's name."
    )
    reasoning_model: Literal["auto"] | bool = Field(
        "auto", description="Leave out sampling fields that reasoning models refuse; auto decides by the model's name."
    )
    price: Operational[Price | None] = Field(
        None, description="Dollars for a million tokens, for models that configs/prices.yaml lacks."
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
                    raise UserError(f"a config never holds a key: {todo}, not {name}")
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
                raise UserError(f"headers: {header!r} is no name of a header: use letters, digits and hyphens")
            if not text.isprintable():
                raise UserError(f"header {header} holds a line break or a control character: write it as one line")
            for name in Template(text).get_identifiers():
                if name != self.key_env:
                    raise UserError(
                        f"header {header} reads the variable {name}: a config reads no variable but its key's; "
                        f"set key_env to {name} if that is the key"
                    )
        if self.deployment and not self.api_version:
            raise UserError("deployment is Azure's: set api_version too, such as 2024-10-21")
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
