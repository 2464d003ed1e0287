"""Record with in-memory servers and a scripted model, and replay without them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from kit.asked import asked
from kit.setups import OFFLINE
from kit.traces import same_apart_from_times

from casual_mcp_nb import Session
from casual_mcp_nb.base.content import HANDLE_NOTE
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.cassettes.replayer import Replayer
from casual_mcp_nb.conversation.event import ToolFinished, ToolsSearched
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import (
    CassetteError,
    CassetteMismatchError,
    RateLimitError,
    ResourceError,
    UnknownNameError,
    UsageError,
)
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


def harbour() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("harbour", instructions="Ships are named without an article.")
    visits = 0

    @server.tool
    async def berth(ship: str, context: Context) -> str:
        """Find the berth of a ship."""
        nonlocal visits
        visits += 1
        await context.report_progress(1, 2, "looking")
        await context.info(f"visit {visits}")
        await context.report_progress(2, 2)
        return f"{ship}: berth {visits}"

    @server.tool
    def photo() -> Image:
        """Take a picture of the harbour."""
        return Image(data=PNG, format="png")

    @server.tool
    def sink(ship: str) -> str:
        """Sink a ship."""
        raise ToolError(f"{ship} cannot be sunk")

    @server.tool
    def depth() -> dict[str, float]:
        """Measure the depth of the water."""
        return {"metres": 12.5}

    @server.tool
    def log(days: int) -> str:
        """Read the log of the harbour."""
        return "\n".join(f"day {day}: nothing to report" for day in range(days))

    @server.tool
    async def open_gate(context: Context) -> str:
        """Open the gate to the inner harbour."""
        server.tool(
            lambda: "3 boats", name="inner", description="Count the boats in the inner harbour."
        )
        await context.send_notification(_tools_changed())
        return "open"

    @server.resource("harbour://rules", mime_type="text/plain")
    def rules() -> str:
        """Rules of the harbour."""
        return "No swimming."

    @server.prompt
    def arrival(ship: str) -> str:
        """Announce a ship."""
        return f"{ship} arrives."

    return server


def _tools_changed() -> Any:
    from mcp_types import ToolListChangedNotification

    return ToolListChangedNotification(method="notifications/tools/list_changed")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lesson.json"


@pytest.fixture
def opened() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def open_session(config: Any = OFFLINE, **options: Any) -> Session:
        options = {
            "quiet": True,
            "name": f"s{len(sessions)}",
            "in_process": {"harbour": harbour()},
            **options,
        }
        sessions.append(Session(config, **options))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


def replayed(path: Path, **options: Any) -> Session:
    return Session.quick(cassette=path, quiet=True, **options)


def compared(recorded: Session, again: Session) -> None:
    assert len(recorded.turns) == len(again.turns) > 0
    for one, other in zip(recorded.turns, again.turns, strict=True):
        assert same_apart_from_times(other) == same_apart_from_times(one)


def test_a_replay_has_the_same_trace_without_model_and_servers(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    model = scripted_model(
        call("harbour__berth", ship="Fram"),
        calls(
            call("harbour__depth"),
            call("harbour__sink", ship="Fram"),
            call("harbour__photo"),
            call("harbour__nothing"),
        ),
        "Fram is at berth 1, in deep water, with a picture.",
        call("harbour__berth", ship="Fram"),
        "Still there, at berth 2.",
    )
    with session.cassettes.use(file) as cassette:
        assert str(session.cassettes.state) == "recording lesson.json"
        session.chat("Where is Fram?", model=model, echo="none")
        session.chat("And now?", model=model, echo="none")
    assert (session.cassettes.state, cassette.active) == (None, False)
    kinds = [each.kind for each in Cassette.load(file).interactions]
    one_turn = ["turn", "model", "call", "model"]
    assert kinds == [*one_turn, "call", "call", "call", "model", *one_turn]

    with replayed(file) as again:
        assert str(again.cassettes.state) == "replaying lesson.json"
        assert [status.state for status in again.servers.values()] == ["ready"]
        again.chat("Where is Fram?", echo="none")
        assert again.cassettes.state is not None
        assert (again.cassettes.state.interactions, again.cassettes.state.unplayed) == (10, 3)
        again.chat("And now?", echo="none")
        assert again.cassettes.state.unplayed == 0
        compared(session, again)
        finished = [event for event in again.turns[0].trace if isinstance(event, ToolFinished)]
        assert [event.status for event in finished] == ["ok", "ok", "error", "ok", "error"]
        assert finished[3].result is not None
        assert finished[3].result.content[0].data == PNG


def test_searches_are_run_in_a_replay_and_find_the_same(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    session.selection.servers["harbour"] = "deferred"
    session.selection.discovery = True
    model = scripted_model(
        call("search_tools", query="how deep is the water"),
        call("harbour__depth"),
        "12.5 metres.",
        call("harbour__depth"),
        "Same.",
    )
    with session.cassettes.use(file):
        session.chat("How deep is it?", model=model, echo="none")
        session.chat("Again?", model=model, echo="none")
    with replayed(file) as again:
        assert again.selection.discovery
        again.cassettes.replay()
        compared(session, again)
        (searched,) = again.turns[0].trace.of(ToolsSearched)
        assert searched.rows[0].tool.tool == "depth"
    assert "search_tools" not in [
        each.request.get("tool") for each in Cassette.load(file).interactions
    ]


def test_tools_that_a_call_adds_are_there_in_the_replay(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    model = scripted_model(call("harbour__open_gate"), call("harbour__inner"), "3 boats.")
    with session.cassettes.use(file):
        session.chat("How many boats are inside?", model=model, echo="none")
    assert session.turns[0].tool_calls[1].status == "ok"
    with replayed(file) as again:
        again.cassettes.replay()
        compared(session, again)


def test_usage_errors_and_pieces_of_models_are_replayed(
    opened: Callable[..., Session], file: Path
) -> None:
    from casual_llm import AssistantMessage

    answer = ModelResponse(AssistantMessage(content="Ahoy, “Fram”!"), TokenUsage(10, 5), "stop")
    model = scripted_model(
        answer, RateLimitError("Too many requests.", status=429, retry_after=3.0)
    )
    session = opened()
    with session.cassettes.use(file):
        session.chat("Greet the ship.", model=model, echo="none")
        session.chat("Again.", model=model, echo="none")
    with replayed(file) as again:
        again.cassettes.replay()
        compared(session, again)
        assert again.stats.tokens.prompt_tokens == 10
        error = again.turns[1].exception
        assert isinstance(error, RateLimitError)
        assert (error.status, error.retry_after) == (429, 3.0)


def test_what_the_person_reads_and_calls_is_recorded_too(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    with session.cassettes.use(file):
        first = _berth(session), _berth(session)
        listed = (
            [each.uri for each in session.resources.list()],
            [each.name for each in session.prompts.list()],
        )
        rules, arrival = (
            session.resources.read("harbour://rules").text,
            session.prompts.get("harbour:arrival", ship="Fram").text,
        )
    assert first[0] != first[1]
    with replayed(file) as again:
        assert (_berth(again), _berth(again)) == first
        # All recorded ones were made: the last one counts.
        assert _berth(again) == first[1]
        assert (
            [each.uri for each in again.resources.list()],
            [each.name for each in again.prompts.list()],
        ) == listed
        assert again.resources.read("harbour://rules").text == rules
        assert again.prompts.get("harbour:arrival", ship="Fram").text == arrival
        with pytest.raises(CassetteMismatchError) as raised:
            again.tools.call("harbour:berth", ship="Gjøa")
        assert (raised.value.server, raised.value.tool) == ("harbour", "berth")
        assert raised.value.difference.splitlines()[-2:] == ['+  "ship": "Gjøa"', " }"]
        with pytest.raises(CassetteMismatchError):
            again.resources.read("harbour://other")
        with pytest.raises(ResourceError):
            again.resources.subscribe("harbour://rules")


def _berth(session: Session) -> str:
    return session.tools.call("harbour:berth", ship="Fram").content[0].text


def test_an_approval_is_replayed_and_nobody_is_asked(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened(approval={"harbour": "always"})
    asked: list[str] = []

    async def approve(request: Any) -> bool | str:
        asked.append(request.tool.name)
        return True if request.tool.name == "depth" else "Not today."

    session.parts.chat.consent.approver, session.parts.chat.consent.can_ask = approve, lambda: True
    with session.cassettes.use(file):
        model = scripted_model(call("harbour__depth"), call("harbour__sink", ship="Fram"), "No.")
        session.chat("Sink it.", model=model, echo="none")
    assert asked == ["depth", "sink"]
    with replayed(file) as again:
        again.cassettes.replay()
        compared(session, again)
        assert [each.status for each in again.turns[0].tool_calls] == ["ok", "denied"]


@pytest.mark.parametrize("stopped_ship", ["Fram", "Maud"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "exported"])
def test_a_stopped_turn_is_left_out_and_the_others_are_replayed(
    opened: Callable[..., Session], tmp_path: Path, recorded: bool, stopped_ship: str
) -> None:
    session = opened(approval={"harbour": {"berth": "always"}})
    file = tmp_path / ("lesson.json" if recorded else "lesson.html")
    cassette = session.cassettes.use(file) if recorded else None
    model = scripted_model(
        call("harbour__berth", ship="Fram"),
        "At berth 1.",
        calls(call("harbour__depth"), call("harbour__berth", ship=stopped_ship)),
        call("harbour__depth"),
        "12.5 metres.",
    )
    done = session.submit("Where is Fram?", model=model)
    asked(session, ApprovalQuestion).approve()
    assert done.result(30).status == "done"
    stopped = session.submit("Where is the other one?", model=model)
    asked(session, ApprovalQuestion)
    session.stop()
    assert stopped.result(30).status == "stopped"
    last = session.chat("How deep is it?", model=model, echo="none")
    if cassette is not None:
        cassette.close(keep=True)
    else:
        session.export(file, player=True)

    with replayed(file) as again:
        turns = again.cassettes.replay()
        assert [turn.answer for turn in turns] == ["At berth 1.", "12.5 metres."]
        assert turns[-1].tool_calls[0].result == last.tool_calls[0].result
        assert len(again.messages) == len(session.messages)
        assert again.cassettes.state is not None
        assert again.cassettes.state.unplayed == 0


def test_a_turn_of_an_export_that_failed_in_a_request_is_left_out(
    opened: Callable[..., Session], tmp_path: Path
) -> None:
    session = opened()
    file = tmp_path / "lesson.html"
    model = scripted_model(call("harbour__depth"), RateLimitError("Later."), "Ahoy.")
    assert session.chat("How deep is it?", model=model, echo="none").status == "failed"
    assert session.chat("Hello.", model=model, echo="none").answer == "Ahoy."
    session.export(file, player=True)
    with replayed(file) as again:
        assert [turn.answer for turn in again.cassettes.replay()] == ["Ahoy."]


def test_after_a_replay_its_calls_need_approval_as_before(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened(approval={"harbour": "always"})
    consent = session.parts.chat.consent

    async def approve(request: Any) -> bool:
        return True

    consent.approver, consent.can_ask = approve, lambda: True
    with session.cassettes.use(file):
        session.chat("How deep?", model=scripted_model(call("harbour__depth"), "12"), echo="none")
    consent.approver = None
    with session.cassettes.use(file, "none"):
        pass
    model = scripted_model(call("harbour__depth"), "I do not know.")
    turn = session.chat("How deep is it now?", model=model, echo="none")
    assert [each.status for each in turn.tool_calls] == ["denied"]


def test_a_large_result_is_kept_and_read_on_in_the_replay(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    model = scripted_model(
        _with_id(call("harbour__log", days=2_000), "toolu_x7"),
        lambda messages, tools: call(
            "read_result", handle=_handle(messages[-1].content), find="day 1999"
        ),
        "It was quiet.",
    )
    with session.cassettes.use(file):
        session.chat("What happened?", model=model, echo="none")
    assert session.turns[0].tool_calls[0].large is not None
    with replayed(file) as again:
        again.cassettes.replay()
        compared(session, again)


def _with_id(made: Any, id: str) -> Any:
    """An answer with one call that has an id as of a provider."""
    from casual_llm import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

    function = AssistantToolCallFunction(name=made.name, arguments=json.dumps(made.arguments))
    return AssistantMessage(content=None, tool_calls=[AssistantToolCall(id=id, function=function)])


def _handle(text: str) -> str:
    return HANDLE_NOTE.findall(text)[0]


def test_functions_of_the_notebook_are_run(opened: Callable[..., Session], file: Path) -> None:
    def with_function(session: Session, ships: list[str]) -> None:
        session.tool(
            lambda: ships.append("Fram") or len(ships), name="moor", description="Moor a ship."
        )  # type: ignore[func-returns-value]

    session, moored, again_moored = opened(), list[str](), list[str]()
    with session.cassettes.use(file):
        with_function(session, moored)
        session.chat("Moor it.", model=scripted_model(call("notebook__moor"), "Done."), echo="none")
    with replayed(file) as again:
        with_function(again, again_moored)
        again.cassettes.replay()
        compared(session, again)
        assert again_moored == moored == ["Fram"]
    with replayed(file) as without:
        # The cassette has its result too.
        assert without.cassettes.replay()[0].answer == "Done."


def test_the_modes(opened: Callable[..., Session], file: Path) -> None:
    session = opened()
    with pytest.raises(CassetteError):
        session.cassettes.use(file, "none")
    with pytest.raises(UnknownNameError):
        session.cassettes.use(file, "onec")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError):
        session.cassettes.use(file, match_on=["headers"])  # type: ignore[list-item]
    with pytest.raises(UsageError):
        session.cassettes.use(file, pace=-1)
    with pytest.raises(CassetteError):
        session.cassettes.use(file.parent / "none" / "lesson.json")
    with session.cassettes.use(file):
        pass
    assert not file.exists()
    recording = session.cassettes.use(file)
    session.chat("Hello.", model=scripted_model("Ahoy."), echo="none")
    # A cell that is run again ends the recording, and replays it.
    replaying = session.cassettes.use(file)
    assert (recording.active, replaying.active, str(session.cassettes.state)) == (
        False,
        True,
        "replaying lesson.json",
    )
    session.conversations.new()
    turn = session.chat("Hello.", model=scripted_model("Something else."), echo="none")
    assert turn.answer == "Ahoy."
    assert session.chat("Who are you?", model=scripted_model("x"), echo="none").status == "failed"
    replaying.close()
    replaying.close()
    session.conversations.new()
    with session.cassettes.use(file, "all"):
        session.chat("Hello.", model=scripted_model("Good morning."), echo="none")
    assert [each["messages"][0]["content"] for each in Cassette.load(file).turns] == ["Hello."]
    assert "Good morning." in file.read_text()
    with session.cassettes.use(file, "none") as last:
        assert last.state.unplayed == 1
    assert session.cassettes.state is None


def test_a_session_that_closes_saves_its_recording(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    session.cassettes.use(file)
    session.tools.call("harbour:depth")
    assert not file.exists()
    session.close()
    assert [each.kind for each in Cassette.load(file).interactions] == ["call"]


def test_a_request_that_differs_says_how(opened: Callable[..., Session], file: Path) -> None:
    session = opened()
    session.system = "You are a pilot.\nIt is 10:00.\nBe brief."
    with session.cassettes.use(file):
        session.chat("Where is Fram?", model=scripted_model("At sea."), echo="none")

    def differs(prompt: str = "Where is Fram?", **match: Any) -> str:
        session.conversations.new()
        with session.cassettes.use(file, "none", **match):
            turn = session.chat(prompt, model=scripted_model(), echo="none")
        if turn.status == "done":
            return ""
        assert isinstance(turn.exception, CassetteMismatchError)
        assert turn.exception.difference in str(turn.exception)
        return turn.exception.difference

    assert differs() == ""
    session.system = "You are a pilot.\nIt is 10:05.\nBe brief."
    assert differs().splitlines()[1:3] == ["-It is 10:00.", "+It is 10:05."]
    assert differs(match_on=("model", "messages", "tools")) == ""
    session.system = "You are a pilot.\nIt is 10:00.\nBe brief."
    assert differs("Where is \x1b[31mGjøa?").splitlines() == [
        "-Where is Fram?",
        "+Where is \\x1b[31mGj\\xf8a?".replace("\\xf8", "ø"),
    ]
    session.selection.tools_off.add("harbour:depth")
    assert "harbour__depth" in str(_mismatch(session, file))
    long = differs("x" * 5_000 + "Fram")
    assert max(map(len, long.splitlines())) < 250


def _mismatch(session: Session, file: Path) -> BaseException | None:
    session.conversations.new()
    with session.cassettes.use(file, "none"):
        return session.chat("Where is Fram?", model=scripted_model(), echo="none").exception


def test_a_config_replays_without_a_key_and_without_its_servers(
    opened: Callable[..., Session], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = {
        "clients": {"openai": {"provider": "openai"}},
        "models": {"gpt": {"client": "openai", "model": "gpt-4.1", "temperature": 0.5}},
        "servers": {"gone": {"command": "no-such-program-at-all"}},
    }
    cassette = {
        "format": "casual-mcp-nb cassette",
        "version": 1,
        "models": {"gpt": {"model": "gpt-4.1", "client": "openai", "provider": "openai"}},
        "servers": {
            "gone": {"way": "command", "tools": [{"name": "find", "description": "Find it."}]}
        },
        "interactions": [
            {
                "kind": "model",
                "request": {
                    "model": "gpt",
                    "keep": 0,
                    "messages": [{"role": "user", "content": "Hello."}],
                    "tools": [],
                },
                "response": {"message": {"role": "assistant", "content": "Ahoy."}},
            }
        ],
    }
    file.write_text(json.dumps(cassette))
    with opened(config, in_process={}) as session:
        assert session.status.closed is False
    session = opened(config, in_process={})
    with session.cassettes.use(file, match_on=("model", "messages")):
        turn = session.chat("Hello.", echo="none")
        assert (turn.answer, turn.started.provider, turn.steps[0].request.options) == (
            "Ahoy.",
            "openai",
            {"temperature": 0.5},
        )
        assert session.servers["gone"].state == "ready"
    provider = {"replay": {"provider": "replay", "cassette": str(file)}}
    models = {"any": {"client": "replay", "model": "gpt-4.1"}}
    session = opened({"clients": provider, "models": models}, in_process={})
    session.system = ""
    turn = session.chat("Hello.", echo="none")
    assert (turn.answer, turn.started.provider) == ("Ahoy.", "openai")
    assert isinstance(session.chat("Who are you?", echo="none").exception, CassetteMismatchError)


def test_secrets_are_not_in_the_file_even_if_a_server_or_a_model_says_them(
    opened: Callable[..., Session], file: Path
) -> None:
    key, header, env = (
        "sk-planted-0123456789abcdef",
        "hdr-planted-0123456789abcdef",
        "env-planted-0123456789abcdef",
    )
    config = {
        "clients": {
            "offline": {"provider": "offline", "api_key": key, "headers": {"X-Key": header}}
        },
        "models": {"planner": {"client": "offline", "model": "planner"}},
        "servers": {"time": {"bundled": "time", "env": {"API_TOKEN": env}, "enabled": False}},
    }
    session = opened(config)
    with session.cassettes.use(file):
        model = scripted_model(call("harbour__berth", ship=f"{key} {env}"), f"It is {header}.")
        session.chat(f"Use {key}, {header} and {env}.", model=model, echo="none")
    text = file.read_text()
    for secret in (key, header, env, "planted"):
        assert secret not in text
    with replayed(file) as again:
        assert again.cassettes.replay()[0].status == "done"
    session.conversations.new()
    with session.cassettes.use(file, "none"):
        turn = session.chat(f"Use {key}, {header} and {env}.", model=scripted_model(), echo="none")
        assert turn.status == "done"


def test_a_cassette_that_is_recorded_again_has_the_same_text(
    opened: Callable[..., Session], file: Path
) -> None:
    def recorded() -> str:
        session = opened()
        with session.cassettes.use(file, "all"):
            model = scripted_model(
                calls(call("harbour__depth"), call("harbour__photo")), "12.5 metres."
            )
            session.chat("How deep is it?", model=model, echo="none")
        document = json.loads(file.read_text())
        for interaction in document["interactions"]:
            interaction.pop("pace", None)
            if interaction["kind"] == "model":
                # In how many pieces an answer arrives depends on time.
                interaction.pop("events", None)
        return json.dumps(document)

    assert recorded() == recorded()


async def test_the_pace_is_a_factor_of_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "format": "casual-mcp-nb cassette",
        "version": 1,
        "interactions": [
            {
                "kind": "call",
                "request": {"server": "s", "tool": "t", "arguments": {}},
                "events": [{"progress": 1}],
                "response": {"content": []},
                "pace": [1_000, 1_000_000],
            }
        ],
    }
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for pace in (0, 0.5):
        replayer = Replayer(Cassette.from_json(json.dumps(document)), "lesson", pace=pace)
        await replayer.play("call", {"server": "s", "tool": "t", "arguments": {}})
    assert waits == [0, 0, 0.5, 10.0]


def test_a_session_of_a_cassette_starts_nothing_and_looks_nothing_up(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "planted-value")
    document = {
        "format": "casual-mcp-nb cassette",
        "version": 1,
        "session": {
            "model": "${PLANTED}",
            "system": "${PLANTED} {{ 7 * 7 }}",
            "selection": {"bind": 1, "__class__": 2, "tool_set": 7},
        },
        "models": {
            "${PLANTED}": {
                "model": "${PLANTED}",
                "client": "c",
                "provider": "openai",
                "options": {},
            }
        },
        "servers": {
            "evil": {"way": "command", "options": {"defer_loading": True}, "tools": []},
            "shell": {"way": "bundled", "bundled": "shell", "tools": []},
        },
        "interactions": [],
    }
    file.write_text(json.dumps(document))
    with replayed(file) as session:
        assert (session.model, session.system) == ("${PLANTED}", "${PLANTED} {{ 7 * 7 }}")
        assert len(session.tools) == 0
        assert {status.state for status in session.servers.values()} == {"ready"}
        session.servers.reconnect("evil")
        turn = session.chat("Hello.", echo="none")
        assert isinstance(turn.exception, CassetteMismatchError)
        with pytest.raises(UsageError):
            session.cassettes.current.close()  # type: ignore[union-attr]
    for approval in ({"evil": "sometimes"}, {"evil": 1}):
        file.write_text(json.dumps({**document, "session": {"approval": approval}}))
        with pytest.raises(CassetteError):
            replayed(file)
    for bad in ({"command": "touch /tmp/x"}, {"command": ["x"]}, {"env": {"A": "b"}}):
        document["servers"] = {"evil": {"way": "command", "options": bad}}
        file.write_text(json.dumps(document))
        with replayed(file) as session:
            config = session.config.servers["evil"]
            assert (config.command, config.env) == ("replayed", {})
