"""What a turn starts from: its options, the selection that they make, the messages that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.before_model_call import BeforeModelCall
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.types.config import Config, ToolSetConfig
from casual_mcp_nb.types.model_options import ReasoningEffort
from casual_mcp_nb.types.options import OPTION_NAMES, RequestOptions
from casual_mcp_nb.types.selection import Mode, Selection
from casual_mcp_nb.types.server import ServerConfig

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.base import ChatModel


@dataclass(frozen=True)
class TurnOptions:
    """What one turn does differently from the selection; the fields of `AllTurnFields` as a value.

    Args:
        model: Name of a model of the config, a `casual_llm.Model`, or a `ChatModel`; None for the first of the config.
        tool_set: Name of a toolset, or one of its own; None for the selection's.
        system: The system prompt; None for the template's.
        template: File in `prompt-templates/`; None for the model's.
        variables: More variables for the template.
        discovery: Whether deferred tools are hidden behind the search tool; None for the selection's.
        max_steps: Calls of the model at most; None for the engine's limit.
        meta: Handed through to the servers with each call.
        stream: False asks the model for each answer in one piece.
        gate: Is awaited before each call of the model, see `BeforeModelCall`; None for no pause.
        temperature: As of `RequestOptions`, like all that follow; None for the model's own.
        max_tokens: Limit of each answer.
        top_p: Share of the likeliest tokens.
        seed: Makes sampling repeatable.
        stop: Where an answer ends.
        tool_choice: `auto`, `none`, `required`, or a tool's name in any spelling.
        parallel_tool_calls: Whether one answer may call several tools.
        reasoning_effort: How much the model thinks.
        extra_body: More fields of each request.
        extra_headers: More headers of each request.

    Raises:
        UsageError: The value of an option is not valid.
    """

    model: str | Model | ChatModel | None = None
    tool_set: str | ToolSetConfig | None = None
    system: str | None = None
    template: str | None = None
    variables: Mapping[str, Any] | None = None
    discovery: bool | None = None
    max_steps: int | None = None
    meta: Mapping[str, Any] | None = None
    stream: bool | None = None
    gate: BeforeModelCall | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    extra_body: Mapping[str, Any] | None = None
    extra_headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # A wrong value is said before anything begins.
        _ = self.request
        for name in ("discovery", "stream"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise UsageError(f"{name} cannot be {brief(value)}.", hint="It is True, False or None.")
        steps = self.max_steps
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise UsageError(f"max_steps cannot be {brief(steps)}.", hint="It is 1 or more; None for the usual limit.")

    @cached_property
    def request(self) -> RequestOptions:
        """What goes with each request of this turn, over what the model's config says."""
        return RequestOptions.of({name: getattr(self, name) for name in OPTION_NAMES})

    def applied_to(self, selection: Selection) -> Selection:
        """`selection` itself, or a copy of it with what this turn does differently."""
        if self.tool_set is None and self.discovery is None:
            return selection
        changed = selection.snapshot()
        if self.tool_set is not None:
            changed.tool_set = self.tool_set
        if self.discovery is not None:
            changed.discovery = self.discovery
        return changed


def initial_selection(config: Config, in_process: Mapping[str, object]) -> Selection:
    """The selection that a config asks for; servers of the process are loaded unless the config says otherwise."""
    modes: dict[str, Mode] = dict.fromkeys(in_process, "loaded")
    modes |= {name: _mode_of(server) for name, server in config.servers.items()}
    discovery = config.tool_discovery
    return Selection.model_validate(
        {
            "servers": modes,
            "discovery": discovery.enabled,
            "defer_all": discovery.defer_all,
            "always_loaded": tuple(name for name, server in config.servers.items() if server.always_load),
            "max_search_results": discovery.max_search_results,
            "strategy": discovery.strategy,
            "manifest_max_tokens": discovery.manifest_max_tokens,
            "max_active_tools": discovery.max_active_tools,
        }
    )


def _mode_of(server: ServerConfig) -> Mode:
    if not server.enabled:
        return "off"
    return "deferred" if server.defer_loading else "loaded"


def split_messages(
    messages: str | Sequence[ChatMessage], options: TurnOptions
) -> tuple[list[ChatMessage], list[ChatMessage], TurnOptions]:
    """History and new messages; a leading system message becomes the option, unless that is given."""
    from casual_llm.messages import UserMessage

    rest: list[ChatMessage] = [UserMessage(content=messages)] if isinstance(messages, str) else list(messages)
    if rest and rest[0].role == "system":
        if options.system is None:
            options = replace(options, system=rest[0].content)
        rest = rest[1:]
    last = max((i for i, message in enumerate(rest) if message.role in ("assistant", "tool")), default=-1)
    return rest[: last + 1], rest[last + 1 :], options
