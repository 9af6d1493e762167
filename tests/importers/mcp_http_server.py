"""A server over streamable HTTP that keeps a counter for everybody and wants a key: `python mcp_http_server.py PORT KEY`."""

import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer

COUNT = [0]
server = MCPServer("counter")


@server.tool()
def add(number: int) -> str:
    """Add to the counter."""
    COUNT[0] += number
    return str(COUNT[0])


@server.tool()
def clear(start: int = 0) -> str:
    """Set the counter back."""
    COUNT[0] = start
    return "cleared"


def guarded(app: Any, key: str) -> Any:
    async def check(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (b"authorization", f"Bearer {key}".encode()) not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    return check


uvicorn.run(guarded(server.streamable_http_app(), sys.argv[2]), port=int(sys.argv[1]), log_level="error")
