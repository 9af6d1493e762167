"""A stand-in for the Hugging Face hub on this machine: data sets in memory, with the hub's endpoints for reading and uploading.

It answers `huggingface_hub` as the hub does where Xet storage is off: information on a data set and its files, files with their
commit and hash, new data sets, and commits whose large files come by the LFS protocol.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test_token_of_the_stand_in"
REPO = r"([\w.-]+/[\w.-]+)"


@dataclass
class HubRepository:
    """A data set: commit → files, the newest last; further branches."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        sha = hashlib.sha1(f"{branch} {len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        return sha

    def files(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        sha = self.branches.get(revision, revision)
        return (sha, self.commits[sha]) if sha in self.commits else None


@dataclass
class HubServer:
    """The data sets, the address, and a list of what was asked: (method, path)."""

    url: str = ""
    repositories: dict[str, HubRepository] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    up: bool = True

    def add(self, name: str, files: dict[str, bytes], *, private: bool = False, branch: str = "main") -> str:
        """Add a commit of a data set; return its hash."""
        found = self.repositories.setdefault(name, HubRepository(private))
        return found.commit(files, branch)


class Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.handle_request()

    def do_GET(self) -> None:
        self.handle_request()

    def do_POST(self) -> None:
        self.handle_request()

    def do_PUT(self) -> None:
        self.handle_request()

    def log_message(self, *_: Any) -> None:
        pass

    def handle_request(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.hub.up:
            self.answer(503, {"error": "down"})
            return
        for pattern, method in ROUTES:
            if found := re.fullmatch(pattern, path):
                getattr(self, method)(*found.groups(), body)
                return
        self.answer(404, {"error": f"no such path: {path}"})

    @property
    def allowed(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def find(self, name: str) -> HubRepository | None:
        found = self.hub.repositories.get(name)
        if found is None or (found.private and not self.allowed):
            self.answer(404 if self.allowed else 401, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})
            return None
        return found

    def answer(self, status: int, value: Any = None, headers: dict[str, str] | None = None, data: bytes = b"") -> None:
        payload = data or (json.dumps(value).encode() if value is not None else b"")
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def show(self, name: str, revision: str | None, _: bytes) -> None:
        if (repository := self.find(name)) is None:
            return
        found = repository.files(revision or "main")  # "": the newest
        if found is None and not revision:
            found = ("0" * 40, {})
        if found is None:
            self.answer(404, {"error": "no revision"}, {"X-Error-Code": "RevisionNotFound"})
            return
        sha, files = found
        siblings = [{"rfilename": file} for file in files]
        self.answer(200, {"id": name, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []})

    def list_tree(self, name: str, revision: str, _: bytes) -> None:
        if repository := self.find(name):
            _, files = repository.files(revision) or ("", {})
            rows = [{"type": "file", "path": file, "size": len(data), "oid": "0"} for file, data in files.items()]
            self.answer(200, rows)

    def send_file(self, name: str, revision: str, file: str, _: bytes) -> None:
        if (repository := self.find(name)) is None:
            return
        found = repository.files(revision)
        if found is None or file not in found[1]:
            self.answer(404, {"error": "no file"}, {"X-Error-Code": "EntryNotFound"})
            return
        data = found[1][file]
        etag = hashlib.sha256(data).hexdigest()
        self.answer(200, headers={"ETag": f'"{etag}"', "X-Repo-Commit": found[0]}, data=data)

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        if not self.allowed:
            self.answer(401, {"error": "bad token"})
            return
        url = f"{self.hub.url}/datasets/{name}"
        if name in self.hub.repositories:
            self.answer(409, {"error": "exists", "url": url})
            return
        private = asked.get("private") is True or asked.get("visibility") == "private"
        self.hub.repositories[name] = HubRepository(private)
        self.answer(200, {"url": url, "name": name})

    def plan_upload(self, _name: str, _revision: str, body: bytes) -> None:
        files = json.loads(body)["files"]
        mode = {True: "lfs", False: "regular"}
        rows = [
            {"path": f["path"], "uploadMode": mode[f["path"].endswith(".parquet")], "shouldIgnore": False}
            for f in files
        ]
        self.answer(200, {"files": rows})

    def plan_lfs(self, name: str, body: bytes) -> None:
        rows = []
        for each in json.loads(body)["objects"]:
            href = f"{self.hub.url}/lfs/{each['oid']}"
            rows.append({"oid": each["oid"], "size": each["size"], "actions": {"upload": {"href": href}}})
        self.answer(200, {"transfer": "basic", "objects": rows})

    def store_lfs(self, oid: str, body: bytes) -> None:
        self.hub.uploads[oid] = body
        self.answer(200)

    def make_commit(self, name: str, _revision: str, body: bytes) -> None:
        if (repository := self.find(name)) is None or not self.allowed:
            return
        files = dict((repository.files("main") or ("", {}))[1])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            elif line["key"] == "deletedFile":
                files = {file: data for file, data in files.items() if not fnmatchcase(file, value["path"])}
        sha = repository.commit(files)
        url = f"{self.hub.url}/datasets/{name}/commit/{sha}"
        self.answer(200, {"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})

    def accept(self, body: bytes) -> None:
        self.answer(200, {"errors": [], "warnings": []})


ROUTES = (
    (r"/api/repos/create", "create"),
    (r"/api/validate-yaml", "accept"),
    (rf"/api/datasets/{REPO}/revision/(.+)", "show"),
    (rf"/api/datasets/{REPO}()", "show"),
    (rf"/api/datasets/{REPO}/tree/([^/]+).*", "list_tree"),
    (rf"/api/datasets/{REPO}/preupload/(.+)", "plan_upload"),
    (rf"/api/datasets/{REPO}/commit/(.+)", "make_commit"),
    (rf"/datasets/{REPO}\.git/info/lfs/objects/batch", "plan_lfs"),
    (r"/lfs/(\w+)", "store_lfs"),
    (rf"/datasets/{REPO}/resolve/(refs/convert/parquet|[^/]+)/(.+)", "send_file"),
)


@contextmanager
def start_hub() -> Iterator[HubServer]:
    hub = HubServer()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
