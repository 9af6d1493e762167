"""OpenAPI documents as packs: schemas and arguments, and calls of a real server on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.errors import Code, UserError
from simia.importers.any_source import detect_kind, find_gaps, start_pack
from simia.importers.openapi import import_api, parse_credential, yaml_to_json
from simia.importers.openapi_schema import OpenAPIDocument, convert_schema, make_compilable, summarize_schema
from simia.pack import Pack
from simia.sandbox.capabilities import probe_isolation
from simia.tool import compile_schema
from simia.trajectory import Message, ToolCall

SECRET = "s3cr3t/and+value"
walls = pytest.mark.skipif(probe_isolation().bwrap is None, reason="this machine has no sandbox: see simia doctor")

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Little Library", "version": "2", "description": "Books, and who has them."},
    "servers": [{"url": "https://library.example.com/api"}],
    "paths": {
        "/books": {
            "get": {
                "operationId": "books.list",
                "summary": "Find books",
                "parameters": [
                    {"name": "filter[author]", "in": "query", "schema": {"type": "string"}},
                    {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "api_key", "in": "query", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "Some", "content": {"application/json": {"schema": {
                    "type": "array", "items": {"$ref": "#/components/schemas/Book"}}}}}},
            },
            "post": {
                "operationId": "books.list",
                "description": "Put a book on the shelf",
                "requestBody": {"$ref": "#/components/requestBodies/Book"},
                "responses": {"201": {"description": "The book"}},
            },
        },
        "/books/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"responses": {"default": {"$ref": "#/components/responses/Book"}}},
            "put": {
                "operationId": "lend",
                "deprecated": True,
                "parameters": [
                    {"name": "id", "in": "query", "schema": {"type": "integer"}},
                    {"name": "X-Desk", "in": "header", "schema": {"type": "string"}},
                    {"name": "lang", "in": "cookie", "schema": {"type": "string"}},
                    {"name": "when", "in": "query", "content": {"application/json": {"schema": {
                        "type": "object", "properties": {"day": {"type": "integer"}}}}}},
                ],
                "requestBody": {"required": True, "content": {"application/json": {"schema": {
                    "type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "days": {"type": "integer"}}}}}},
                "responses": {"204": {"description": "Done"}},
            },
            "delete": {"operationId": "sell", "responses": {"204": {"description": "Gone"}}},
            "head": {"operationId": "peek", "responses": {"200": {"description": "Some"}}},
        },
        "/notes": {
            "post": {
                "operationId": "note",
                "requestBody": {"content": {"text/plain": {"schema": {"type": "string"}}}},
                "responses": {"200": {"description": "It", "content": {"text/plain": {"schema": {"type": "string"}}}}},
            },
            "put": {
                "operationId": "form",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {
                    "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}}}}}},
                "responses": {"200": {"description": "It"}},
            },
        },
        "/away": {"get": {"operationId": "away", "responses": {}}},
        "/slow": {"get": {"operationId": "elsewhere", "responses": {}}},
        "/broken": {"get": {"$ref": "other.yaml#/broken"}},
    },
    "components": {
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "api_key"},
            "token": {"type": "http", "scheme": "bearer"},
        },
        "requestBodies": {"Book": {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Book"}}}}},
        "responses": {"Book": {"description": "A book", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Book"}}}}},
        "schemas": {
            "Thing": {"type": "object", "required": ["id", "title"], "properties": {
                "id": {"type": "integer", "readOnly": True}, "title": {"type": "string", "nullable": True, "example": "x"}}},
            "Book": {"allOf": [
                {"$ref": "#/components/schemas/Thing"},
                {"type": "object", "properties": {
                    "pages": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
                    "sequel": {"$ref": "#/components/schemas/Book"},
                    "elsewhere": {"$ref": "https://example.com/schema.json"},
                    "isbn": {"type": "string", "pattern": "^(?!0)[0-9]+$"}}},
            ]},
        },
    },
}  # fmt: skip


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "library.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT, sort_keys=False))
    return path


def imported(document: Path, **more: Any) -> tuple[Pack, list[str]]:
    lines: list[str] = []
    return Pack.load(import_api(str(document), document.parent / "library", say=lines.append, **more)), lines


def test_operations_become_tools_with_one_object_of_arguments(document: Path) -> None:
    pack, lines = imported(document)
    tools = {tool.name: tool for tool in pack.tools}
    assert list(tools) == [
        "books_list", "books_list_2", "get_books_id", "peek", "lend", "sell", "note", "form", "away", "elsewhere",
    ]  # fmt: skip
    assert tools["books_list"].parameters == {
        "type": "object",
        "properties": {"filter_author": {"type": "string"}, "tag": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": False,
    }, "credentials are no arguments"
    book = tools["books_list_2"].parameters
    assert list(book["properties"]) == ["title", "pages", "sequel", "elsewhere", "isbn"], (
        "what the server sets is not sent"
    )
    assert book["required"] == ["title"]
    assert book["properties"]["title"] == {"type": ["string", "null"]}
    assert book["properties"]["pages"] == {"type": "integer", "exclusiveMinimum": 0}
    assert book["properties"]["sequel"]["description"] == "see Book"
    assert book["properties"]["elsewhere"] == {"description": "see schema.json"}
    assert book["properties"]["isbn"] == {"type": "string"}, "an expression that no linear engine knows"
    lend = tools["lend"].parameters
    assert set(lend["properties"]) == {"id", "query_id", "X_Desk", "lang", "when", "body_id", "days"}
    assert lend["required"] == ["id", "body_id"]
    assert "Deprecated." in tools["lend"].description
    assert tools["get_books_id"].description.startswith("GET /books/{id}\nReturns: {id: integer, title: string")
    assert tools["get_books_id"].extra["returns"]["properties"]["id"] == {"type": "integer"}
    assert tools["note"].parameters["properties"] == {"body": {"type": "string"}}
    assert "Little Library" in (pack.policy or "")
    assert lines[0].startswith("GET /broken is left out: it is described elsewhere (other.yaml#/broken)")
    assert "no tool has an argument for them" in lines[1]
    assert lines[-1].endswith("import it with --base-url https://library.example.com/api")
    assert pack.executable is None
    for tool in pack.tools:
        compile_schema(tool.parameters)


def test_only_some_operations_are_asked_for(document: Path) -> None:
    pack, _ = imported(document, only=["GET /books*", "sell"])
    assert [tool.name for tool in pack.tools] == ["books_list", "get_books_id", "sell"]
    with pytest.raises(UserError, match=r"has no operation that fits nothing\*$"):
        import_api(str(document), document.parent / "other", only=["nothing*"])


def test_pack_new_makes_out_a_document_by_its_content(document: Path, tmp_path: Path) -> None:
    assert detect_kind(str(document)) == ("openapi", str(document))
    plain = tmp_path / "api.json"
    plain.write_text(json.dumps({**DOCUMENT, "openapi": "3.1.0"}))
    assert detect_kind(str(plain)) == ("openapi", str(plain))
    missing = start_pack(tmp_path / "made", f"openapi:{plain}")
    assert [gap.what.split(" (")[0] for gap in missing] == ["no seeds", "no tasks", "no state", "no executable"]
    assert len(Pack.load(tmp_path / "made").tools) == 10


NINE = [", ".join([f"*a{n - 1}"] * 9) for n in range(1, 9)]
ALIASES = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{nine}]\n" for n, nine in enumerate(NINE, start=1))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{nine}]}}\n" for n, nine in enumerate(NINE, start=1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"swagger": "2.0", "paths": {}}', "is Swagger 2.0: convert it to OpenAPI 3 first"),
        ('{"openapi": "3.0.0", "paths": {}}', "has no operation: its `paths` are empty"),
        ('{"openapi": "3.0.0", "paths": {"/a": {"$ref": "a.yaml"}}}', "refer to other files, which are not read"),
        ('{"openapi": "2.9"}', "is not an OpenAPI 3 document"),
        ("[1, 2", "which is not JSON, is not YAML"),
        (ALIASES, "more than 1,000,000 values, those of aliases included"),
        (MERGES, "more than 1,000,000 values, those of aliases included"),
        ("a: 1" + ":1" * 10_000, "more than 4,300 digits"),
        ("a: !!bool x", "cannot be read as its type"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "api.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        import_api(str(path), tmp_path / "out")
    assert "\n" not in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["api.yaml"]


def test_a_document_that_cannot_be_fetched_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be fetched"):
        import_api("http://127.0.0.1:9/api.json", tmp_path / "out")
    with pytest.raises(UserError, match="is not a file"):
        import_api(str(tmp_path / "nothing.yaml"), tmp_path / "out")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"allOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]}, {"type": "object", "properties": {"b": {}}}]},
         {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}),
        ({"allOf": [{"type": "string"}], "description": "x"}, {"type": "string", "description": "x"}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"allOf": [{"type": "string"}, {"maxLength": 3}]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "integer", "maximum": 5, "exclusiveMaximum": False}, {"type": "integer", "maximum": 5}),
        ({"type": "string", "required": True}, {"type": "string"}),
    ],
)  # fmt: skip
def test_what_three_says_otherwise_is_put_right(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert convert_schema(given) == expected


def test_a_schema_that_grows_when_it_is_written_out_stays_small() -> None:
    schemas = {
        f"L{i}": {"type": "object", "properties": {f"p{j}": {"$ref": f"#/schemas/L{i + 1}"} for j in range(9)}}
        for i in range(9)
    }
    schemas["L9"] = {"$ref": "#/schemas/L0"}
    made = OpenAPIDocument({"schemas": schemas}).schema({"$ref": "#/schemas/L0"})
    assert len(json.dumps(made)) < 60_000
    assert made["type"] == "object"
    assert OpenAPIDocument({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}).schema({"$ref": "#/a"}) == {
        "description": "see a"
    }
    assert (
        summarize_schema(
            {"type": "array", "items": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}}
        )
        == "[{a: string}]"
    )


def test_a_property_called_pattern_stays() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string", "pattern": "(?=x)"}}}
    assert make_compilable(schema) == {"type": "object", "properties": {"pattern": {"type": "string"}}}


def test_what_is_needed_stays_needed_wherever_its_property_stands() -> None:
    whole = {
        "allOf": [
            {"type": "object", "properties": {"a": {}, "id": {"readOnly": True}}, "required": ["id"]},
            {"type": "object", "properties": {"b": {}}, "required": ["a", "b"]},
        ]
    }
    made = OpenAPIDocument({}).schema(whole)
    assert made == {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    assert OpenAPIDocument({}).schema(whole, sent=False)["required"] == ["id", "a", "b"]


@pytest.mark.parametrize("junk", [None, 1.5, "x", [{}], {"$ref": "#/paths"}])
def test_a_broken_document_is_a_document_or_one_line(tmp_path: Path, junk: Any) -> None:
    """Every node of the document in turn is something else."""

    def broken(value: Any) -> Iterator[Any]:
        for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            kept, value[key] = value[key], junk
            yield None
            value[key] = kept
            yield from broken(kept)

    document = json.loads(json.dumps(DOCUMENT))
    path = tmp_path / "api.json"
    seen, lines = 0, list[str]()
    for _ in broken(document):
        path.write_text(json.dumps(document))
        seen += 1
        try:
            folder = import_api(str(path), tmp_path / f"out-{seen}")
        except UserError as error:
            lines.append(str(error))
        else:
            Pack.load(folder)
    assert seen > 200
    assert not [line for line in lines if "\n" in line]


def test_yaml_becomes_json() -> None:
    value = yaml.safe_load("{200: a, true: b, null: c, day: 2025-01-01, inf: .inf}")
    assert yaml_to_json(value) == {"200": "a", "true": "b", "": "c", "day": "2025-01-01", "inf": None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Authorization: Bearer abcdef", r"name the variable that holds the secret, as \$\{API_KEY\}"),
        ("nonsense", "takes 'Header: value' or 'parameter=value'"),
        ("", "takes 'Header: value'"),
    ],
)
def test_a_secret_is_named_and_never_written(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        parse_credential(text)
    assert "abcdef" not in str(error.value)


def test_addresses_and_secrets_that_do_not_fit(document: Path) -> None:
    with pytest.raises(UserError, match="give its address with --base-url"):
        import_api(str(document), document.parent / "o", auth=["key=${KEY}"])
    with pytest.raises(UserError, match="is not a base address"):
        import_api(str(document), document.parent / "o", base_url="ftp://example.com")
    with pytest.raises(UserError, match="contains a password") as error:
        import_api(str(document), document.parent / "o", base_url="https://me:hunter2@example.com")
    assert "hunter2" not in str(error.value)


# -- against a real server ----------------------------------------------------------------------------------------


class Library:
    """A server that says what it was asked, and has answers of every kind."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.asked.append((request.method, str(request.rel_url), dict(request.headers), body))
        path = request.path
        if request.headers.get("Authorization") != f"Bearer {SECRET}":
            return web.json_response({"error": "who are you?"}, status=401)
        if path == "/v1/books" and request.method == "GET":
            return web.json_response([{"id": 1, "title": "Moby Dick", "seen": request.headers["Authorization"]}])
        if path == "/v1/books":
            return web.json_response({"errors": [{"field": "title", "message": "is taken"}]}, status=422)
        if path == "/v1/away":
            return web.Response(status=302, headers={"Location": "https://evil.example.com/take?me"})
        if path == "/v1/slow":
            return web.Response(status=307, headers={"Location": "/v1/books"})
        if request.method in ("PUT", "DELETE"):
            return web.Response(status=204)
        if path == "/v1/notes":
            return web.Response(text=f"noted: {body}, by {SECRET}")
        return web.Response(status=404, text="no such page")


@pytest.fixture
async def library() -> AsyncIterator[Library]:
    served = Library()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    served.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"  # type: ignore[attr-defined]
    yield served
    await runner.cleanup()


def playable(document: Path, url: str) -> Pack:
    auth = ["Authorization: Bearer ${LIBRARY_KEY}"]
    folder = import_api(str(document), document.parent / "library", base_url=url, auth=auth)
    (folder / "tasks.jsonl").write_text('{"id": "t", "instruction": "Look around."}\n')
    return Pack.load(folder)


async def told(environment: Environment, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Message], Any]:
    episode = await environment.reset("t")
    asked = [ToolCall(id=str(i), name=name, arguments=arguments) for i, (name, arguments) in enumerate(calls)]
    step = await episode.step(Message(role="assistant", calls=asked))
    state = await episode.world.state() if episode.world else None
    await episode.close()
    return list(step.messages), state


@walls
async def test_calls_reach_the_real_api_and_what_it_says_comes_back(
    document: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRARY_KEY", SECRET)
    pack = playable(document, library.url)
    assert [gap.what for gap in find_gaps(pack)] == ["no seeds (seeds.jsonl)"]
    async with await open_environment(pack, network=True, variables=["LIBRARY_KEY"]) as environment:
        messages, state = await told(
            environment,
            ("books_list", {"filter_author": "Herman & Co", "tag": ["a b", "c"]}),
            ("books_list_2", {"title": "Moby Dick"}),
            ("lend", {"id": "a/b", "query_id": 3, "body_id": "B", "days": 2, "X_Desk": "4", "lang": "de", "when": {"day": 1}}),
            ("note", {"body": "grün"}),
            ("form", {"a": "x y", "b": [1, 2]}),
            ("elsewhere", {}),
            ("away", {}),
            ("get_books_id", {"id": "9"}),
        )  # fmt: skip
        writes = environment.backend.writes["agent"]  # type: ignore[attr-defined]
    assert {name for name, changes in writes.items() if not changes} == {
        "books_list", "get_books_id", "peek", "away", "elsewhere",
    }  # fmt: skip
    asked = library.asked
    assert [(method, path) for method, path, _, _ in asked] == [
        ("GET", "/v1/books?filter%5Bauthor%5D=Herman+%26+Co&tag=a+b&tag=c"),
        ("POST", "/v1/books"),
        ("PUT", "/v1/books/a%2Fb?id=3&when=%7B%22day%22%3A+1%7D"),
        ("POST", "/v1/notes"),
        ("PUT", "/v1/notes"),
        ("GET", "/v1/slow"),
        ("GET", "/v1/books"),
        ("GET", "/v1/away"),
        ("GET", "/v1/books/9"),
    ]
    assert json.loads(asked[2][3]) == {"id": "B", "days": 2}
    assert (asked[2][2]["X-Desk"], asked[2][2]["Cookie"]) == ("4", "lang=de")
    assert asked[3][3] == "grün"
    assert asked[4][3] == "a=x+y&b=1&b=2"
    found = [message.text for message in messages]
    assert json.loads(found[0])[0] == {"id": 1, "title": "Moby Dick", "seen": "Bearer ${LIBRARY_KEY}"}
    assert json.loads(found[1]) == {"status": 422, "body": {"errors": [{"field": "title", "message": "is taken"}]}}
    assert json.loads(found[2]) == {"status": 204}
    assert found[3] == "noted: grün, by ${LIBRARY_KEY}"
    assert json.loads(found[5])[0]["id"] == 1
    assert "a way to https://evil.example.com/take, which is not followed" in found[6]
    assert json.loads(found[7]) == {"status": 404, "body": "no such page"}
    refused = [message.error for message in messages]
    assert [i for i, error in enumerate(refused) if error is not None] == [1, 6, 7]
    assert set(refused) == {None, Code.TOOL_ERROR}
    assert [each["status"] for each in state["calls"]] == [200, 422, 204, 200, 204, 200, 0, 404]
    assert SECRET not in json.dumps([found, state], ensure_ascii=False)
    held = [path for path in (document.parent / "library").rglob("*") if path.is_file() and SECRET in path.read_text()]
    assert held == []


@walls
async def test_a_part_of_a_path_leads_nowhere_else_and_a_header_holds_one_line(
    document: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRARY_KEY", SECRET)
    async with await open_environment(
        playable(document, library.url), network=True, variables=["LIBRARY_KEY"]
    ) as environment:
        messages, _ = await told(
            environment,
            ("get_books_id", {"id": ".."}),
            ("lend", {"id": "1", "body_id": "B", "X_Desk": "4\r\nX-Evil: 1"}),
            ("get_books_id", {"id": "../../admin"}),
        )
    assert [path for _, path, _, _ in library.asked] == ["/v1/books/..%2F..%2Fadmin"]
    assert "it is a part of the path" in messages[0].text
    assert "a header holds one line only" in messages[1].text


@walls
async def test_without_a_grant_one_line_says_how_to_give_it(
    document: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRARY_KEY", SECRET)
    pack = playable(document, library.url)
    async with await open_environment(pack) as environment:
        with pytest.raises(
            UserError, match=r"LIBRARY_KEY is not granted: .*backend_settings\.variables=\[LIBRARY_KEY\]"
        ):
            await environment.reset("t")
    async with await open_environment(pack, variables=["LIBRARY_KEY"]) as environment:
        with pytest.raises(
            UserError, match=r"the network is not granted.*--set backend_settings\.network=true"
        ) as error:
            await environment.reset("t")
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)
    monkeypatch.setenv("LIBRARY_KEY", f"{SECRET}\nmore")
    async with await open_environment(pack, network=True, variables=["LIBRARY_KEY"]) as environment:
        with pytest.raises(UserError, match="the value of LIBRARY_KEY holds more than one line") as error:
            await environment.reset("t")
    assert SECRET not in str(error.value)
    assert library.asked == []


@walls
async def test_a_server_that_is_gone_is_a_refusal(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBRARY_KEY", SECRET)
    if not any(name != "lo" for name in os.listdir("/sys/class/net")):
        pytest.skip("this machine has no network beside its own loop")
    pack = playable(document, "http://127.0.0.1:9/v1")
    async with await open_environment(pack, network=True, variables=["LIBRARY_KEY"]) as environment:
        messages, _ = await told(environment, ("away", {}))
    assert "no answer: " in messages[0].text
    assert messages[0].error is Code.TOOL_ERROR
