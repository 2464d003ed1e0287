"""Compare a request with the one before: how much of it the provider can reuse, and why the rest
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import common_names
from casual_mcp_nb.conversation.event import (
    FINDING,
    READ_RESULT,
    PrefixCause,
    PrefixChanged,
    Request,
)
from casual_mcp_nb.conversation.step import loaded_in
from casual_mcp_nb.engine.tool_view import ToolView

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.providers.chat_model import ChatModel


_MAX_NAMES = 12
_DEFAULTS = {"tool_choice": "auto"}


@dataclass
class PromptPrefix:
    """The previous request, to compare with the next one: tools first, then the system prompt, then
    the messages.

    Providers render a request in that order, so that one more tool breaks everything behind the
    tools.

    Args:
        before: The previous request, or None for a conversation's first one.
        response_id: The provider's id for its response, if it gave one.
        other_model: Whether the previous request went to another model.
        new_selection: Whether the person has changed the selection since.
        options: The options that the provider reads before the messages.
    """

    before: Request | None = None
    response_id: str | None = None
    other_model: bool = False
    new_selection: bool = False
    options: tuple[str, ...] = ()
    _broken: bool = False

    @classmethod
    def after(
        cls,
        turn: Turn | None,
        model: ChatModel,
        messages: Sequence[ChatMessage],
        new_selection: bool,
    ) -> PromptPrefix:
        """Build the prefix for the first request after a turn, or an empty one where the messages
        do not continue the turn.
        """
        options = model.spec.read_first
        before = turn.last_request if turn is not None else None
        if turn is None or before is None:
            return cls(options=options)
        first = next((message for message in before.messages if message.role != "system"), None)
        continued = messages[before.left_out] if before.left_out < len(messages) else None
        if continued is None or (first is not continued and first != continued):
            return cls(options=options)
        response_id = turn.last_response_id if turn.started.provider == model.provider else None
        return cls(
            before,
            response_id,
            other_model=not _is_by(turn, model),
            new_selection=new_selection,
            options=options,
        )

    def compared(
        self,
        request: Request,
        definition_tokens: Callable[[Sequence[Mapping[str, Any]]], int],
        message_tokens: Callable[[int], int],
    ) -> Request:
        """Measure how much a request shares with the previous one."""
        before = self.before
        if before is None:
            return request
        messages = len(before.messages)
        if not self.other_model and _only_longer(before, request):
            # As in nearly every step.
            self._broken = False
            # `replace` takes several times as long.
            return Request(
                messages=request.messages,
                tools=request.tools,
                tokens=request.tokens,
                left_out=request.left_out,
                options=request.options,
                delivery=request.delivery,
                found=request.found,
                reused=request.tokens.definitions + message_tokens(messages),
                reused_tools=len(before.tools),
                reused_messages=messages,
            )
        tools, messages = self._shared_parts(before, request)
        self._broken = messages < len(before.messages)
        if tools == len(request.tools):
            # All definitions are counted already, those that the provider adds to the conversation
            # included.
            standing = self._standing_found(before, request, messages)
            tokens = request.tokens.definitions - definition_tokens(
                [tool for tool in request.found if tool not in standing]
            )
        else:
            tokens = definition_tokens(request.tools[:tools])
        tokens += message_tokens(messages)
        return replace(request, reused=tokens, reused_tools=tools, reused_messages=messages)

    def _shared_parts(self, before: Request, request: Request) -> tuple[int, int]:
        """Count how many tools and how many messages at the beginning are the same."""
        if self.other_model:
            return 0, 0
        if before.delivery != request.delivery and "native" in (before.delivery, request.delivery):
            # With native delivery, a request has what makes the provider load deferred tools,
            # before any was found.
            return 0, 0
        tools = _shared(before.tools, request.tools)
        if not tools == len(before.tools) == len(request.tools):
            return tools, 0
        messages = _shared(before.messages, request.messages)
        if changed := _changed_found(before, request):
            for number, message in enumerate(request.messages[:messages]):
                # The provider adds a found tool behind the search that found it.
                if changed & _loaded(message):
                    messages = number
                    break
        if self._other_options(before, request):
            has_system = bool(request.messages) and request.messages[0].role == "system"
            messages = min(messages, int(has_system))
        return tools, messages

    def _other_options(self, before: Request, request: Request) -> bool:
        """Check whether the options differ that the provider reads before the messages."""
        if before.options == request.options:
            return False
        old, new = {**_DEFAULTS, **before.options}, {**_DEFAULTS, **request.options}
        return any(old.get(name) != new.get(name) for name in self.options)

    def _standing_found(
        self, before: Request, request: Request, messages: int
    ) -> list[Mapping[str, Any]]:
        """List the definitions that the provider adds to the unchanged part of the conversation."""
        if messages == len(before.messages) and before.found == request.found[: len(before.found)]:
            return list(before.found)
        names = set[str]().union(*map(_loaded, request.messages[:messages]))
        return [tool for tool in request.found if tool in before.found and tool["name"] in names]

    def sent(
        self, request: Request, view: ToolView, step: int, now: Callable[[], float]
    ) -> PrefixChanged | None:
        """Remember a request that is sent.

        Return an event if it does not repeat the whole previous one.
        """
        change = None
        if self.before is not None and self._broken:
            change = self._change(self.before, request, view, step, now())
        self.before = request
        self._broken = self.other_model = self.new_selection = False
        return change

    def _change(
        self, before: Request, request: Request, view: ToolView, step: int, at: float
    ) -> PrefixChanged:
        """Build the event for a request that repeats only a part of the previous one."""
        reused = request.reused or 0
        lost = max(before.tokens.total - reused, 0)
        names: list[str] = []
        cause: PrefixCause = "messages"
        if self.other_model:
            cause = "model"
        elif before.delivery != request.delivery:
            cause = "delivery"
        elif changed := _changed_found(before, request):
            cause, names = "definition", sorted(changed)
        elif not request.reused_messages:
            cause, names = self._changed_tools(before, request, view)
        elif request.reused_messages < len(request.messages) and self._other_options(
            before, request
        ):
            cause = "options"
        elif before.left_out != request.left_out:
            cause = "trimmed"
        return PrefixChanged(
            step, cause, kept=reused, lost=lost, names=tuple(names[:_MAX_NAMES]), at=at
        )

    def _changed_tools(
        self, before: Request, request: Request, view: ToolView
    ) -> tuple[PrefixCause, list[str]]:
        """Find out why the tools differ, or else the system prompt, and list the tools that do."""
        old = {str(tool["name"]): tool for tool in before.tools}
        new = {str(tool["name"]): tool for tool in request.tools}
        removed = [name for name in old if name not in new]
        added, changed = [], []
        for name, tool in new.items():
            if name not in old:
                added.append(name)
            elif tool is not old[name] and tool != old[name]:
                changed.append(name)
        names = [*added, *removed, *changed]
        if not names and before.tools == request.tools:
            return "system", []
        if added == names == [READ_RESULT]:
            return "large_result", names
        if self.new_selection:
            return "selection", names
        if added == names and all(name in view.deferred_by_name for name in added):
            return "found", names
        if removed == names and all(name in view.deferred_by_name for name in removed):
            return "unloaded", names
        if changed == names and not FINDING.intersection(changed):
            return "definition", names
        return "tools", names


def _is_by(turn: Turn, model: ChatModel) -> bool:
    """Check whether a turn is by a model, maybe under the name that another session has for it."""
    name = turn.started.model
    if name == model.name:
        return True
    names = common_names(model.model, model.client_name, model.provider)
    return turn.started.provider == model.provider and name in names


def _only_longer(before: Request, request: Request) -> bool:
    """Check whether a request is the previous one with more messages at its end."""
    return (
        (before.tools is request.tools or before.tools == request.tools)
        and before.messages == request.messages[: len(before.messages)]
        and before.delivery == request.delivery
        and before.found == request.found
        and before.options == request.options
    )


def _changed_found(before: Request, request: Request) -> set[str]:
    """Find the found tools whose definitions have changed, by name."""
    if before.found == request.found[: len(before.found)]:
        return set()
    now = {str(tool["name"]): tool for tool in request.found}
    return {str(tool["name"]) for tool in before.found if now.get(str(tool["name"])) != tool}


def _loaded(message: ChatMessage) -> set[str]:
    return set(loaded_in(message.content)) if message.role == "tool" else set()


def _shared(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Count how many items at the beginning are the same."""
    if old == new[: len(old)]:
        return len(old)
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        if one is not other and one != other:
            return number
    return min(len(old), len(new))
