"""A service begins, is used by slow, impatient and broken clients, and ends."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastmcp import FastMCP
from kit.obedient import Obedient, order
from kit.waiting import wait_until
from starlette.responses import Response

from casual_mcp_nb import Service, Session, UsageError
from casual_mcp_nb.base.service import ServeLimits
from casual_mcp_nb.serve import listener as connection

TOKEN = "a-token-of-many-letters"


class Door:
    """A server with a tool that waits until it is told, or for ever."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self.server = FastMCP("door")

        @self.server.tool(annotations={"readOnlyHint": True})
        async def wait() -> str:
            """Wait."""
            self.entered.release()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.release()
            return ""


WAIT = order("", ("door__wait", {}))


@pytest.fixture(scope="module")
def model() -> Iterator[Obedient]:
    with Obedient() as model:
        yield model


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def session(model: Obedient, door: Door) -> Iterator[Session]:
    with Session(model.config, in_process={"door": door.server}) as session:
        yield session


def ask(text: str) -> dict[str, Any]:
    return {"model": "small", "messages": [{"role": "user", "content": text}]}


class Asking:
    """A request on another thread."""

    def __init__(self, service: Service, text: str = WAIT, **options: Any) -> None:
        self.answer: httpx.Response | None = None

        def ask_it() -> None:
            self.answer = httpx.post(f"{service.url}/chat", json=ask(text), timeout=30, **options)

        self.thread = threading.Thread(target=ask_it)
        self.thread.start()

    def result(self) -> httpx.Response:
        self.thread.join(30)
        assert self.answer is not None
        return self.answer


def test_a_service_that_ends_stops_its_turns_and_says_so(session: Session, door: Door) -> None:
    threads = threading.active_count()
    service = session.serve.http(port=0)
    asking = [Asking(service), Asking(service, headers={"Accept": "text/event-stream"})]
    assert all(door.entered.acquire(timeout=20) for _ in asking)
    assert service.status.turns == 2
    service.close()
    assert all(door.left.acquire(timeout=20) for _ in asking)
    plain, events = [each.result() for each in asking]
    assert (plain.status_code, plain.json()["kind"]) == (503, "closed")
    name, data = events.text.strip().split("\n\n")[-1].split("\n")
    assert name == "event: Problem"
    assert json.loads(data.removeprefix("data: "))["kind"] == "closed"
    assert "event: TurnFinished" in events.text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/health")
    assert service.closed
    service.close()
    # Its port is free again, and the session goes on.
    assert session.chat(order("Still here")).answer == "Still here"
    with session.serve.http(port=service.port) as again:
        assert httpx.get(f"{again.url}/health").status_code == 200
    assert threading.active_count() <= threads + 8


def test_the_end_of_a_session_ends_its_service(model: Obedient) -> None:
    with Session(model.config) as session:
        service = session.serve.http(port=0)
        assert httpx.get(f"{service.url}/health").status_code == 200
    assert service.closed
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/health")


def test_serving_again_at_an_address_replaces_the_service(session: Session) -> None:
    first = session.serve.http(port=0)
    second = session.serve.http(port=first.port)
    assert (first.closed, second.closed) == (True, False)
    with Session({}) as other, pytest.raises(UsageError):
        other.serve.http(port=first.port)


@pytest.mark.parametrize("serve", ["http", "mcp"])
def test_waiting_for_a_service_ends_with_it(session: Session, serve: str) -> None:
    endpoint = getattr(session.serve, serve)(port=0)
    waiting = threading.Thread(target=endpoint.wait)
    waiting.start()
    endpoint.close()
    waiting.join(20)
    assert not waiting.is_alive()
    assert endpoint.closed
    endpoint.wait()


async def test_it_is_awaited_too(session: Session) -> None:
    async with (
        await session.serve.http_async(port=0) as service,
        httpx.AsyncClient(base_url=service.url) as client,
    ):
        assert (await client.get("/health")).status_code == 200
    assert service.closed


def test_a_client_that_leaves_stops_its_turn(session: Session, door: Door) -> None:
    with session.serve.http(port=0) as service:
        address = urlsplit(service.url)
        for accept in ("application/json", "text/event-stream"):
            body = json.dumps(ask(WAIT)).encode()
            head = (
                f"POST /chat HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nContent-Type:"
                " application/json\r\n"
            )
            with socket.create_connection((address.hostname, address.port)) as client:
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                assert door.entered.acquire(timeout=20)
            assert door.left.acquire(timeout=20)
        wait_until(lambda: service.status.turns == 0, "the turns ended")


def test_turns_beyond_the_limits_are_refused_or_stopped(session: Session, door: Door) -> None:
    with session.serve.http(port=0, limits=ServeLimits(max_turns=1, turn_seconds=3.0)) as service:
        asking = Asking(service)
        assert door.entered.acquire(timeout=20)
        refused = httpx.post(f"{service.url}/chat", json=ask(order("Hi")))
        assert (refused.status_code, refused.json()["kind"]) == (503, "busy")
        assert int(refused.headers["Retry-After"]) >= 1
        stopped = asking.result()
        assert (stopped.status_code, stopped.json()["kind"]) == (504, "turn_timeout")
        assert httpx.post(f"{service.url}/chat", json=ask(order("Hi"))).json()["response"] == "Hi"


def test_a_token_is_needed_where_it_is_set_and_is_nowhere_shown(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    with session.serve.http(port=0, token=TOKEN) as service:
        url = f"{service.url}/toolsets"
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": TOKEN},
            {"Authorization": "Bearer \xe9"},
        ):
            refused = httpx.get(
                url, headers={name: value.encode("latin-1") for name, value in headers.items()}
            )
            assert (refused.status_code, refused.json()["kind"]) == (401, "token_required")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert httpx.get(f"{service.url}/health").status_code == 200
        schema = httpx.get(
            f"{service.url}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}
        ).json()
        assert schema["paths"]["/chat"]["post"]["security"]
        shown = (
            "".join(service._repr_mimebundle_().values())
            + repr(service)
            + repr(vars(service))
            + json.dumps(schema)
        )
        assert TOKEN not in shown
        assert "MCP_SERVE_TOKEN" in shown


def test_another_address_needs_a_token(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for token in (None, "short", "with a space and more"):
        with pytest.raises(UsageError):
            session.serve.http(host="0.0.0.0", port=0, token=token)
    monkeypatch.setenv("MCP_SERVE_TOKEN", TOKEN)
    with session.serve.http(host="0.0.0.0", port=0) as service:
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": "any.example"}
        assert httpx.get(f"{service.url}/toolsets", headers=headers).status_code == 200
        assert httpx.get(f"{service.url}/toolsets").status_code == 401


def test_a_page_of_a_site_that_is_allowed_may_ask(session: Session) -> None:
    with session.serve.http(
        port=0, token=TOKEN, origins=["https://shop.example"], hosts=["chat.example"]
    ) as service:
        headers = {"Origin": "https://shop.example", "Host": "chat.example"}
        asks = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        preflight = httpx.options(f"{service.url}/chat", headers={**headers, **asks})
        assert preflight.status_code == 200
        answer = httpx.get(
            f"{service.url}/toolsets", headers={**headers, "Authorization": f"Bearer {TOKEN}"}
        )
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert answer.headers["Access-Control-Expose-Headers"] == "Mcp-Session-Id"


def raw(service: Service) -> socket.socket:
    return socket.create_connection((service.host, service.port), timeout=20)


def test_half_a_request_is_given_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    with session.serve.http(port=0) as service, raw(service) as broken, raw(service) as silent:
        broken.sendall(b"POST /chat HTTP/1.1\r\nHost: local")
        assert httpx.post(f"{service.url}/chat", json=ask(order("Hi"))).json()["response"] == "Hi"
        for client in (broken, silent):
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_what_is_not_http_is_answered_in_the_same_form(session: Session) -> None:
    with session.serve.http(port=0) as service, raw(service) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        received = b""
        while part := client.recv(4_096):
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"application/problem+json" in head
        assert json.loads(body)["kind"] == "invalid_http"


def test_a_client_that_does_not_read_is_disconnected(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_SECONDS", 0.3)
    with session.serve.http(port=0) as service, ExitStack() as stack:
        for _ in range(3):
            slow = stack.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            slow.connect((service.host, service.port))
            # More than any buffer on the way takes.
            slow.sendall(b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)
        assert (
            httpx.post(f"{service.url}/chat", json=ask(order("Hi")), timeout=30).json()["response"]
            == "Hi"
        )
        wait_until(
            lambda: not service._listener.server_state.connections,
            "the slow clients are disconnected",
        )


async def test_a_client_that_reads_slowly_gets_all_and_one_that_stops_is_disconnected() -> None:
    loop = asyncio.get_running_loop()
    bound = connection.bound_socket("127.0.0.1", 0)
    # More than any buffer on the way takes.
    listener = connection.Listener(Response(b"x" * 40_000_000), bound)
    await listener.begin()
    try:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            client.setblocking(False)
            await loop.sock_connect(client, bound.getsockname())
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(30):
                received = len(await loop.sock_recv(client, 1_000))
                (protocol,) = listener.server_state.connections
                assert isinstance(protocol, connection.ServiceProtocol)
                for _ in range(4):
                    # What it reads between two checks makes room for more.
                    unread = protocol.transport.get_write_buffer_size()
                    while protocol.transport.get_write_buffer_size() == unread:
                        received += len(await loop.sock_recv(client, 65_536))
                    protocol._check_reader()
                    assert not protocol.transport.is_closing()
                protocol._check_reader()
                assert protocol.transport.is_closing()
            assert 1_000_000 < received < 40_000_000
    finally:
        await listener.end()


@pytest.mark.defect("G1")
def test_a_body_in_chunks_of_one_byte_is_read_in_small_pieces(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    received = connection.ServiceProtocol.data_received

    def noted(self: connection.ServiceProtocol, data: bytes) -> None:
        sizes.append(len(data))
        received(self, data)

    monkeypatch.setattr(connection.ServiceProtocol, "data_received", noted)
    body = json.dumps(ask(order("Hi") + " " * 50_000)).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = (
        b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-type:"
        b" application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    with session.serve.http(port=0) as service, raw(service) as client:
        client.sendall(head + chunks)
        assert client.recv(200).startswith(b"HTTP/1.1 200")
    assert max(sizes) <= connection.READ_BYTES


@pytest.mark.defect("G11")
@pytest.mark.parametrize("way", ["http", "mcp"])
def test_no_answer_waits_for_an_acknowledgement(
    way: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_delay: list[int] = []
    made = connection.ServiceProtocol.connection_made

    def noted(self: connection.ServiceProtocol, transport: Any) -> None:
        option = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY
        )
        without_delay.append(option)
        made(self, transport)

    monkeypatch.setattr(connection.ServiceProtocol, "connection_made", noted)
    with getattr(session.serve, way)(port=0) as endpoint:
        httpx.get(endpoint.url)
        assert endpoint._listener._bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert without_delay
    assert all(without_delay)


def test_what_is_missing_is_named(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from casual_mcp_nb import MissingDependencyError

    monkeypatch.setitem(sys.modules, "fastapi_offline", None)
    monkeypatch.delitem(sys.modules, "casual_mcp_nb.serve.api", raising=False)
    with pytest.raises(MissingDependencyError) as raised:
        session.serve.http(port=0)
    assert "casual-mcp-nb[serve]" in str(raised.value)


@pytest.mark.parametrize(
    "field", ["max_turns", "turn_seconds", "max_messages", "max_bytes", "max_values"]
)
@pytest.mark.parametrize("value", [0, -1, True, "7", float("nan")])
def test_limits_are_positive_numbers(field: str, value: object) -> None:
    with pytest.raises(UsageError):
        ServeLimits(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("platform", "reused"), [("linux", True), ("win32", False)])
def test_an_address_is_reused_only_where_that_cannot_take_it_from_another_service(
    monkeypatch: pytest.MonkeyPatch, platform: str, reused: bool
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", platform)
        bound = connection.bound_socket("127.0.0.1", 0)
    with bound:
        assert bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) is reused
