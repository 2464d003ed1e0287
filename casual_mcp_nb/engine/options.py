"""A turn's inputs: its limits, its options, the selection, the messages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Unpack, get_args

from casual_mcp_nb.base.config import Config, ServerConfig, Strategy, ToolSetConfig
from casual_mcp_nb.base.config_base import NO_OPTIONS, OPTION_NAMES, RequestOptions
from casual_mcp_nb.base.content import ResultFormat
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.limits import check_parts
from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS
from casual_mcp_nb.base.selection import Mode, Selection, check_code
from casual_mcp_nb.base.tool import Catalog, ToolName
from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.conversation.conversation import Prompt, as_messages
from casual_mcp_nb.discovery.toolsets import resolve_tool_set
from casual_mcp_nb.engine.turn_fields import LEAST, SWITCHES, NamedTurnFields, spelled_out
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.engine.edits import BeforeModelCall


@dataclass(frozen=True)
class TurnLimits:
    """A turn's limits.

    Args:
        max_steps: Model calls.
        max_calls_per_step: Tool calls in one model response. Those beyond it do not run.
        parallel_calls: Maximum number of calls in one model response that run concurrently. The
            others wait. Calls nested in these are not counted: a call that waited for a nested one,
            and that one for a slot, could wait for each other. A program makes at most
            `programs.PARALLEL_CALLS` of them at a time, and a function as many as it starts.
        result_tokens: How many tokens of a result the model reads, unless its server has another
            limit, or 0 for no limit. Of a larger one it reads the head, and can read on.
        result_format: How to present a result to the model.
        answer_seconds: How many seconds one model response may take, all attempts and waits
            together.
        answer_characters: One model response's length, its text and its calls together. No current
            model writes that much: a longer stream is endless.
    """

    max_steps: int = 50
    max_calls_per_step: int = 64
    parallel_calls: int = 8
    result_tokens: int = 4_000
    result_format: ResultFormat = "result"
    answer_seconds: float = 1_800.0
    answer_characters: int = 2_000_000

    @classmethod
    def of(cls, config: Config, settings: Settings) -> Self:
        """Create the limits that a config and the environment set."""
        return cls(
            max_steps=settings.max_chat_iterations,
            max_calls_per_step=settings.max_calls_per_step,
            result_tokens=config.tool_results.max_tokens,
            result_format=settings.tool_result_format,
        )


_OF_REQUESTS = frozenset(OPTION_NAMES)
_CHOICES: Mapping[str, tuple[str, ...]] = {"discovery": ("auto",), **dict.fromkeys(SWITCHES, ())}
"""The options that are true or false, with their other values."""


class TurnOptions:
    """One turn's validated options, as `NamedTurnFields` declares them.

    Args:
        gate: Asked before each model call.
        options: As for `Session.chat`. None means not given.

    Attributes:
        given: The options as given.
        request: The options for each model request in this turn. They override the model's config.

    Raises:
        UsageError: A name or a value is not valid.
    """

    @spelled_out(NamedTurnFields)
    def __init__(
        self, *, gate: BeforeModelCall | None = None, **options: Unpack[NamedTurnFields]
    ) -> None:
        self.gate = gate
        self.given = options
        requested = _OF_REQUESTS.intersection(options)
        self.request = NO_OPTIONS
        if requested:
            self.request = RequestOptions.of({name: options.get(name) for name in requested})
        _check_choices(options)
        _check_mappings(options)
        _check_numbers(options)

    def __repr__(self) -> str:
        # Headers, the context and stubs may hold secrets.
        hidden = ("extra_headers", "context", "mock")
        shown = (f"{name}={value!r}" for name, value in self.given.items() if name not in hidden)
        return f"TurnOptions({', '.join(shown)})"

    def replaced(self, **options: Unpack[NamedTurnFields]) -> TurnOptions:
        """Copy these options with some changes."""
        changed: NamedTurnFields = {**self.given, **options}
        return TurnOptions(gate=self.gate, **changed)

    def applied_to(self, selection: Selection) -> Selection:
        """Apply these options to a selection. The same selection if no option overrides it."""
        changes: dict[str, Any] = {}
        for name in ("tool_set", "discovery", "strategy", "delivery"):
            if (value := self.given.get(name)) is not None:
                changes[name] = value
        if not changes:
            return selection
        changed = selection.snapshot()
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed


def _check_choices(options: NamedTurnFields) -> None:
    for name, more in _CHOICES.items():
        value: object = options.get(name)
        if value is not None and not isinstance(value, bool) and value not in more:
            hint = ", ".join(("True", "False", *map(repr, more)))
            raise UsageError(
                f"{name} cannot be {brief(value)}.", hint=f"It must be {hint} or None."
            )
    delivery: object = options.get("delivery")
    if delivery is not None and delivery not in DELIVERY_SETTINGS:
        raise UnknownNameError("delivery", str(delivery), DELIVERY_SETTINGS)
    check_code(delivery)
    strategy: object = options.get("strategy")
    if strategy is not None and strategy not in get_args(Strategy):
        raise UnknownNameError("strategy", str(strategy), get_args(Strategy))


def _check_mappings(options: NamedTurnFields) -> None:
    context: object = options.get("context")
    if context is not None and not _has_names_as_keys(context):
        raise UsageError(
            "context must be a mapping with names as keys.",
            hint='For example: context={"user_id": 7}.',
        )
    stubs: object = options.get("mock")
    if stubs is not None and not _has_names_as_keys(stubs):
        raise UsageError(
            "mock must be a mapping with names of tools as keys.",
            hint='For example: mock={"mail:send": "Sent."}.',
        )


def _has_names_as_keys(value: object) -> bool:
    return isinstance(value, Mapping) and all_are(value, str)


def _check_numbers(options: NamedTurnFields) -> None:
    for name, least in LEAST.items():
        number: object = options.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise UsageError(
                f"{name} cannot be {brief(number)}.",
                hint=f"It must be {least} or more, or None for the usual limit.",
            )


def initial_selection(config: Config, in_process: Mapping[str, object]) -> Selection:
    """Build a config's selection.

    Servers in this process are loaded unless the config decides otherwise.
    """
    modes: dict[str, Mode] = dict.fromkeys([*in_process, *config.unusable], "loaded")
    loaded: list[str] = []
    for name, server in config.servers.items():
        modes[name] = mode_of(server)
        loaded.extend(always_loaded(name, server))
    discovery = config.tool_discovery
    return Selection.model_validate(
        {
            "servers": modes,
            "discovery": discovery.enabled,
            "always_loaded": tuple(loaded),
            **discovery.discovery_options(),
        }
    )


def always_loaded(name: str, server: ServerConfig) -> tuple[str, ...]:
    """List the tools that a config keeps loaded: none, the whole server, or single tools."""
    if isinstance(server.always_load, tuple):
        return tuple(f"{name}:{tool}" for tool in server.always_load)
    return (name,) if server.always_load else ()


def mode_of(server: ServerConfig) -> Mode:
    """Look up the mode that a config gives its server."""
    if not server.enabled:
        return "off"
    return "deferred" if server.defer_loading else "loaded"


def selection_without(
    selection: Selection, server: str, tool_sets: Mapping[str, ToolSetConfig], catalog: Catalog
) -> Selection:
    """Remove a server's entries from a selection.

    A toolset that names it becomes a custom one that does not.
    """
    values = selection.model_dump()
    values["servers"].pop(server, None)
    # Whole servers, and single tools.
    values["always_loaded"] = tuple(
        name for name in selection.always_loaded if server not in (name, _server_of(name, catalog))
    )
    values["tools_off"] = [
        name for name in selection.tools_off if _server_of(name, catalog) != server
    ]
    with suppress(UnknownNameError):
        tool_set = resolve_tool_set(selection.tool_set, tool_sets)
        if tool_set is not None and server in tool_set.servers:
            servers = {name: rule for name, rule in tool_set.servers.items() if name != server}
            values["tool_set"] = tool_set.model_copy(update={"servers": servers})
    return Selection.model_validate(values)


def _server_of(name: str, catalog: Catalog) -> str:
    tool = catalog.get(name)
    return tool.server if tool is not None else ToolName.split(name, catalog.by_server).server


def split_messages(
    messages: Prompt, options: TurnOptions
) -> tuple[list[ChatMessage], list[ChatMessage], TurnOptions]:
    """Split a conversation into its history and the new messages at its end.

    A leading system message becomes the option `system`, unless that is given.
    """
    conversation = as_messages(messages)
    if conversation and conversation[0].role == "system":
        if options.given.get("system") is None:
            options = options.replaced(system=conversation[0].content)
        conversation = conversation[1:]
    new = len(conversation)
    while new and conversation[new - 1].role not in ("assistant", "tool"):
        new -= 1
    if new:
        # A turn checks its own messages.
        check_parts(conversation[:new])
    return conversation[:new], conversation[new:], options
