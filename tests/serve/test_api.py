"""The HTTP API of a session, through real HTTP on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastmcp import FastMCP
from kit.obedient import Obedient, order

from casual_mcp_nb import Service, Session
from casual_mcp_nb.base.content import HANDLE_NOTE
from casual_mcp_nb.base.service import ServeLimits
from casual_mcp_nb.conversation.event import TurnFinished
from casual_mcp_nb.serve.guard import Guard

SECRET = "sk-not-a-real-key"


def desk() -> FastMCP[Any]:
    server = FastMCP("desk")

    @server.tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations={"readOnlyHint": True})
    def report() -> str:
        """Return a long report."""
        return "\n".join(f"line {number} of a long report" for number in range(5_000))

    @server.tool(annotations={"destructiveHint": True})
    def burn(what: str) -> str:
        """Burn something."""
        return f"burnt {what}"

    return server


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Obedient() as model:
        config = {**model.config, "tool_sets": {"sums": {"description": "Numbers", "servers": {}}}}
        with Session(config, in_process={"desk": desk()}, system="Secret instructions.") as session:
            yield session


@pytest.fixture(scope="module")
def service(session: Session) -> Iterator[Service]:
    with session.serve.http(
        port=0, limits=ServeLimits(max_messages=20, max_bytes=50_000)
    ) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "small", "messages": [{"role": "user", "content": text}], **more}


def test_a_turn_is_answered_with_its_messages_and_its_stats(client: httpx.Client) -> None:
    body = ask(order("Sum:", ("desk__add", {"a": 1, "b": 2}), usage=(40, 2)), include_stats=True)
    answer = client.post("/chat", json=body).json()
    assert answer["response"] == "Sum: 3"
    assert [message["role"] for message in answer["messages"]] == ["assistant", "tool", "assistant"]
    assert answer["stats"] == {
        "tokens": {
            "prompt_tokens": 80,
            "completion_tokens": 4,
            "total_tokens": 84,
            "origin": "reported",
        },
        "tool_calls": {"by_tool": {"desk__add": 1}, "by_server": {"desk": 1}, "total": 1},
        "llm_calls": 2,
        "discovery": None,
    }


def test_a_conversation_goes_on_with_the_messages_of_the_answer(
    client: httpx.Client, session: Session
) -> None:
    first = ask(order("Sum:", ("desk__add", {"a": 1, "b": 2})))
    answer = client.post("/chat", json=first).json()
    assert "stats" not in answer
    messages = [
        *first["messages"],
        *answer["messages"],
        {"role": "user", "content": order("Goodbye")},
    ]
    again = client.post("/chat", json={"model": "small", "messages": messages}).json()
    assert [message["content"] for message in again["messages"]] == ["Goodbye"]
    # It is nobody else's conversation, least of all the notebook's.
    assert session.turns == []


def test_system_prompts_replace_the_sessions(client: httpx.Client) -> None:
    body = ask(order("Hi"), include_stats=True)
    long = {**body, "system_prompt": "You are terse. " * 200}
    first = {
        **body,
        "messages": [{"role": "system", "content": "You are terse. " * 200}, *body["messages"]],
    }
    sizes = [_events(client, each)[1][1]["request"]["tokens"] for each in (body, long, first)]
    assert sizes[1] == sizes[2] > sizes[0] + 400


def _events(client: httpx.Client, body: dict[str, Any]) -> list[tuple[str, Any]]:
    """The server-sent events of a request: names and data."""
    response = client.post("/chat", json=body, headers={"Accept": "text/event-stream"})
    assert response.headers["content-type"].startswith("text/event-stream")
    pairs = [part.split("\n") for part in response.text.strip().split("\n\n")]
    return [
        (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        for name, data in pairs
    ]


def test_events_come_before_the_same_answer(client: httpx.Client) -> None:
    body = ask(order("Sum:", ("desk__add", {"a": 1, "b": 2})), include_stats=True)
    events = _events(client, body)
    names = [name for name, _ in events]
    assert [name for name in names if name.startswith("Step")] == [
        "StepStarted",
        "StepFinished",
    ] * 2
    assert names[0] == "TurnStarted"
    assert names[-2:] == ["TurnFinished", "Answer"]
    fields = dict(events)
    assert fields["ToolStarted"]["tool"] == "desk:add"
    assert fields["ToolStarted"]["arguments"] == {"a": 1, "b": 2}
    assert fields["ToolFinished"]["text"] == "3"
    assert fields["TextDelta"]["text"] == "Sum: 3"
    assert fields["Answer"] == client.post("/chat", json=body).json()
    # The system prompt is the service's.
    assert "Secret instructions" not in json.dumps(events)


def test_a_failure_is_the_last_event(client: httpx.Client) -> None:
    events = _events(client, ask(order(fail=True)))
    assert events[-1][0] == "Problem"
    assert events[-1][1]["status"] == 502
    assert SECRET not in json.dumps(events)


def test_a_call_that_would_ask_is_denied_and_the_model_reads_why(client: httpx.Client) -> None:
    answer = client.post("/chat", json=ask(order("", ("desk__burn", {"what": "all"})))).json()
    assert "burnt" not in answer["response"]
    assert "approval=" in answer["response"]


def test_a_policy_allows_it(session: Session) -> None:
    with session.serve.http(port=0, approval={"desk": {"burn": "never"}}) as service:
        body = ask(order("", ("desk__burn", {"what": "all"})))
        assert httpx.post(f"{service.url}/chat", json=body).json()["response"] == "burnt all"


PART = {"type": "text", "text": "x"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.defect("G1")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [PART] * 50_000},
        {"role": "assistant", "content": "", "tool_calls": [CALL] * 20_000},
        {"role": "user", "content": "x", "more": [[]] * 200_000},
    ],
    ids=["parts", "calls", "lists"],
)
def test_a_request_of_too_many_values_is_refused_before_it_is_parsed(
    session: Session, message: dict[str, Any]
) -> None:
    limits = ServeLimits()
    with session.serve.http(port=0, limits=limits) as service:
        body = {"model": "small", "messages": [message, {"role": "user", "content": order("Hi")}]}
        response = httpx.post(f"{service.url}/chat", json=body)
    assert (response.status_code, response.json()["kind"]) == (413, "request_too_large")
    assert f"{limits.max_values:,}" in response.json()["detail"]


@pytest.mark.defect("G1")
async def test_a_request_of_50_000_parts_is_not_even_read_to_its_end() -> None:
    limits = ServeLimits()
    body = json.dumps(
        {"model": "small", "messages": [{"role": "user", "content": [PART] * 50_000}]}
    ).encode()
    chunks = [body[start : start + 10_000] for start in range(0, len(body), 10_000)]
    coming, statuses, reached = iter(chunks), [], []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": next(coming), "more_body": True}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    async def application(scope: Any, *_: Any) -> None:
        reached.append(scope)

    guard = Guard(application, hosts=None, max_bytes=limits.max_bytes, max_values=limits.max_values)
    await guard({"type": "http", "path": "/chat", "headers": []}, receive, send)
    assert (statuses[0], reached) == (413, [])
    # A part is three values: an object and two commas.
    assert len(chunks) - len(list(coming)) == pytest.approx(
        len(chunks) * limits.max_values / 150_000, abs=1
    )


@pytest.mark.defect("G1")
def test_a_request_of_many_values_holds_nobody(session: Session) -> None:
    calls = [{**CALL, "id": f"c{number}"} for number in range(2_000)]
    messages = [
        {"role": "user", "content": [PART] * 8_000},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "user", "content": order("Hi")},
    ]
    # The watch over all loops, see `kit.loop_guard`, fails the test if one is held.
    with session.serve.http(port=0) as service:
        response = httpx.post(
            f"{service.url}/chat", json={"model": "small", "messages": messages}, timeout=60
        )
    assert response.json()["response"] == "Hi"


def test_a_large_result_is_kept_for_its_own_request_only(client: httpx.Client) -> None:
    first = ask(order("", ("desk__report", {})))
    answer = client.post("/chat", json=first).json()
    (handle,) = HANDLE_NOTE.findall(answer["messages"][1]["content"])
    # Whoever knows or guesses a handle reads nothing of another request.
    asked = {
        "role": "user",
        "content": order("", ("read_result", {"handle": handle, "search": "line 4999"})),
    }
    messages = [*first["messages"], *answer["messages"], asked]
    again = client.post("/chat", json={"model": "small", "messages": messages}).json()
    assert "line 4999 of" not in again["response"]
    assert "no longer kept" in again["response"]


def test_toolsets_are_listed(client: httpx.Client) -> None:
    assert client.get("/toolsets").json() == {"sums": {"description": "Numbers", "servers": []}}


def test_the_health_says_nothing_else(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}


def test_the_page_of_documentation_needs_no_other_site(client: httpx.Client) -> None:
    page = client.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    assert client.get("/docs/swagger-ui-bundle.js").status_code == 200


def test_whoever_observes_the_session_is_told_of_the_turns(
    session: Session, client: httpx.Client
) -> None:
    seen: list[str] = []
    end = session.observe(
        lambda turn, event: seen.append(turn.answer) if isinstance(event, TurnFinished) else None
    )
    client.post("/chat", json=ask(order("Hello")))
    end()
    client.post("/chat", json=ask(order("Bye")))
    assert seen == ["Hello"]


USER = {"role": "user", "content": "{}"}
PROBLEMS: dict[str, tuple[dict[str, Any], int, str]] = {
    "an unknown model": ({"json": ask("{}", model="large")}, 400, "unknown_name"),
    "an unknown toolset": ({"json": ask("{}", tool_set="nope")}, 400, "unknown_name"),
    "no messages": ({"json": {"model": "small", "messages": []}}, 422, "validation"),
    "no model": ({"json": {"messages": [USER]}}, 422, "validation"),
    "an unknown field": ({"json": ask("{}", toolset="sums")}, 422, "validation"),
    "an unknown role": (
        {"json": {"model": "small", "messages": [{"role": "boss", "content": ""}]}},
        422,
        "validation",
    ),
    "a wrong type": ({"json": ask("{}", include_stats="perhaps")}, 422, "validation"),
    "too many messages": ({"json": {"model": "small", "messages": [USER] * 21}}, 422, "validation"),
    "an image elsewhere": (
        {
            "json": {
                "model": "small",
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": "file:///a/b"}]}
                ],
            }
        },
        422,
        "validation",
    ),
    "not JSON": (
        {"content": b"{", "headers": {"Content-Type": "application/json"}},
        422,
        "validation",
    ),
    "a deep document": (
        {"content": b"[" * 40_000, "headers": {"Content-Type": "application/json"}},
        400,
        "bad_request",
    ),
    "too large": ({"content": b"x" * 50_001}, 413, "request_too_large"),
    "a failing model": ({"json": ask(order(fail=True))}, 502, "bad_request"),
    "another path": ({"url": "/nope", "json": {}}, 404, "not_found"),
    "another method": ({"url": "/toolsets", "json": {}}, 405, "method_not_allowed"),
    "another name": ({"headers": {"Host": "evil.example"}, "json": {}}, 403, "host_not_allowed"),
    "a user before the name": (
        {"headers": {"Host": "evil@127.0.0.1"}, "json": {}},
        403,
        "host_not_allowed",
    ),
    "a name and a password": (
        {"headers": {"Host": "evil:x@localhost:80"}, "json": {}},
        403,
        "host_not_allowed",
    ),
    "a path behind the name": (
        {"headers": {"Host": "localhost/evil"}, "json": {}},
        403,
        "host_not_allowed",
    ),
    "an empty name": ({"headers": {"Host": ""}, "json": {}}, 403, "host_not_allowed"),
    "a blank origin": ({"headers": {"Origin": ""}, "json": {}}, 403, "origin_not_allowed"),
    "two origins": (
        {
            "headers": [("Origin", "http://evil.example"), ("Origin", "http://127.0.0.1")],
            "json": {},
        },
        403,
        "origin_not_allowed",
    ),
    "an origin with a path": (
        {"headers": {"Host": "localhost", "Origin": "http://localhost/evil"}, "json": {}},
        403,
        "origin_not_allowed",
    ),
    "an origin of another kind": (
        {"headers": {"Host": "localhost", "Origin": "ftp://localhost"}, "json": {}},
        403,
        "origin_not_allowed",
    ),
    "no origin": ({"headers": {"Origin": "null"}, "json": {}}, 403, "origin_not_allowed"),
    "another site": (
        {"headers": {"Origin": "http://evil.example"}, "json": {}},
        403,
        "origin_not_allowed",
    ),
}


@pytest.mark.defect("N9")
@pytest.mark.parametrize(("request_", "status", "kind"), PROBLEMS.values(), ids=PROBLEMS)
def test_every_error_has_one_form(
    client: httpx.Client, request_: dict[str, Any], status: int, kind: str
) -> None:
    response = client.post(**{"url": "/chat", **request_})
    problem = response.json()
    assert (response.status_code, problem["status"], problem["kind"]) == (status, status, kind)
    assert response.headers["content-type"] == "application/problem+json"
    assert problem.keys() == {"type", "title", "status", "detail", "kind", "errors", "failure"}
    assert "Traceback" not in response.text
    assert SECRET not in response.text
    assert bool(problem["errors"]) == (status == 422)
