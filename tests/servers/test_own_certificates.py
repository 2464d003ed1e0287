"""Servers whose certificate no public authority has signed: refused, with the way to trust them,
which works.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kit.mcp_http import McpHttp

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of its own for 127.0.0.1, with its key behind it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "own.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def trusted(certificate: Path, tmp_path: Path) -> Path:
    """The certificates of the public authorities, with that certificate behind them."""
    path = tmp_path / "trusted.pem"
    path.write_bytes(Path(certifi.where()).read_bytes() + certificate.read_bytes())
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[McpHttp]:
    """A server that is reached over TLS only."""
    server = McpHttp()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.encrypt(context)
    with server:
        yield server


@pytest.mark.defect("M19")
async def test_a_certificate_of_ones_own_is_trusted_as_the_guide_says(
    opened: Opened, server: McpHttp, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    connection = opened(Connection("own", ServerConfig.model_validate(server.config())))
    with pytest.raises(ConnectError, match="SSL_CERT_FILE"):
        await connection.connect()
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    await connection.reconnect()
    assert connection.status.state == "ready"
    assert (await connection.call("a", {})).content[0].text == "ok"
