"""Keys are masked in every form, texts without a key are left as they are, and JSON stays JSON."""

from __future__ import annotations

import base64
import json
import random
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia import masking
from tests.key_forms import FORMS, holds

KEYS = ["sk-proj-0aB/c+dEfGhIjKlMnOpQrStUv_wxyz==", "0123456789abcdef0123456789abcdef", "hunter2/hunter2"]


@pytest.fixture(autouse=True)
def _no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_secrets", {})


@pytest.mark.attack("an endpoint repeats the key in some encoding")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_masked_in_every_form(form: str, key: str) -> None:
    text = f"You sent <{FORMS[form](key)}>, goodbye"
    assert holds(text, key), "or this test proves nothing"
    assert masking.mask(text) == text, "unknown yet"
    masking.hide(key)
    masked = masking.mask(text)
    assert not holds(masked, key)
    assert "***" in masked
    body = json.dumps({"choices": [{"message": {"content": text, "n": [1, None]}}]})
    hidden = masking.mask_bytes(body.encode())
    assert not holds(hidden.decode(), key)
    assert masked.startswith("You sent <")
    assert masked.endswith(">, goodbye")
    assert json.loads(hidden)["choices"][0]["message"]["n"] == [1, None]


def test_each_of_several_keys_is_masked() -> None:
    for key in KEYS:
        masking.hide(key)
    assert masking.mask(" ".join(KEYS)) == "*** *** ***"


@pytest.mark.parametrize("word", ["EMPTY", "none", "dummy", "password", "changeme", "abc123", "", " "])
def test_a_placeholder_is_no_key_and_changes_no_reply(word: str) -> None:
    masking.hide(word)
    text = f"Reset your password: {word}, none, empty"
    assert masking.mask(text) is text


@given(st.text(alphabet=st.characters(codec=None) | st.sampled_from("%\\u0sk-7325/"), max_size=300))
def test_a_text_without_the_key_is_left_as_it_is(text: str) -> None:
    masking.hide(KEYS[0])
    assert masking.mask(text) is text


def test_a_large_text_is_searched_everywhere_and_replaced_as_a_whole() -> None:
    masking.hide(KEYS[0])
    for at in (0, masking.BLOCK - 20, 2 * masking.BLOCK - 3, 1_100_000):
        filler = b"x" * 1_200_000
        assert masking.mask_bytes(filler[:at] + FORMS["percent"](KEYS[0]).encode() + filler[at:]) == b"***"
    assert masking.mask_bytes(filler) is filler


@pytest.mark.attack("an endpoint repeats the key in base64 that is wrapped into lines")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("line", ["\n", "\r\n", "\n\t"])
def test_a_key_in_wrapped_base64_is_masked(key: str, line: str) -> None:
    masking.hide(key)
    for before in range(70, 76):
        wrapped = base64.encodebytes(b"x" * before + key.encode() + b"y" * 90).decode().replace("\n", line)
        body = json.dumps({"content": wrapped, "n": 1})
        assert holds("".join(wrapped.split()), key), "or this test proves nothing"
        hidden = json.loads(masking.mask_bytes(body.encode()))
        assert hidden["n"] == 1
        assert not holds("".join(hidden["content"].split()), key)
        assert "***" in hidden["content"]


@pytest.mark.parametrize(
    "key", ["nvapi-0123456789abcdef", "tok/abc-0123456789", "0073-sk-0123456789", "ubuntu-0123456789"]
)
@pytest.mark.parametrize("before", ["", "\n", "\\", "a\tb\\\\", "you", "100%", "\u00e9"])
def test_json_stays_json_wherever_a_key_begins(key: str, before: str) -> None:
    masking.hide(key)
    for spelled in (key, FORMS["JSON escapes"](key), FORMS["percent"](key), FORMS["spaced"](key)):
        for plain in (True, False):
            body = json.dumps({"a": before + spelled + "!", "n": 1}, ensure_ascii=plain)
            if spelled.startswith("\\u"):
                body = body.replace("\\\\u", "\\u")  # escapes of this JSON, not of another inside of it
            hidden = json.loads(masking.mask_bytes(body.encode()))
            assert hidden["n"] == 1
            assert hidden["a"].endswith("***!")


@pytest.mark.attack("an endpoint repeats a long key across the blocks that are searched")
@pytest.mark.parametrize("length", [164, 700, 4200])
@pytest.mark.parametrize("form", ["plain", "JSON escapes", "percent twice", "hex", "base64"])
def test_a_long_key_is_masked_wherever_it_stands(form: str, length: int) -> None:
    key = "eyJ" + "".join(random.Random(length).choices(string.ascii_letters + string.digits + "-_", k=length - 3))
    masking.hide(key)
    (secret,) = masking._secrets.values()
    spelled = FORMS[form](key).encode()
    block = max(masking.BLOCK, 4 * secret.reach)
    for edge in (block, block - secret.reach, 2 * block - secret.reach):
        for back in (1, len(spelled) // 2, len(spelled) - 1):
            body = b"z." * ((edge - back) // 2) + spelled + b"z." * 9000
            assert masking.find_hidden(body, [secret]), (edge, back)


NON_ASCII = "schlüssel-Äß-9921-geheim-Ж中"


@pytest.mark.attack("an endpoint repeats a key with letters beyond ASCII in some encoding")
@pytest.mark.parametrize(
    "form",
    ["plain", "upper", "lower", "swapped case", "quoted", "percent", "percent twice", "JSON escapes", "base64", "hex"],
)
def test_a_key_with_letters_beyond_ascii_is_masked(form: str) -> None:
    masking.hide(NON_ASCII)
    text = f"You sent <{FORMS[form](NON_ASCII)}>, goodbye"
    assert masking.mask(text) == "You sent <***>, goodbye"
    for plain in (True, False):
        body = json.dumps({"a": text}, ensure_ascii=plain).encode()
        assert json.loads(masking.mask_bytes(body)) == {"a": "You sent <***>, goodbye"}


HOSTILE = {
    "backslashes": lambda key: key + b"\\" * 1_000_000,
    "a first letter, backslashes": lambda key: key + key[:1] + b"\\" * 1_000_000,
    "percents": lambda key: key + b"%" * 1_000_000,
    "a percent encoded often": lambda key: b"%" + b"25" * 4_000_000,
    "an escape escaped often": lambda key: key + b"u" + b"0075" * 250_000,
    "both in turn": lambda key: b"%75" + b"u002575" * 140_000,
    "the key often": lambda key: (key + b" ") * 20_000,
    "the key often, spelled": lambda key: (b"%" + key.hex(" ").upper().replace(" ", "%").encode() + b"\\n") * 3_000,
    "half keys": lambda key: key + key[:-1] * 20_000,
    "spaces in the key": lambda key: (b" " * 9000).join(bytes([code]) for code in key) + b"\\" * 9000,
}


@pytest.mark.attack("an endpoint sends a text that takes long to search for keys")
@pytest.mark.parametrize("name", HOSTILE)
def test_masking_takes_time_in_proportion_to_the_text(name: str) -> None:
    """In a process with a limit that is far beyond what is needed, and far below what a quadratic search would take."""
    key = KEYS[0].encode()
    code = "import sys; from simia.masking import *; hide(sys.argv[1]); sys.stdout.buffer.write(mask_bytes(sys.stdin.buffer.read()))"
    done = subprocess.run(
        [sys.executable, "-c", code, KEYS[0]], input=HOSTILE[name](key), capture_output=True, timeout=480, check=True
    )
    assert key not in done.stdout


@given(
    st.lists(
        st.sampled_from(["%", "%25", "u00", "\\", "\\n", "73", "6b", "2d", "sk-", KEYS[0], "5c", " ", '"', "é"]),
        max_size=40,
    )
)
def test_what_is_masked_holds_no_key(parts: list[str]) -> None:
    masking.hide(KEYS[0])
    masked = masking.mask("".join(parts))
    assert not masking.find_hidden(masked.encode(), masking._secrets.values())
