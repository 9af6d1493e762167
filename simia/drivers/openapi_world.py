"""The driver of an API: each tool call is one request to the base address of the pack, and to no other address.

It is copied into each imported pack as `tools.py` and runs in the sandbox with the standard library only. The user who opens the
pack must grant the network and the variables that hold credentials. Their values are inserted into requests and masked in
responses. A response with a status outside 200 to 299 is a refusal with status and body. The state is the list of calls with
their statuses. The data behind the API is not visible, so a state cannot be restored or repeated.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

JSON = Any
Request = tuple[str, list[tuple[str, str]], dict[str, str], bytes | None]  # path, query, headers, body
Response = tuple[int, http.client.HTTPMessage, bytes]  # status, headers, body
SECONDS = 8.0
LARGEST = 600_000  # characters of an answer that are shown
BEYOND = 16_384  # read beyond that, so that a secret at the end is complete and can be masked
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
HOPS = 3
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
GRANT = "open it with network=True, or --set backend_settings.network=true"
SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}
LEAST = 4  # shorter values are not masked: they are no secrets and occur in any text


class OpenAPIRefusal(Exception):  # noqa: N818 - the tool's own word
    """The API, or the connection to it, returned an error."""

    __simia_refusal__ = True


class OpenAPIWorld:
    """One API; the pack's `api.json` contains its address and the request of each tool."""

    rolls_back = False

    def __init__(self, pack: Path, root: Path | None = None) -> None:
        given: dict[str, Any] = json.loads((pack / "api.json").read_bytes())
        self.base = given["base_url"]
        self.address = urlsplit(self.base)
        self.host = self.address.hostname or ""
        self.port = self.address.port or (443 if self.address.scheme == "https" else 80)
        self.auth: list[dict[str, str]] = given["auth"]
        self.plans: dict[str, dict[str, Any]] = given["tools"]
        self.made: list[dict[str, JSON]] = []
        self.secrets: dict[str, str] = {}

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode. Raises `RuntimeError` for a variable or a network that was not granted."""
        self.made = []
        names = sorted({name for each in self.auth for name in VARIABLE.findall(each["value"])})
        if missing := [name for name in names if not os.environ.get(name)]:
            more = f"variables=[{', '.join(missing)}]"
            remedy = f"export it, and open the pack with {more}, or --set 'backend_settings.{more}'"
            raise RuntimeError(f"{missing[0]} is not granted: {remedy}")
        self.secrets = {name: os.environ[name].strip() for name in names}
        if unfit := [name for name, value in self.secrets.items() if CONTROL.search(value)]:
            raise RuntimeError(f"the value of {unfit[0]} holds more than one line: no header or address can")
        try:
            socket.create_connection((self.host, self.port), timeout=SECONDS).close()
        except OSError:
            if not [name for _, name in socket.if_nameindex() if name != "lo"]:
                raise RuntimeError(f"the network is not granted, so {self.base} cannot be reached: {GRANT}") from None

    def tools(self) -> dict[str, dict[str, bool]]:
        return {"agent": {name: not plan["reads"] for name, plan in self.plans.items()}, "user": {}}

    def initial(self) -> JSON:
        return {"calls": []}

    def dump(self) -> JSON:
        return {"calls": list(self.made)}

    def restore(self, state: JSON) -> None:
        raise RuntimeError("the data behind an API cannot be reset")

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> object:
        raise ValueError("this world has no checks: the data behind an API cannot be seen")

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> JSON:
        plan = self.plans[name]
        try:
            status, headers, body = self.request_operation(plan, arguments)
        except (OSError, http.client.HTTPException, ValueError) as error:
            words = self.mask_text(str(error)) or type(error).__name__
            self.made.append({"tool": name, "status": 0})
            raise OpenAPIRefusal(json.dumps({"error": f"no answer: {words}"})) from None
        self.made.append({"tool": name, "status": status})
        shown = self.read_answer(headers, body)
        if 200 <= status < 300:
            if plan["method"] == "HEAD":
                return {"status": status, "headers": self.mask_secrets(dict(headers.items()))}
            return shown if body else {"status": status}
        raise OpenAPIRefusal(json.dumps({"status": status, "body": shown}, ensure_ascii=False))

    # -- the request ----------------------------------------------------------------------------------------------

    def request_operation(self, plan: dict[str, Any], arguments: dict[str, Any]) -> Response:
        """Return status, headers and body of the response. Raises `ValueError` for arguments that no request can contain."""
        path, query, headers, body = build_request(plan, arguments)
        for each in self.auth:
            value = VARIABLE.sub(lambda found: self.secrets[found[1]], each["value"])
            if each["in"] == "header":
                headers = {name: held for name, held in headers.items() if name.lower() != each["name"].lower()}
                headers[each["name"]] = value
            else:
                query = [pair for pair in query if pair[0] != each["name"]] + [(each["name"], value)]
        if any(CONTROL.search(value) for value in headers.values()):
            raise ValueError("a header holds one line only")
        target = self.address.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        method = plan["method"]
        for _ in range(HOPS):
            status, got, answer = self.send_request(method, target, headers, body)
            if status not in (301, 302, 303, 307, 308):
                return status, got, answer
            moved = urlsplit(urljoin(f"{self.address.scheme}://{self.address.netloc}{target}", got.get("Location", "")))
            same = (moved.scheme, moved.netloc) == (self.address.scheme, self.address.netloc)
            below = f"{moved.path}/".startswith(f"{self.address.path.rstrip('/')}/")
            if not (same and below and (method in ("GET", "HEAD") or status in (307, 308))):
                place = f"{moved.scheme}://{moved.netloc}{moved.path}"
                raise ValueError(f"the API answers {status}, a way to {place}, which is not followed")
            target = moved.path + (f"?{moved.query}" if moved.query else "")
        raise ValueError("the API sends the request round in circles")

    def send_request(self, method: str, target: str, headers: dict[str, str], body: bytes | None) -> Response:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        if self.address.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=SECONDS, context=context)
        try:
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(LARGEST + BEYOND)
        except TimeoutError:
            raise ValueError(f"the API did not answer within {SECONDS:g} s") from None
        finally:
            connection.close()

    # -- the answer -----------------------------------------------------------------------------------------------

    def read_answer(self, headers: http.client.HTTPMessage, body: bytes) -> JSON:
        """Return JSON as a value, other text unchanged, and binary data by its size, with secrets masked."""
        kind = headers.get_content_type()
        if len(body) > LARGEST:
            return self.mask_text(body.decode(errors="replace"))[:LARGEST] + "… (cut: the answer is longer)"
        if kind.endswith("json") or body[:1] in (b"{", b"["):
            with contextlib.suppress(ValueError, RecursionError):
                return self.mask_secrets(json.loads(body))
        text = body.decode(errors="replace")
        return self.mask_text(text) if "\ufffd" not in text[:2000] else f"({len(body)} bytes of {kind})"

    def mask_secrets(self, value: JSON) -> JSON:
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, list):
            return [self.mask_secrets(each) for each in value]
        if isinstance(value, dict):
            return {self.mask_text(key): self.mask_secrets(each) for key, each in value.items()}
        return value

    def mask_text(self, text: str) -> str:
        """Replace each secret's value by its variable's name, also in its URL-encoded and JSON forms."""
        for name, value in self.secrets.items():
            if len(value) >= LEAST:
                for form in {value, quote(value), quote(value, safe=""), json.dumps(value)[1:-1]}:
                    text = text.replace(form, f"${{{name}}}")
        return text


def build_request(plan: dict[str, Any], arguments: dict[str, Any]) -> Request:
    """Return path, query, headers and body. Raises `ValueError` for a path argument that would change the path's structure."""
    path, query, headers = plan["path"], list[tuple[str, str]](), {"Accept": "application/json, */*;q=0.5"}
    cookies: list[str] = []
    bodies: list[JSON] = []
    fields: dict[str, JSON] = {}
    for argument, value in arguments.items():
        place = plan["arguments"][argument]
        match place["in"], place["name"]:
            case "body", None:
                bodies.append(value)
            case "body", name:
                fields[name] = value
            case "path", name:
                text = join_value(place, value)
                if text in ("", ".", ".."):
                    raise ValueError(f"{argument} cannot be {text!r}: it is a part of the path")
                path = path.replace(f"{{{name}}}", quote(text, safe=""))
            case "query", name:
                query += encode_query(place, name, value)
            case "header", name:
                headers[name] = join_value(place, value)
            case _, name:
                cookies.append(f"{name}={quote(join_value(place, value))}")
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    if not bodies and not fields:
        return path, query, headers, None
    body, headers["Content-Type"] = encode_body(plan["media"], bodies[-1] if bodies else fields)
    return path, query, headers, body


def encode_body(media: str, value: JSON) -> tuple[bytes, str]:
    """Encode a body in its media type; return it with the Content-Type header."""
    kind = media.split(";")[0].strip()
    if kind == "application/x-www-form-urlencoded" and isinstance(value, dict):
        both = [pair for name, each in value.items() for pair in encode_query({}, name, each)]
        return urlencode(both).encode(), kind
    if kind == "multipart/form-data" and isinstance(value, dict):
        mark = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(value)).hex
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="{quote(name)}"\r\n\r\n{format_value(each)}\r\n'
            for name, each in value.items()
        ]
        return ("".join(parts) + f"--{mark}--\r\n").encode(), f"{kind}; boundary={mark}"
    if kind.endswith("json") or not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).encode(), kind if kind.endswith("json") else "application/json"
    return value.encode(), media


def encode_query(place: dict[str, Any], name: str, value: JSON) -> list[tuple[str, str]]:
    """Encode a query parameter in its style: lists repeat the name unless `explode` is false."""
    style, explode = place.get("style", "form"), place.get("explode")
    if place.get("json"):
        return [(name, json.dumps(value))]
    if isinstance(value, list):
        if explode is False or style in SEPARATORS:
            return [(name, SEPARATORS.get(style, ",").join(map(format_value, value)))]
        return [(name, format_value(each)) for each in value]
    if isinstance(value, dict):
        if style == "deepObject":
            return [(f"{name}[{key}]", format_value(each)) for key, each in value.items()]
        if explode is False:
            return [(name, join_pairs(value, ","))]
        return [(key, format_value(each)) for key, each in value.items()]
    return [(name, format_value(value))]


def join_value(place: dict[str, Any], value: JSON) -> str:
    """Encode a value of a path, header or cookie; lists are joined with commas."""
    if place.get("json"):
        return json.dumps(value)
    if isinstance(value, list):
        return ",".join(map(format_value, value))
    if isinstance(value, dict):
        return join_pairs(value, "=" if place.get("explode") else ",")
    return format_value(value)


def join_pairs(value: dict[str, JSON], mark: str) -> str:
    return ",".join(f"{key}{mark}{format_value(each)}" for key, each in value.items())


def format_value(value: JSON) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
