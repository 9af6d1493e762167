"""A config with a secret in it is refused in one line that does not repeat the secret; ordinary values are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.config_secrets import find_secrets
from simia.errors import UserError
from simia.llm.openai_settings import OpenAISettings

RANDOM = "qR7sT2uV9wX4yZ1aB6cD3eF8gH5iJ0kL"
ROOT = Path(__file__).parent.parent


@pytest.mark.attack("a config that is shared or stored holds a key")
@pytest.mark.parametrize(
    "section",
    [
        {"headers": {"Authorization": f"Bearer {RANDOM}"}},
        {"headers": {"authorization": "hunter2"}},
        {"headers": {"Proxy-Authorization": "Basic dXNlcjpodW50ZXIy"}},
        {"headers": {"Api-Key": "0123456789abcdef0123456789abcdef"}},
        {"headers": {"Ocp-Apim-Subscription-Key": "hunter2"}},
        {"headers": {"X-Api-Key": "sk-0123456789abcdef"}},
        {"headers": {"X-Auth-Token": "hunter2"}},
        {"headers": {"X-Goog-Api-Key": "hunter2"}},
        {"headers": {"Helicone-Auth": "hunter2"}},
        {"headers": {"Cookie": "session=hunter2"}},
        {"headers": {"X-Team": f"Bearer {RANDOM}"}},
        {"headers": {"X-Team": RANDOM}},
        {"headers": {"X-Team": "0123456789abcdef0123456789abcdef"}},
        {"headers": {"Authorization": "Bearer hunter2$MY_KEY"}},
        {"headers": {"Authorization": f"${{MY_KEY}}{RANDOM}"}},
        {"extra_body": {"api_key": "hunter2"}},
        {"extra_body": {"provider": [{"options": {"apiKey": "hunter2hunter2", "api-key": "hunter2"}}]}},
        {"extra_body": {"token": "hunter2"}},
        {"extra_body": {"password": "hunter2"}},
        {"extra_body": {"user": f"sk-proj-{RANDOM}"}},
        {"extra_body": {"note": f"the key is {RANDOM}"}},
        {"extra_body": {"callback": "https://me:hunter2@host.example/hook"}},
        {"extra_body": {f"sk-proj-{RANDOM}": 1}},
        {"extra_body": {"inner": [{f"sk-proj-{RANDOM}": {"a": 1}}]}},
        {"extra_body": {"token": 1234567890123456}},
        {"extra_body": {"api_key": ["hunter2"]}},
        {"extra_body": {"api_key": [["hunter2"]]}},
        {"extra_body": {"password": b"hunter2"}},
        {"extra_body": {"note": f"sk-proj-{RANDOM}".encode()}},
        {"extra_body": {"callback": "https://host.example/hook/sk-hunter2hunter2hunter2/x"}},
        {"extra_body": {"callback": "https://host.example/hook?to=sk-hunter2hunter2hunter2"}},
        {"extra_body": {"note": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.c2ln"}},
    ],
)
def test_a_secret_is_refused_in_one_line(section: dict[str, Any], tmp_path: Path) -> None:
    settings = {"model": "m", "base_url": "http://127.0.0.1:1/v1", "key_env": "MY_KEY", **section}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"extends": "amplify/default", "llm": {"kind": "openai", **settings}}))
    for attempt in (lambda: OpenAISettings(**settings), lambda: load_config(AmplifyConfig, path)):
        with pytest.raises(UserError) as caught:
            attempt()
        line = str(caught.value)
        assert "key_env" in line
        assert "\n" not in line
        assert not any(
            secret in line
            for secret in ("hunter2", RANDOM, "0123456789abcdef", "1234567890123456", "dXNlcjpodW50ZXIy", "eyJ")
        )


@pytest.mark.attack("a config that is shared or stored holds a key")
@pytest.mark.parametrize("text", [f"sk-proj-{RANDOM}: 1", f"llm: {{base_url: 'http://h/v1/sk-proj-{RANDOM}/'}}"])
def test_a_key_as_a_name_or_in_an_address_is_not_repeated(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"extends: amplify/default\n{text}\n")
    with pytest.raises(UserError, match="holds a secret") as caught:
        load_config(AmplifyConfig, tmp_path / "mine.yaml")
    assert RANDOM not in str(caught.value)


@pytest.mark.parametrize("place", ["sampling.extra", "judge.extra_body", "seeds.url"])
def test_a_secret_anywhere_in_a_config_is_named_by_its_place(place: str) -> None:
    with pytest.raises(UserError, match=f"{place}.* holds a secret"):
        load_config(AmplifyConfig, "amplify/default", [f"{place}={{note: 'Bearer {RANDOM}'}}"])


@pytest.mark.parametrize(
    "data",
    [
        {"headers": {"Authorization": "Bearer ${MY_KEY}", "X-Api-Key": "${MY_KEY}", "api-key": "$MY_KEY"}},
        {"headers": {"X-Project-Id": "123e4567-e89b-12d3-a456-426614174000", "X-Team": "blue", "X-Title": "a b c"}},
        {
            "max_tokens": 5,
            "stop_token": "<|im_end|>",
            "eos_token": "</s>",
            "key_env": "MY_KEY",
            "token_parameter": "auto",
        },
        {"model": "meta-llama/Llama-3.3-70B-Instruct-Turbo-Free", "alias": "hf-mixtral-8x7b-instruct-v0.1"},
        {
            "model": "accounts/fireworks/models/llama4-maverick-instruct-basic",
            "folder": "runs/sk-experiment-number-one",
        },
        {"revision": "9b0c1de2a3f4059687a1b2c3d4e5f60718293a4b", "path": "/tmp/aB3dE5fG7hJ9kL1mN3pQ5rS7tU9v/pack"},
        {
            "guided_regex": r"[A-Z]{3}-\d{4}",
            "base_url": "http://127.0.0.1:8000/v1",
            "note": "ask user: who@example.com",
        },
        {"secret": True, "auth": None, "base_url": "https://host.example/models/sk-learn/v1"},
        {"schema": {"properties": {"password": {"type": "string"}, "token": {"type": "string"}}}},
    ],
)
def test_ordinary_values_are_no_secrets(data: dict[str, Any]) -> None:
    assert list(find_secrets(data)) == []


def test_no_shipped_config_is_refused() -> None:
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert list(find_secrets(yaml.safe_load(path.read_text()))) == [], path
