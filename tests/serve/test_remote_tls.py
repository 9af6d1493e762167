"""The client over TLS: it plays where the certificate's authority is trusted, and says what is wrong where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import os
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.serve.environment_servers import served

TASK = "cs-009"
TOKEN = "correct-horse-battery-staple"
PLAY = """
import asyncio, sys
from simia import Message, ToolCall, open_environment
from simia.errors import Code, UserError

LOOK = ToolCall(id="1", name="get_order", arguments={"order_id": "ORD-00001", "email": "a@example.com"})

async def main():
    try:
        opened = await open_environment(sys.argv[1], token_env="SIMIA_TOKEN")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    async with opened as environment:
        episode = await environment.reset(sys.argv[2])
        step = await episode.step(Message(role="assistant", calls=[LOOK]))
        ended = await episode.stop(Code.MAX_TOKENS)
        print(len(step.messages), ended.end.kind)
    return 0

sys.exit(asyncio.run(main()))
"""
"""In a process of its own: OpenSSL reads SSL_CERT_FILE when a program starts."""


def write_certificate(folder: Path) -> Path:
    """Write a certificate of this machine that signs itself, and its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "environments")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return file


@contextlib.asynccontextmanager
async def tls_proxy(port: int, certificate: Path) -> AsyncIterator[int]:
    """Take TLS from connections and pass them on to a port of this machine. The proxy's own port."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def play(url: str, trusted: Path | None) -> tuple[int, str, str]:
    """Play an episode by a client that trusts this file, None: what the machine trusts."""
    env = {**os.environ, "SIMIA_TOKEN": TOKEN, **({"SSL_CERT_FILE": str(trusted)} if trusted else {})}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PLAY, url, TASK, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_client_plays_over_tls_where_the_authority_is_trusted(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path)
    async with served(token=TOKEN) as running, tls_proxy(running.port, certificate) as port:
        url = f"https://127.0.0.1:{port}/customer_service"
        code, told, complaint = await play(url, certificate)
        assert (code, told.split()) == (0, ["1", "truncated"]), complaint
        assert "unencrypted" not in complaint
        assert [row.task_id for row in running.kept] == [TASK]


async def test_a_certificate_that_is_not_trusted_is_refused_in_one_line(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path)
    async with served(token=TOKEN) as running, tls_proxy(running.port, certificate) as port:
        url = f"https://127.0.0.1:{port}/customer_service"
        code, told, complaint = await play(url, None)
        assert (code, told) == (2, "")
        assert complaint == (
            f"{url} has a certificate that this machine does not trust (self-signed certificate): "
            "name the file of its authority in SSL_CERT_FILE\n"
        )
        assert not running.kept
