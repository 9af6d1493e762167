"""Read the body of an HTTP response within a limit, compressed or not.

A few hundred kilobytes of gzip can hold hundreds of megabytes, so the body is decompressed here, never beyond the limit, rather than by
the HTTP library. Only gzip and deflate are accepted; requests name gzip alone.
"""

from __future__ import annotations

import zlib

import aiohttp

from simia.errors import Code
from simia.masking import mask
from simia.terminal import one_line

GZIP_OR_ZLIB, BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS


class BodyRefused(Exception):  # noqa: N818 - the endpoint's mistake
    """The body is too large or not readable. One line; `code` says which."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(detail)
        self.code = code


async def receive_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body of a response of a session with `auto_decompress=False`: `limit` bytes at most, also after decompression.

    Raises `BodyRefused`, having closed the connection, so that the rest is never read.
    """
    try:
        if (response.content_length or 0) > limit:
            raise refuse_large_body(limit)
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > limit:
                raise refuse_large_body(limit)
            chunks.append(chunk)
        return decompress(b"".join(chunks), response.headers.get("Content-Encoding", ""), limit)
    except BodyRefused:
        response.close()
        raise


def decompress(raw: bytes, encoding: str, limit: int) -> bytes:
    """Undo the body's content encoding. Raises `BodyRefused` beyond `limit` bytes, and for what cannot be decompressed."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity") or not raw:
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        named = one_line(mask(encoding))[:40]  # masked before it is cut: a part of a key is not found
        raise BodyRefused(Code.BAD_REPLY_BODY, f"the body's content encoding {named!r} was not asked for")
    bare = encoding == "deflate" and raw[0] & 0x0F != 8  # some servers leave the zlib header out
    unpacker = zlib.decompressobj(BARE if bare else GZIP_OR_ZLIB)
    try:
        body = unpacker.decompress(raw, limit + 1)
    except zlib.error:
        raise BodyRefused(Code.BAD_REPLY_BODY, f"the body is not {encoding}, as its header says") from None
    if len(body) > limit:
        raise refuse_large_body(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise BodyRefused(Code.BAD_REPLY_BODY, f"the body's {encoding} data is not whole, or more follows it")
    return body


def refuse_large_body(limit: int) -> BodyRefused:
    return BodyRefused(Code.TOO_LARGE, f"the reply is larger than {limit:,} bytes: raise max_reply_bytes to accept it")
