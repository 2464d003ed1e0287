"""The wire to a server: every message in its group, with its HTTP exchange, bounded, masked, and
written to files.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tracemalloc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Context, FastMCP
from kit.mcp_http import McpHttp
from kit.raw_server import raw_config, text_result
from kit.scripted_http import Reply, Request, ScriptedHttp
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.base.secret import MASK, Suspects, names_secret
from casual_mcp_nb.base.wire import Wire, WireRecord
from casual_mcp_nb.errors import ServerError, UnknownNameError, UsageError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.http_transport import ResponseMonitor, _Client
from casual_mcp_nb.servers.wire import (
    MAX_HEADER_LENGTH,
    MAX_HEADERS,
    MAX_MESSAGE_LENGTH,
    MAX_MESSAGES,
    SENT,
    WireLog,
    exchange_of,
)

Opened = Callable[..., Any]
ANSWERS = {"city": "Bergen", "name": "Ada"}
ASKING = """
from fastmcp import Context, FastMCP
server = FastMCP("asking")

@server.tool
async def ask(ctx: Context) -> str:
    "Ask for a name."
    await ctx.report_progress(1, 2)
    answer = await ctx.elicit("Your name?", response_type=str)
    return f"hello {answer.data}"

server.run(show_banner=False)
"""


async def answer(_question: ServerQuestion) -> QuestionAnswer:
    return QuestionAnswer("accept", ANSWERS)


def asked(name: str) -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": "string"}}}
    return ElicitRequest(
        params=ElicitRequestFormParams(message=f"Your {name}?", requested_schema=schema)
    )


def booking() -> FastMCP[Any]:
    """A server of 2026-07-28 that asks twice within one call."""
    server: FastMCP[Any] = FastMCP("booking")

    @server.tool
    async def book(ctx: Context, ship: str = "Fram") -> Any:
        await ctx.report_progress(1, 2)
        if ctx.request_state is None:
            return InputRequiredResult(
                input_requests={"first": asked("city")}, request_state=f"{ship} 1"
            )
        if ctx.request_state.endswith("1"):
            return InputRequiredResult(
                input_requests={"second": asked("name")}, request_state=f"{ship} 2"
            )
        return f"booked {ship}"

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


def calls_in(wire: Wire) -> list[tuple[WireRecord, ...]]:
    return [group for group in wire.groups if group[0].method == "tools/call"]


def outline(group: tuple[WireRecord, ...]) -> list[tuple[str, str, str]]:
    return [(record.direction, record.kind, record.method) for record in group]


CALL, ANSWERED = ("sent", "request", "tools/call"), ("received", "response", "tools/call")
PROGRESS = ("received", "notification", "notifications/progress")


async def test_all_rounds_of_a_call_that_asks_twice_are_one_group(opened: Opened) -> None:
    connection: Connection = opened(
        Connection("booking", server=booking(), handlers=Handlers(elicitation=answer))
    )
    await connection.connect()
    assert (await connection.call("book", {})).content[0].text == "booked Fram"
    assert connection.status.protocol_version == "2026-07-28"
    (group,) = calls_in(connection.read_wire())
    assert outline(group) == [CALL, PROGRESS, ANSWERED] * 3
    assert {record.tool for record in group} == {"book"}
    ids = [record.id for record in group if record.kind == "request"]
    assert ids == [record.id for record in group if record.kind == "response"]
    assert len(set(ids)) == 3
    assert [record.seconds is not None and record.seconds >= 0 for record in group] == [
        False,
        False,
        True,
    ] * 3
    questions = [
        record.message["result"].get("inputRequests")
        for record in group
        if record.kind == "response"
    ]
    assert [list(each or ()) for each in questions] == [["first"], ["second"], []]
    assert group[3].message["params"]["inputResponses"]["first"]["content"] == ANSWERS


async def test_calls_of_one_tool_at_the_same_time_keep_their_own_rounds(opened: Opened) -> None:
    connection: Connection = opened(
        Connection("booking", server=booking(), handlers=Handlers(elicitation=answer))
    )
    await connection.connect()
    ships = ["Fram", "Gjøa", "Maud"]
    await asyncio.gather(*(connection.call("book", {"ship": ship}) for ship in ships))
    groups = calls_in(connection.read_wire())
    assert len(groups) == len(ships)
    for group in groups:
        sent = {
            record.message["params"]["arguments"]["ship"]
            for record in group
            if record.kind == "request"
        }
        assert len(sent) == 1
        assert f"booked {sent.pop()}" in group[-1].text
        assert len(group) == 9


async def test_a_question_of_a_process_is_in_the_group_of_its_call(
    opened: Opened, tmp_path: Path
) -> None:
    script = tmp_path / "asking.py"
    script.write_text(ASKING)
    fields = {
        "command": sys.executable,
        "args": (str(script),),
        "init_timeout": 60,
        "protocol": "legacy",
    }
    connection: Connection = opened(
        Connection(
            "asking", ServerConfig.model_validate(fields), handlers=Handlers(elicitation=_value)
        )
    )
    await connection.connect()
    assert (await connection.call("ask", {})).content[0].text == "hello Ada"
    wire = connection.read_wire()
    (group,) = calls_in(wire)
    question = ("received", "request", "elicitation/create")
    assert outline(group) == [
        CALL,
        PROGRESS,
        question,
        ("sent", "response", "elicitation/create"),
        ANSWERED,
    ]
    assert group[2].id == group[3].id
    assert all(
        record.http is None
        and record.size == len(json.dumps(record.message, separators=(",", ":")))
        for record in wire
    )
    assert [record.method for record in wire][:3] == [
        "initialize",
        "initialize",
        "notifications/initialized",
    ]


async def _value(_question: ServerQuestion) -> QuestionAnswer:
    return QuestionAnswer("accept", {"value": "Ada"})


def test_what_is_sent_while_several_requests_run_is_in_no_group_of_theirs() -> None:
    log = WireLog("busy")
    for number in (1, 2):
        log.add(
            "sent",
            JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/call", params={"name": "a"}),
        )
    log.add("received", JSONRPCRequest(jsonrpc="2.0", id="q", method="roots/list"))
    log.add(
        "received", JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed")
    )
    log.add(
        "sent",
        JSONRPCNotification(
            jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1}
        ),
    )
    log.add("received", JSONRPCRequest(jsonrpc="2.0", id="r", method="roots/list"))
    log.add("sent", JSONRPCResponse(jsonrpc="2.0", id="r", result={"roots": []}))
    for odd in ([1], {"a": 1}, None):
        progress = {"progressToken": odd, "progress": 1}
        log.add(
            "received",
            JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=progress),
        )
    groups = [[record.method for record in group] for group in log.wire().groups]
    assert groups[:4] == [
        ["tools/call", "notifications/cancelled"],
        ["tools/call", "roots/list", "roots/list"],
        ["roots/list"],
        ["notifications/tools/list_changed"],
    ]
    assert sum(map(len, groups)) == 10


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_headers_and_status_of_http_are_with_the_message(
    opened: Opened, transport: str
) -> None:
    with McpHttp(transport=transport, events=True) as server:
        headers = {"Authorization": "Bearer t0ken-of-ada-1815", "X-Trace": "tr4ce-of-ada"}
        connection: Connection = opened(
            Connection("remote", ServerConfig.model_validate(server.config(headers=headers)))
        )
        await connection.connect()
        await connection.call("a", {})
        await connection.close()
        wire = connection.read_wire()
    (group,) = calls_in(wire)
    request, response = group
    assert request.http == response.http
    assert request.http is not None
    # Over SSE, the answer may come before the response to its request.
    assert request.http.status in ({200} if transport == "http" else {202, None})
    assert request.http.method == "POST"
    sent = {name.lower(): value for name, value in request.http.request_headers}
    assert sent["authorization"] == f"Bearer {MASK}"
    assert sent["content-type"] == "application/json"
    received = (
        {name.lower(): value for name, value in wire[0].http.response_headers}
        if wire[0].http
        else {}
    )
    assert "date" in received
    assert all(record.http for record in wire if record.kind != "notification")
    others = {
        record.method: record.http.status
        for record in wire
        if record.kind == "http" and record.http
    }
    assert others == ({"GET": 405, "DELETE": 200} if transport == "http" else {"GET": 200})
    text = wire.to_jsonl() + await asyncio.to_thread(wire._repr_html_)
    assert "t0ken-of-ada" not in text
    assert "tr4ce-of-ada" not in text
    assert server.session not in text
    if transport == "http":
        assert sent["mcp-session-id"] == MASK
        assert received["mcp-session-id"] == MASK


async def test_a_refusal_is_on_the_wire_with_its_status(opened: Opened) -> None:
    with McpHttp() as server:
        connection: Connection = opened(
            Connection("remote", ServerConfig.model_validate(server.config()))
        )
        await connection.connect()
        challenge = {"www-authenticate": 'Bearer resource_metadata="https://id.example/x"'}
        server.script("tools/call", Reply(401, "no", headers=challenge))
        with pytest.raises(ServerError):
            await connection.call("a", {})
        (group,) = calls_in(connection.read_wire())
    assert outline(group) == [CALL, ("received", "error", "tools/call")]
    assert group[0].http is not None
    assert group[0].http.status == 401
    assert ("www-authenticate", challenge["www-authenticate"]) in group[0].http.response_headers


async def test_a_request_without_a_response_has_its_headers(opened: Opened) -> None:
    with McpHttp() as server:
        connection: Connection = opened(
            Connection("remote", ServerConfig.model_validate(server.config()))
        )
        await connection.connect()
        server.script("tools/call", Reply(reset=True))
        with pytest.raises(ServerError):
            await connection.call("a", {})
        request = calls_in(connection.read_wire())[0][0]
    assert request.http is not None
    assert request.http.status is None
    assert len(request.http.request_headers) > 3
    assert request.http.response_headers == ()


class _Grant(httpx2.Auth):
    """Fetches a token before a request, as OAuth does, and again after a refusal."""

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        for _ in range(2):
            form = b"grant_type=refresh_token&client_secret=cl13nt-s3cret-99&refresh_token=r3fresh-9f8e7d6c"
            kind = {
                "content-type": "application/x-www-form-urlencoded",
                "authorization": "Basic Y2xpZW50OmNsMTNudC1zM2NyZXQ=",
            }
            granted = yield httpx2.Request(
                "POST", request.url.join("/token?code=c0de-1234"), content=form, headers=kind
            )
            request.headers["authorization"] = f"Bearer {granted.headers['x-granted-token']}"
            if (yield request).status_code != 401:
                return


async def test_requests_for_a_token_are_records_of_their_own_and_masked() -> None:
    refusals = [
        Reply(401, "no"),
        Reply(200, {"jsonrpc": "2.0", "id": 7, "result": {"said": "acc3ss-t0ken-77"}}),
    ]

    def reply(request: Request) -> Reply:
        return (
            Reply(200, {}, headers={"x-granted-token": "acc3ss-t0ken-77"})
            if "token" in request.path
            else refusals.pop(0)
        )

    log = WireLog("remote")
    message = JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/list")
    with ScriptedHttp(reply) as server:
        SENT.set(log.add("sent", message))
        async with _Client(ResponseMonitor(wire=log), auth=_Grant()) as client:
            answered = await client.post(
                f"{server.url}/mcp", json=message.model_dump(exclude_unset=True)
            )
        log.add("received", JSONRPCResponse.model_validate(answered.json()))
        SENT.set(None)
    wire = log.wire()
    assert [(record.kind, record.http and record.http.status) for record in wire] == [
        ("request", 200),
        ("http", 200),
        ("http", 200),
        ("http", 401),
        ("response", 200),
    ]
    assert wire[3].group == wire[0].group != wire[1].group
    # The token is in no config: it is recognised in the header, and masked where a result repeats
    # it.
    text = wire.to_jsonl()
    assert not [
        secret
        for secret in ("acc3ss-t0ken", "cl13nt", "Y2xpZW50", "r3fresh", "c0de-1234")
        if secret in text
    ]


SECRET = "pl4nted-s3cret-0f-ada"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
PLACES: dict[str, Callable[[str], Any]] = {
    "a member": lambda secret: {"password": secret},
    "a nested member": lambda secret: {"credentials": {"user": "ada", "parts": [secret]}},
    "a key of an API": lambda secret: {
        "apiKey": secret,
        "X-Api-Key": secret,
        "client_secret": secret,
        "access_token": secret,
    },
    "a session": lambda secret: {"sessionId": secret, "session_id": secret},
    "the query of a URL": lambda secret: (
        f"see https://host.example/a?page=2&access_token={secret}&x=1"
    ),
    "the user of a URL": lambda secret: f"postgres://ada:{secret}@host.example/db",
    "a header in text": lambda secret: f"Authorization: Bearer {secret}",
    "an assignment": lambda secret: f"export DB_PASSWORD='{secret}'; run",
    "JSON in text": lambda secret: json.dumps({"refresh_token": secret, "expires_in": 3600}),
    "JSON in JSON in text": lambda secret: json.dumps({"text": json.dumps({"cookie": secret})}),
    "a recognisable token": lambda _: f"use {JWT} or sk-proj-abcdef0123456789",
    "a key of a member": lambda _: {JWT: 1},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "where", ["arguments", "result", "structured", "error", "progress", "log", "question", "url"]
)
def test_a_secret_that_is_in_no_config_is_masked_wherever_it_is(place: str, where: str) -> None:
    value = PLACES[place](SECRET)
    log = WireLog("remote")
    call = {"name": "a", "arguments": {"given": value} if where == "arguments" else {}}
    log.add("sent", JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=call))
    text = value if isinstance(value, str) else json.dumps(value)
    sent: dict[str, tuple[str, dict[str, Any]]] = {
        "progress": (
            "notifications/progress",
            {"progressToken": 1, "progress": 1, "message": text},
        ),
        "log": ("notifications/message", {"level": "info", "data": value}),
        "question": ("elicitation/create", {"message": text, "requestedSchema": {}}),
    }
    if where in sent:
        method, params = sent[where]
        log.add("received", JSONRPCNotification(jsonrpc="2.0", method=method, params=params))
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text if where == "result" else "ok"}]
    }
    if where == "structured":
        result["structuredContent"] = {"told": value}
    if where == "url":
        result["content"].append(
            {"type": "resource_link", "uri": f"https://host.example/?token={SECRET}", "name": "a"}
        )
    failure = {"code": -32000, "message": text, "data": value}
    answered: dict[str, Any] = {"error": failure} if where == "error" else {"result": result}
    log.add("received", _message({"jsonrpc": "2.0", "id": 1, **answered}))
    wire = log.wire()
    shown = wire.to_jsonl() + wire._repr_html_() + str(wire) + str(log.read()) + repr(wire.records)
    assert MASK in shown
    assert not [part for part in (SECRET, JWT, "sk-proj-abcdef") if part in shown]


def _message(fields: dict[str, Any]) -> Any:
    return (JSONRPCError if "error" in fields else JSONRPCResponse).model_validate(fields)


IN_PATH = "a1b2c3d4e5f6a7b8c9d0e1f2"
HEADERS = {
    "authorization": f"Bearer {SECRET}",
    "proxy-authorization": f"Basic {base64.b64encode(f'ada:{SECRET}'.encode()).decode()}",
    "cookie": f"theme=dark; sid={SECRET}",
    "set-cookie": f"sid={SECRET}; Path=/; HttpOnly",
    "x-api-key": SECRET,
    "ocp-apim-subscription-key": SECRET,
    "mcp-session-id": SECRET,
    "x-amz-security-token": SECRET,
    "location": f"https://ada:{SECRET}@host.example/next?access_token={SECRET}",
    "mcp-param-password": SECRET,
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("side", ["request", "response"])
async def test_a_secret_is_masked_in_every_header_and_then_everywhere(name: str, side: str) -> None:
    def reply(_: Request) -> Reply:
        return Reply(200, {}, headers={name: HEADERS[name]} if side == "response" else {})

    log = WireLog("remote")
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
    with ScriptedHttp(reply) as server:
        SENT.set(log.add("sent", request))
        async with _Client(ResponseMonitor(wire=log)) as client:
            given = {name: HEADERS[name]} if side == "request" else {}
            url = f"{server.url}/s/{IN_PATH}/mcp?page=2&key={SECRET}"
            await client.post(url, json=request.model_dump(exclude_unset=True), headers=given)
        SENT.set(None)
    log.add(
        "received", JSONRPCResponse(jsonrpc="2.0", id=1, result={"note": f"the value is {SECRET}"})
    )
    wire = log.wire()
    shown = wire.to_jsonl() + await asyncio.to_thread(lambda: wire._repr_html_() + str(wire[0]))
    assert MASK in shown
    assert SECRET not in shown
    assert IN_PATH not in shown
    assert base64.b64encode(SECRET.encode()).decode()[4:20] not in shown
    assert "page=2" in shown


async def test_secrets_of_the_config_are_masked_in_messages_in_any_form(opened: Opened) -> None:
    secret = "c0nfig-s3cret/of+ada"
    forms = [
        secret,
        base64.b64encode(secret.encode()).decode(),
        secret.encode().hex(),
        json.dumps(secret),
    ]
    config = raw_config(
        config={"env": {"PLACE": secret}}, calls={"go": {"result": text_result(" ".join(forms))}}
    )
    connection: Connection = opened(Connection("raw", ServerConfig.model_validate(config)))
    await connection.connect()
    await connection.call("go", {"told": secret, secret: [1]})
    shown = connection.read_wire().to_jsonl()
    assert not [form for form in forms[:3] if form in shown]


def test_names_of_secrets_are_told_from_facts_about_them() -> None:
    secret = [
        "password",
        "API_KEY",
        "x-api-key",
        "accessToken",
        "auth",
        "session-id",
        "sessionid",
        "userPassword2",
        "clientSecret",
    ]
    assert [name for name in secret if not names_secret(name)] == []
    plain = [
        "author",
        "maxTokens",
        "token_count",
        "token_type",
        "progressToken",
        "nextPageToken",
        "keyword",
        "monkey",
        "compass",
    ]
    assert [
        name
        for name in [*plain, "expires_in", "key", "signature", "design", "", "名"]
        if names_secret(name)
    ] == []
    assert names_secret("key", "a1b2c3d4e5f6")
    assert not names_secret("key", "Bergen")


def test_schemas_and_harmless_text_stay_readable() -> None:
    schema = {
        "type": "object",
        "properties": {"password": {"type": "string", "description": "A password: required"}},
    }
    tools = {
        "tools": [
            {
                "name": "log_in",
                "inputSchema": schema,
                "description": "Basic math. Token prices, keys: a, b.",
            }
        ]
    }
    assert Suspects().value(tools) == tools
    text = (
        "from 2026-11-24 10:30, see http://host.example/a?page=2#top; total: 391, key=name, version"
        " 4.1.2"
    )
    assert Suspects().text(text) == text


@pytest.mark.parametrize(
    "unit",
    ["a", "a:", "://", "://a:", "password=", "?token=", "bearer ", "bearer a", '"\\', "a=", "sk-"],
)
def test_hostile_text_is_searched_in_a_time_that_grows_with_its_length(unit: str) -> None:
    def work(length: int) -> int:
        count = 0

        def counted(*_: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            Suspects().text(unit * (length // len(unit)))
        finally:
            sys.setprofile(None)
        return count

    assert work(40_000) <= 2 * work(20_000) + 50


async def test_the_wire_is_bounded_and_says_what_was_cut(opened: Opened) -> None:
    connection: Connection = opened(Connection("booking", server=booking()))
    await connection.connect()
    long = "x" * 300_000
    await connection.call("echo", {"text": long})
    request, response = calls_in(connection.read_wire())[-1]
    assert request.cut
    assert response.cut
    assert len(request.text) < 2 * MAX_MESSAGE_LENGTH
    assert 300_000 <= request.size < 310_000
    assert request.as_dict()["message"]["params"]["arguments"]["text"].endswith(
        "(300,000 characters)"
    )
    for _ in range(MAX_MESSAGES // 2):
        await connection.call("echo", {"text": "short"})
    wire = connection.read_wire()
    assert len(wire) == MAX_MESSAGES
    assert wire.dropped >= 4
    assert not any(record.cut for record in wire[-10:])
    assert f"{wire.dropped:,} earlier" in await asyncio.to_thread(str, wire)


def test_the_size_of_a_long_listing_is_estimated() -> None:
    log = WireLog("many")
    listing = {
        "tools": [{"name": f"tool_{number:06}", "description": "d" * 50} for number in range(5_000)]
    }
    log.add("received", JSONRPCResponse(jsonrpc="2.0", id=1, result=listing))
    size = len(json.dumps(listing, separators=(",", ":")))
    assert 0.5 * size < log.wire()[0].size < 1.5 * size


BIG = 20 * 1024 * 1024
TEXT = "word " * (BIG // 5)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": TEXT}]},
        {"content": [], "structuredContent": {"result": TEXT}},
        {"content": [], "structuredContent": {"rows": [{"a": "b" * 90}] * 200_000}},
        {"content": [], "structuredContent": {f"key {n}": n for n in range(500_000)}},
    ],
    ids=["text", "a structured text", "rows", "keys"],
)
def test_a_large_message_is_not_copied_to_keep_its_beginning(result: dict[str, Any]) -> None:
    log = WireLog("big")
    message = JSONRPCResponse(jsonrpc="2.0", id=1, result=result)
    tracemalloc.start()
    log.add("received", message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1024 * 1024
    (record,) = log.wire()
    assert record.cut
    assert record.size > 20_000


def test_headers_are_bounded() -> None:
    many = [(b"x-%d" % number, b"v" * 5_000) for number in range(500)]
    log = WireLog("many")
    log.add_http(None, exchange_of("GET", f"http://host.example/{'a' * 9_000}", 200, many, many))
    (record,) = log.wire()
    assert record.http is not None
    assert len(record.http.request_headers) == MAX_HEADERS
    assert max(len(value) for _, value in record.http.response_headers) <= MAX_HEADER_LENGTH
    assert len(record.http.url) <= MAX_HEADER_LENGTH


def test_recording_a_message_takes_few_calls() -> None:
    log = WireLog("fast", [f"planted-tok3n-{number}" for number in range(20)])
    request = JSONRPCRequest(
        jsonrpc="2.0", id=1, method="tools/call", params={"name": "a", "arguments": {"a": 1}}
    )
    calls: list[str] = []
    sys.setprofile(
        lambda frame, kind, _: calls.append(frame.f_code.co_name) if kind == "call" else None
    )
    try:
        log.add("sent", request)
    finally:
        sys.setprofile(None)
    # Nothing is formatted or masked yet.
    assert len(calls) <= 12
    assert not {"_masked", "text", "value", "short"} & set(calls)


async def test_filters_show_whole_groups(opened: Opened) -> None:
    connection: Connection = opened(
        Connection("booking", server=booking(), handlers=Handlers(elicitation=answer))
    )
    await connection.connect()
    await connection.call("book", {})
    await connection.call("echo", {"text": "Hurtigruten"})
    wire = connection.read_wire()
    assert {group[0].method for group in wire.groups} >= {
        "server/discover",
        "tools/list",
        "tools/call",
    }
    assert [group[0].tool for group in wire.matching("notifications/progress").groups] == ["book"]
    assert [len(group) for group in wire.matching("notifications/*").groups] == [9]
    assert {record.method for record in wire.matching("tools/list")} == {"tools/list"}
    assert [group[0].tool for group in wire.matching(text="hurtigRUTEN").groups] == ["echo"]
    assert [group[0].tool for group in wire.matching("tools/call", "your name?").groups] == ["book"]
    assert len(wire.matching("tools/list", "Hurtigruten")) == 0
    assert wire.matching() is wire
    assert "None." in await asyncio.to_thread(str, wire.matching("nothing/*"))


async def test_a_file_has_a_record_on_each_line_and_is_not_replaced_by_itself(
    opened: Opened, tmp_path: Path
) -> None:
    connection: Connection = opened(Connection("booking", server=booking()))
    await connection.connect()
    await connection.call("echo", {"text": "a\u202eb\nc"}, meta={"password": SECRET})
    wire = connection.read_wire()
    file = wire.export(tmp_path / "wire.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["message"] for line in lines] == [record.message for record in wire]
    assert lines[-1]["message"]["result"]["content"][0]["text"] == "a\u202eb\nc"
    assert set(lines[0]) >= {
        "time",
        "server",
        "direction",
        "kind",
        "method",
        "id",
        "group",
        "size",
        "seconds",
        "http",
    }
    assert SECRET not in file.read_text()
    with pytest.raises(UsageError, match="already exists"):
        wire.export(file)
    assert wire.matching("tools/list").export(file, overwrite=True) == file
    assert {json.loads(line)["method"] for line in file.read_text().splitlines()} == {"tools/list"}


def test_hostile_messages_are_shown_as_text_and_cut() -> None:
    log = WireLog("<script>alert(1)</script>")
    evil = "</code><script>alert(1)</script>\x1b[31m\u202e"
    log.add(
        "sent",
        JSONRPCRequest(
            jsonrpc="2.0",
            id=f"{evil}{'i' * 9_000}",
            method=f"{evil}{'m' * 9_000}",
            params={evil: evil},
        ),
    )
    log.add(
        "received", JSONRPCNotification(jsonrpc="2.0", method=evil, params={"deep": _deep(500)})
    )
    wire = log.wire()
    for shown in (wire, wire[0], wire[1]):
        html = shown._repr_html_()
        assert "<script" not in html
        assert "\x1b" not in html + str(shown)
        assert "\u202e" not in html + str(shown)
        assert len(html) < 70_000
    assert len(str(wire[0].id)) <= 200
    assert len(wire[0].method) <= 200
    assert wire[0].text.isascii()
    json.loads(wire.to_jsonl().splitlines()[1])


def _deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def test_a_session_reads_the_wire_of_one_server_or_of_all(tmp_path: Path) -> None:
    servers = {"booking": booking(), "other": booking()}
    with Session(
        {"servers": {}}, in_process=servers, store=tmp_path / "conversations.db"
    ) as session:
        cassette = session.cassettes.use(tmp_path / "cassette.json", "all")
        session.tools.call("booking:echo", text="Hurtigruten")
        session.tools.call("other:echo", text="Fram")
        cassette.close()
        both, one = session.servers.wire(), session.servers.wire("booking")
        assert {record.server for record in both} == {"booking", "other"}
        assert {record.server for record in one} == {"booking"}
        assert [record.at for record in both] == sorted(record.at for record in both)
        numbers = {(record.server, record.group) for record in both}
        assert len(numbers) == len({group for _, group in numbers})
        found = session.servers.wire(method="tools/call", text="fram")
        assert {(record.server, record.tool) for record in found} == {("other", "echo")}
        with pytest.raises(UnknownNameError):
            session.servers.wire("bookin")
    assert not [file for file in tmp_path.iterdir() if b"jsonrpc" in file.read_bytes()]
