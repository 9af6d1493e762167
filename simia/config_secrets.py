"""Find secrets in a config. Configs are shared, stored with every run and printed, so keys belong in environment variables.

A value is refused because of its name (`authorization`, `x-api-key`, `password`; for any type of value) or its shape (`sk-…`, `Bearer …`,
a JSON Web Token, an address with a password or a key in its path, a long random token). A name is refused because of its shape.
`${VARIABLE}` in a value is no secret. Messages never repeat the value, nor a name that has the shape of a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from simia.errors import UserError

NAMES = re.compile(
    r"([a-z0-9]+_)*(api_?key|(subscription|access|auth|private|secret)_?key|(proxy_?)?authorization|auth|secret|password|passwd"
    r"|passphrase|credentials?|(set_?)?cookie|bearer)"
    r"|(x_)?((api|auth|access|bearer|refresh|session|id|security|csrf|amz_security|gitlab|vault|hf)_?)?token"  # not eos_token
)
VARIABLE = re.compile(r"\$\{\w+\}|\$[A-Za-z_]\w*")
SECRET_VARIABLE = re.compile(
    r"(^|_)(API_?)?(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|PAT)$", re.IGNORECASE
)
SCHEME = re.compile(r"^\s*(bearer|basic|token|apikey|key)?\s*$", re.IGNORECASE)
SHAPES = (
    re.compile(r"(?<![\w/.-])(sk[-_]|gsk_|hf_|glpat-|r8_|nvapi-|[pr]k_live_)[A-Za-z0-9_-]{12,}"),
    re.compile(r"(?<![\w/.-])(AIza|AKIA|ASIA|gh[opusr]_|github_pat_|xox[abpr]-|ya29\.)[A-Za-z0-9_-]{10,}"),
    re.compile(r"^\s*sk-"),
    re.compile(r"^\s*(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}\s*$", re.IGNORECASE),
    re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),  # a JSON Web Token
    re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@", re.IGNORECASE),
)
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
PARTS = re.compile(r"[/?&=#;:,]+")  # between the parts of an address
RUN = re.compile(r"[A-Za-z0-9]{24,}")
HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32,}")
ADVICE = "export it as an environment variable and give the variable's name in key_env"
DISTINCT = 12  # characters of a random token: words and numbers have fewer


def has_secret_name(name: str) -> bool:
    """Check whether fields or headers of this name hold secrets."""
    return bool(NAMES.fullmatch(name.strip().lower().replace("-", "_")))


def is_secret(value: str, *, hexadecimal: bool = False) -> bool:
    """Check whether the value looks like a key. `hexadecimal`: 32 or more hexadecimal digits count as a key, not as a hash or revision."""
    rest = VARIABLE.sub("", value)
    if any(shape.search(rest) for shape in SHAPES):
        return True
    if ADDRESS.search(rest) and any(shape.search(part) for part in PARTS.split(rest) for shape in SHAPES[:2]):
        return True
    if hexadecimal and HEXADECIMAL.search(rest):
        return True
    return not rest.startswith(("/", "./", "../", "~/")) and any(is_random(run) for run in RUN.findall(rest))


def is_random(run: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    return len(set(run)) >= DISTINCT and all(sum(map(kind, run)) >= 2 for kind in kinds)


def is_secret_variable(name: str, value: str) -> bool:
    """Check whether an environment variable holds a secret, by its name (`GITHUB_TOKEN`) or by its value's shape."""
    return bool(SECRET_VARIABLE.search(name)) or is_secret(value, hexadecimal=True)


def names_variable(value: str) -> bool:
    """Check whether the value holds nothing but `${VARIABLE}`s and the name of a scheme, such as `Bearer`."""
    return bool(SCHEME.match(VARIABLE.sub("", value)))


def refuse_secrets(data: Any, where: str) -> None:
    """Raise `UserError` for the first secret in a config's data, without repeating it."""
    for place in find_secrets(data):
        raise UserError(f"{where}: {place} holds a secret: {ADVICE}")


def refuse_secret_headers(headers: dict[Any, Any]) -> None:
    """Raise `UserError` for the first header whose value is a secret by its name or its shape."""
    for name, value in headers.items():
        named = has_secret_name(str(name)) and not names_variable(str(value))
        if named or is_secret(str(value), hexadecimal=True):
            raise UserError(f"header {name} holds a secret, which a config must not contain: {ADVICE}")


def find_secrets(data: Any, place: str = "", *, named: bool = False) -> Iterator[str]:
    """Yield the dotted places of values in `data` that look like secrets, by their name or their shape, and of names with such a shape.

    `named`: `data` has the name of a secret. Any text or number in it, also in a list, is then a secret. A section of that name is searched
    as usual, since a JSON Schema may have a property `password`.
    """
    if isinstance(data, dict):
        for name, value in data.items():
            if is_secret(convert_to_text(name)):
                yield f"a name in {place or 'the config'}"
                continue
            yield from find_secrets(value, f"{place}.{name}".lstrip("."), named=has_secret_name(convert_to_text(name)))
    elif isinstance(data, list | tuple | set | frozenset):
        for number, value in enumerate(data):
            yield from find_secrets(value, f"{place}.{number}", named=named)
    elif data is not None and not isinstance(data, bool):
        text = convert_to_text(data)
        if (named and not names_variable(text)) or (isinstance(data, str | bytes) and is_secret(text)):
            yield place


def convert_to_text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
