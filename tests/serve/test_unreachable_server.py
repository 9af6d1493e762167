"""A server that does not run: one sentence, without the HTTP library's own words."""

from __future__ import annotations

import aiohttp
import pytest

from simia.envs.remote.session import explain_error


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_that_is_away_is_one_clear_sentence(host: str, unused_tcp_port: int) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await session.get(f"http://{host}:{unused_tcp_port}/")
    assert explain_error(caught.value) == f"Cannot connect to host {host}:{unused_tcp_port} (Connection refused)"
