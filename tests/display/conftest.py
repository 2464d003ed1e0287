"""Values made of any text, and a strict parser of their displays."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    SystemMessage,
    UserMessage,
)

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.search import Explanation, SearchHit, SearchResults, TermScore
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.status import (
    Check,
    ClientRow,
    Clients,
    Diagnosis,
    ExplorerSnapshot,
    Help,
    HelpRow,
    Manifest,
    ModelRow,
    Models,
    Servers,
    ServerStatus,
    SessionStatus,
    SystemPrompt,
    Tools,
    ToolSets,
)
from casual_mcp_nb.base.tokens import Budget, TokenParts, TokenUsage, TurnCosts
from casual_mcp_nb.base.tool import Catalog, ToolAnnotations, ToolName, ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    Event,
    Notice,
    Request,
    SearchRow,
    ServerLog,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.stats import (
    ChatStats,
    DiscoveryStats,
    TokenUsageStats,
    ToolCallStats,
)
from casual_mcp_nb.conversation.step import StepDiff
from casual_mcp_nb.conversation.turn import Trace, Turn

Say = Callable[[str], str]


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffff3f0300060005fea72d6b"
    "5d0000000049454e44ae426082"
)
BUDGET = Budget(
    TurnCosts(380, 410, 2_000, 20_000, 9_000, 30_000),
    TurnCosts(1_860, 1_890, 5_000, 60_000, 12_000, 60_000),
)
MODES = {"weather": "deferred", "files": "loaded", "mail": "off"}


def weather_tool(say: Say) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {
            say("city"): {"type": "string", "description": say("Name of the city, such as Oslo.")},
            "days": {"type": ["integer", "null"], "description": say("How many days ahead.")},
            "units": {"enum": [say("metric"), "imperial"]},
            "tags": {"type": "array", "items": {"type": say("string")}},
        },
        "required": [say("city")],
    }
    claims = ToolAnnotations(title=say("Forecast"), read_only=True, open_world=True)
    return ToolSpec(
        say("weather"),
        say("get_forecast"),
        say("The weather forecast for a city."),
        schema,
        annotations=claims,
        title=say("Forecast"),
    )


def tools(say: Say) -> Tools:
    remove = ToolSpec(
        "files",
        "remove",
        say("Remove a file for good."),
        {},
        annotations=ToolAnnotations(destructive=True, idempotent=True),
    )
    catalog = Catalog([weather_tool(say), remove, ToolSpec("mail", "send", say("Send an e-mail."))])
    return Tools(catalog, {tool.tool_name: MODES.get(tool.server, "loaded") for tool in catalog})  # type: ignore[misc]


def servers(say: Say) -> Servers:
    statuses = [
        ServerStatus(
            say("weather"),
            "ready",
            None,
            "",
            3,
            320,
            0.48,
            say("stdio"),
            say("weather-mcp --metric"),
            "2026-07-28",
            say("w 1.2"),
        ),
        ServerStatus("files", "starting", transport="http", address="https://files.example/mcp"),
        ServerStatus(
            say("mail"),
            "failed",
            say("It ended at once."),
            say("Traceback:\nKeyError: 'TOKEN'"),
            seconds=1.5,
        ),
    ]
    return Servers(
        {status.name: status for status in statuses},
        {say("weather"): "deferred", say("mail"): "off"},
    )


def session(say: Say) -> SessionStatus:
    return SessionStatus(
        servers(say),
        say("gpt-4.1"),
        say("openai"),
        say("research"),
        True,
        4,
        12,
        410,
        1_890,
        2,
        (say("A note."),),
        budget=BUDGET,
    )


def explanation(say: Say) -> Explanation:
    shares = (
        TermScore(say("forecast"), "name", 1, 1.73, 1.2),
        TermScore("city", "description", 2, 0.4, 0.3),
    )
    return Explanation(
        weather_tool(say), say("forecast for a city"), 1.5, 1, 5, shares, (say("tomorrow"),)
    )


def search_results(say: Say) -> SearchResults:
    why = functools.partial(explanation, say)
    hits = (
        SearchHit(weather_tool(say), 1.5, 1, why),
        SearchHit(ToolSpec("mail", "send", say("Send.")), 0.25, 2, why),
    )
    return SearchResults(say("forecast for a city"), hits, 5, 15, lambda name: why())


def request(say: Say, index: int = 0) -> Request:
    messages = (
        SystemMessage(content=say("You are kind.")),
        UserMessage(content=say("What is the weather?")),
    )
    return Request(
        messages,
        (weather_tool(say).definition,),
        TokenParts(20, 60, 110 + 90 * index, 15, 40 * index),
    )


def asking(say: Say, call_id: str, name: str) -> AssistantMessage:
    function = AssistantToolCallFunction(name=name, arguments="{}")
    return AssistantMessage(
        content=say("I look for a tool."),
        tool_calls=[AssistantToolCall(id=call_id, function=function)],
    )


def turn_events(say: Say) -> list[Event]:
    forecast = ToolName(say("weather"), say("get_forecast"))
    search = ToolName("_synthetic", "search_tools")
    rows = (SearchRow(forecast, 1.5, True), SearchRow(ToolName("mail", say("send")), None, False))
    result = ToolResult(
        (
            ContentPart("image", mime_type="image/png", data=PIXEL),
            ContentPart("audio", mime_type=say("audio/wav"), data=b"1"),
            ContentPart("link", say("Docs"), uri=say("https://docs.example/a")),
            ContentPart("resource", say("A text"), say("text/plain"), uri=say("file:///a.txt")),
        ),
        [{say("city"): say("Oslo"), "degrees": 3}, {say("city"): "Bergen"}],
    )
    return [
        TurnStarted(
            (UserMessage(content=say("What is the weather\nin Oslo?")),),
            say("gpt-4.1"),
            say("research"),
            True,
            4,
            12,
            1_890,
        ),
        StepStarted(0, request(say), 0.01),
        StepFinished(0, asking(say, "a", "search_tools"), TokenUsage(210, 18), "tool_calls", 0.8),
        ToolStarted(0, "a", "search_tools", search, {"query": say("weather")}, 0.81),
        ToolsSearched(0, "a", say("weather"), rows, 5, 0.82),
        ToolFinished(0, "a", search, "ok", say("Found 2 tools."), None, 0.82),
        StepStarted(1, request(say, 1), 0.83),
        StepFinished(1, asking(say, "b", "weather__get_forecast"), None, None, 1.4),
        ToolStarted(
            1, "b", say("weather__get_forecast"), forecast, {say("city"): say("Oslo")}, 1.4
        ),
        ToolProgress("b", 3, 10, say("asking"), 1.45),
        ServerLog(say("weather"), say("info"), say("cache miss"), 1.5),
        ToolFinished(1, "b", forecast, "error", say("Error: no such city."), result, 1.6),
        Notice(say("A result was cut."), say("weather"), 1.6),
        StepStarted(2, request(say, 2), 1.7),
        TextDelta(2, say("It rains"), 1.9),
        StepFinished(
            2,
            AssistantMessage(content=say("It rains in Oslo.\n\nTake an umbrella.")),
            TokenUsage(455, 12),
            "stop",
            2.1,
        ),
        TurnFinished("failed", say("The model's answer was cut short."), 2.1),
    ]


def running_turn(say: Say) -> Turn:
    events = turn_events(say)
    return Turn(Trace(event for event in events[:11]))


def streaming_turn(say: Say) -> Turn:
    return Turn(Trace(turn_events(say)[:15]))


def stats(say: Say) -> ChatStats:
    calls = ToolCallStats(
        {say("weather__get_forecast"): 2, "search_tools": 1}, {say("weather"): 2, "_synthetic": 1}
    )
    return ChatStats(TokenUsageStats(665, 30, 1), calls, 3, DiscoveryStats(1, 1))


def tool_sets(say: Say) -> ToolSets:
    some, most = (encodable(say("read")), "list"), ExcludeSpec(exclude=(encodable(say("send")),))
    rules: dict[str, Any] = {encodable(say("weather")): True, "files": some, "mail": most}
    research = ToolSetConfig(description=encodable(say("For looking things up.")), servers=rules)
    return ToolSets({say("research"): research}, say("research"), {say("research"): 7})


def models(say: Say) -> Models:
    rows = (
        ModelRow(say("fast"), say("main"), "openai", say("gpt-4.1"), "set", True),
        ModelRow("planner", "embedded", "offline", "offline", "not needed"),
    )
    return Models(rows)


def manifest(say: Say) -> Manifest:
    return Manifest(
        say("- weather (1 tool): get_forecast\n  The weather forecast for a city."), 1, 110
    )


def exploration(say: Say) -> ExplorerSnapshot:
    shown, prices = servers(say), {say("weather"): 320, "files": 90}
    return ExplorerSnapshot(
        shown, selection(say), tool_sets(say), manifest(say), prices, 4, 1_890, BUDGET
    )


def conversation(say: Say) -> Conversation:
    return Conversation([Turn(Trace(turn_events(say))), Turn(Trace(turn_events(str)))])


def clients(say: Say) -> Clients:
    own = ClientRow(say("main"), "openai", say("https://models.example"), "set", (say("fast"),))
    rows = (own, ClientRow("x", "offline", "", "not needed"))
    return Clients(rows)


def selection(say: Say) -> Selection:
    return Selection(
        tool_set=encodable(say("research")),
        servers={encodable(say("weather")): "deferred", "mail": "off"},  # type: ignore[arg-type]
        tools_off={encodable(say("send"))},  # type: ignore[arg-type]
        discovery=True,
    )


def diff(say: Say) -> StepDiff:
    now = request(say, 1)
    return StepDiff(
        1,
        now.messages,
        (say("weather__get_forecast"),),
        (say("mail__send"),),
        request(say).tokens,
        now.tokens,
    )


def diagnosis(say: Say) -> Diagnosis:
    return Diagnosis(
        (
            Check("packages", "fastmcp", "ok", "4.1.2"),
            Check("servers", say("mail"), "fail", say("It ended at once."), say("Reconnect it.")),
            Check("servers", "files", "warn", say("not started")),
        )
    )


MAKERS: dict[str, Callable[[Say], Any]] = {
    "server": lambda say: list(servers(say).values())[-1],
    "servers": servers,
    "session": session,
    "tools": tools,
    "tool": weather_tool,
    "manifest": manifest,
    "exploration": exploration,
    "toolsets": tool_sets,
    "models": models,
    "search": search_results,
    "explanation": explanation,
    "turn": lambda say: Turn(Trace(turn_events(say))),
    "running turn": running_turn,
    "streaming turn": streaming_turn,
    "call": lambda say: Turn(Trace(turn_events(say))).tool_calls[-1],
    "request": request,
    "step": lambda say: Turn(Trace(turn_events(say))).steps[1],
    "diff": diff,
    "stats": stats,
    "turn stats": lambda say: Turn(Trace(turn_events(say))).stats,
    "conversation": conversation,
    "clients": clients,
    "selection": selection,
    "prompt": lambda say: SystemPrompt(say("You are kind."), say("default")),
    "diagnosis": diagnosis,
    "help": lambda say: Help(
        say("Commands"),
        ((say("Look"), (HelpRow(say("%mcp tools"), say("every tool"), say("%mcp t")),)),),
    ),
}

_ATTRIBUTES = {
    "details": {"open"},
    "img": {"alt", "src"},
    "th": {"scope"},
    "ol": {"start"},
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
}
_EVERYWHERE = {"class", "style", "data-key", "data-part", "data-step", "data-call", "data-title"}
_PROSE_TAGS = {"p", "em", "s", "ul", "ol", "li", "blockquote", "br", "hr", "strong"}
_TAGS = {
    *_PROSE_TAGS,
    *_ATTRIBUTES,
    "div",
    "span",
    "style",
    "table",
    "thead",
    "tbody",
    "tr",
    "td",
    "code",
    "pre",
    "summary",
}
_PAGE_TAGS = {"html", "head", "body", "main", "title", "meta"}
_VOID = {"img", "meta", "br", "hr"}
# What JupyterLab's sanitiser keeps: plain colours, or a host variable with an rgb() fallback.
_STYLE = re.compile(
    r"(?:(?:white-space|table-layout|text-align|font-family|font-weight|border-collapse):[a-z-]+"
    r"|(?:padding|padding-left|margin|width|height|max-width):[0-9a-z% ]+"
    r"|border(?:-left)?:[0-9]{1,3}px solid rgb\([0-9, ]+\)"
    r"|(?:background-)?color:(?:transparent|rgb\([0-9, ]+\)|var\(--jp-[a-z0-9-]+, rgb\([0-9,"
    r" ]+\)\)))"
)
_SOURCE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")


class StrictParser(HTMLParser):
    """Refuses forbidden and malformed markup; keeps the text that a person reads."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _TAGS | _PAGE_TAGS, f"<{tag}> is not allowed"
        for name, value in attrs:
            assert name in _ATTRIBUTES.get(tag, set()) | _EVERYWHERE, (
                f"{name} of <{tag}> is not allowed"
            )
            if name == "style":
                for declaration in filter(None, (value or "").split(";")):
                    assert _STYLE.fullmatch(declaration), (
                        f"{declaration} does not survive a sanitiser"
                    )
            if name == "src":
                assert _SOURCE.fullmatch(value or ""), f"{value} is not an image in the page"
        self.tags.append(tag)
        if tag not in _VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> ends nothing"
        assert self.stack.pop() == tag, f"</{tag}> ends something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self.stack:
            self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_pi(self, data: str) -> None:
        raise AssertionError("a processing instruction")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError("a declaration")


def strict_parse(html: str) -> StrictParser:
    """Parse `html` or fail the test."""
    parser = StrictParser()
    parser.feed(html)
    parser.close()
    assert not parser.stack, f"not closed: {parser.stack}"
    return parser


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write the golden HTML anew; read it before it is committed",
    )


@pytest.fixture
def parse() -> Callable[[str], StrictParser]:
    return strict_parse


@pytest.fixture
def make() -> Callable[..., Any]:
    """Make a noun by its kind, each of its texts passed through `say`."""

    def made(kind: str, say: Say = str) -> Any:
        return MAKERS[kind](say)

    return made


@pytest.fixture(params=list(MAKERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare HTML, without its style sheet, with the golden file of that name; `--write-golden`
    writes the file first.
    """
    folder = Path(__file__).parent / "golden"

    def compare(name: str, html: str) -> None:
        path = folder / f"{name}.html"
        html = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
        if request.config.getoption("--write-golden", default=False):
            path.write_text(html, encoding="utf-8")
        assert html == path.read_text(encoding="utf-8"), (
            f"{path.name} differs; --write-golden writes it anew"
        )

    return compare
