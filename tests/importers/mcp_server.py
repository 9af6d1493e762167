"""A server of the Model Context Protocol in a page of the standard library, well behaved or not, as its first argument says.

`python mcp_server.py KIND`. Kinds: good, silent, dies, junk, nothing (no tools), hostile (its schemas and names).
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

KIND = sys.argv[1] if len(sys.argv) > 1 else "good"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE = {"type": "object", "properties": {}}
READS = {"readOnlyHint": True}
GOOD = [
    {"name": "note", "description": "Keep a line in notes.txt.", "inputSchema": TEXT},
    {"name": "notes", "description": "All notes.", "inputSchema": NONE, "annotations": READS},
    {"name": "refuse", "description": "Says no.", "inputSchema": NONE},
    {"name": "error", "description": "An error of the protocol.", "inputSchema": NONE},
    {"name": "parts", "description": "Every kind of content.", "inputSchema": NONE},
    {"name": "structure", "description": "No text.", "inputSchema": NONE, "outputSchema": {"type": "object"}},
    {"name": "exit", "description": "The server ends.", "inputSchema": NONE},
    {"name": "sleep", "description": "The server hangs.", "inputSchema": NONE},
    {"name": "look", "description": "What the server can see.", "inputSchema": NONE},
]
NESTED: dict = {"type": "string"}
for _ in range(40):
    NESTED = {"type": "object", "properties": {"a": NESTED}}
HOSTILE = [
    {"name": "remote", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://example.com/s.json"}}}},
    {"name": "file", "inputSchema": {"type": "object", "$ref": "file:///etc/passwd"}},
    {"name": "deep", "inputSchema": NESTED},
    {"name": "wrong", "inputSchema": {"type": "object", "properties": {"a": {"type": "strnig"}}}},
    {"name": "list", "inputSchema": {"type": "object", "properties": {"a": {"pattern": "("}}}},
    {"name": "bad name\x1b[31m", "inputSchema": NONE},
    {"name": "later", "inputSchema": NONE, "execution": {"taskSupport": "required"}},
    {"name": "fine", "description": "red \x1b[31m text", "inputSchema": NONE, "annotations": READS},
    {"name": "fine", "description": "again", "inputSchema": NONE},
]
TOOLS = {"nothing": [], "hostile": HOSTILE}.get(KIND, GOOD)


def text(*words: str, error: bool = False) -> dict:
    return {"content": [{"type": "text", "text": word} for word in words], "isError": error}


def call(name: str, arguments: dict) -> dict:
    notes = Path("notes.txt")
    if name == "note":
        with notes.open("a") as file:
            file.write(arguments["text"] + "\n")
        return text("noted")
    if name == "notes":
        return text(notes.read_text() if notes.exists() else "none")
    if name == "refuse":
        Path("half.txt").write_text("done before it refused")
        return text("No:  not\ttoday.", error=True)
    if name == "parts":
        return {
            "content": [
                {"type": "text", "text": "one"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "memo://1", "text": "two"}},
                {"type": "resource_link", "uri": "memo://2", "name": "three"},
            ]
        }
    if name == "structure":
        return {"content": [], "structuredContent": {"a": [1, 2]}}
    if name == "exit":
        print("goodbye with", os.environ.get("API_KEY"), file=sys.stderr, flush=True)
        os._exit(3)
    if name == "sleep":
        time.sleep(600)
    if name == "look":
        try:
            socket.create_connection(("192.0.2.1", 80), timeout=2)
            network = True
        except OSError as error:
            network = type(error).__name__ == "TimeoutError"
        seen = {
            "home": os.environ["HOME"],
            "cwd": os.getcwd(),
            "key": os.environ.get("API_KEY"),
            "greeting": os.environ.get("GREETING"),
            "passwd": os.path.exists("/etc/passwd"),
            "ours": os.path.exists(os.environ.get("OURS", "/")),
            "network": network,
            "files": sorted(os.listdir(".")),
        }
        return text(json.dumps(seen))
    raise ValueError(name)


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "notes", "version": "1.2"},
            "instructions": "Keep notes short.",
        }
    if method == "tools/list":  # in pages of four
        start = int(params.get("cursor", 0))
        more = {"nextCursor": str(start + 4)} if start + 4 < len(TOOLS) else {}
        return {"tools": TOOLS[start : start + 4], **more}
    if method == "resources/list":
        return {"resources": [{"uri": "memo://1", "name": "memo"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet"}]}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    raise ValueError(method)


def main() -> None:
    if KIND == "dies":
        raise RuntimeError("the licence has run out")
    if KIND == "silent":
        time.sleep(600)
    if KIND == "junk":
        print("Welcome to the notes server!", flush=True)
        sys.stdin.read()
    print("\nlistening", flush=True)  # a banner on stdout is bad manners, and no reason to fail
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message["method"], message.get("params") or {})
        except ValueError as error:
            reply["error"] = {"code": -32601, "message": f"no {error}"}
        print(json.dumps(reply), flush=True)


main()
