"""Discovery that is `auto`: on where the definitions take more than a share of the model's context
window.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from casual_llm.messages import UserMessage
from kit.shops import shelves
from kit.weather import desk, weather

from casual_mcp_nb import Session, load_config
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions, initial_selection
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.engine.tool_view import ASSUMED_WINDOW
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

SERVERS = {"weather": weather, "desk": desk}
NAMES = ["weather__forecast", "weather__history", "desk__note"]


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    servers = ServerManager({}, in_process={name: make() for name, make in SERVERS.items()})
    selection = Selection(discovery="auto")
    async with McpToolChat(servers, ModelFactory(Config()), ChatSetup(selection=selection)) as chat:
        yield chat


async def ask(chat: McpToolChat, window: int | None) -> Turn:
    model = scripted_model("Done.", context_window=window)
    return await chat.run([UserMessage(content="Do it")], TurnOptions(model=model))


def offered(turn: Turn) -> list[str]:
    return [tool["name"] for tool in turn.steps[0].request.tools]


@pytest.mark.parametrize(("beyond", "defers"), [(0, False), (-1, True)])
async def test_it_defers_above_its_share_of_the_window(
    chat: McpToolChat, beyond: int, defers: bool
) -> None:
    tokens = (await chat.view()).undeferred_tokens
    chat.selection.auto_threshold = 10
    turn = await ask(chat, (tokens + beyond) * 10)
    assert offered(turn) == (["search_tools"] if defers else NAMES)
    assert turn.started is not None
    assert turn.started.discovery is defers
    assert chat.selection.discovery == "auto"
    assert chat.selection.defer_all is False


async def test_a_window_that_is_unknown_counts_as_a_common_one(chat: McpToolChat) -> None:
    tokens = (await chat.view()).undeferred_tokens
    chat.selection.auto_threshold = 100 * (tokens + 1) / ASSUMED_WINDOW
    assert offered(await ask(chat, None)) == NAMES
    chat.selection.auto_threshold = 100 * (tokens - 1) / ASSUMED_WINDOW
    assert offered(await ask(chat, None)) == ["search_tools"]


async def test_only_what_is_marked_is_deferred_where_something_is(chat: McpToolChat) -> None:
    chat.selection.servers["weather"] = "deferred"
    assert offered(await ask(chat, 1_000)) == ["desk__note", "search_tools"]
    assert offered(await ask(chat, 1_000_000)) == NAMES


async def test_what_is_always_loaded_and_what_is_off_stay_so(chat: McpToolChat) -> None:
    chat.selection.always_loaded = ("weather:forecast",)
    chat.selection.servers["desk"] = "off"
    turn = await ask(chat, 1_000)
    assert offered(turn) == ["weather__forecast", "search_tools"]
    assert turn.started is not None
    assert turn.started.deferred == 1


async def test_tools_that_the_selection_leaves_out_do_not_count(chat: McpToolChat) -> None:
    view = await chat.view()
    kept = view.loaded_by_name["desk__note"].tokens
    for name in NAMES[:2]:
        chat.selection.tools_off.add(name)
    chat.selection.auto_threshold = 100
    assert offered(await ask(chat, kept)) == ["desk__note"]
    assert offered(await ask(chat, kept - 1)) == ["search_tools"]


@pytest.mark.parametrize(("enabled", "discovery"), [("auto", "auto"), (True, True), (False, False)])
def test_the_config_sets_it(enabled: object, discovery: object) -> None:
    config = load_config({"tool_discovery": {"enabled": enabled, "auto_threshold": 10}})
    selection = initial_selection(config, {})
    assert selection.discovery is discovery or selection.discovery == discovery
    assert selection.auto_threshold == 10


@pytest.mark.parametrize(
    "values", [{"enabled": "sometimes"}, {"auto_threshold": 0}, {"auto_threshold": 101}]
)
def test_what_is_no_choice_is_refused_by_the_config(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        load_config({"tool_discovery": values})


def test_displays_count_with_the_window_of_the_model_in_use() -> None:
    config = {
        "clients": {"offline": {"provider": "offline"}},
        "models": {
            "small": {"client": "offline", "model": "planner", "context_window": 1_000},
            "large": {"client": "offline", "model": "planner", "context_window": 1_000_000},
        },
        "tool_discovery": {"enabled": "auto"},
    }
    with Session.from_config(config, in_process=shelves(2, 20)) as session:
        session.connect()
        assert (session.status.discovery, session.status.deferred, session.status.auto) == (
            True,
            20,
            5,
        )
        assert set(session.servers.modes.values()) == {"deferred"}
        session.model = "large"
        assert (session.status.discovery, session.status.deferred, session.status.auto) == (
            False,
            0,
            5,
        )
        assert set(session.servers.modes.values()) == {"loaded"}
