"""The tools of one request: what it offers, and what it leaves out when the provider refuses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import BadRequestError, shown
from casual_mcp_nb.providers import _reading as reading
from casual_mcp_nb.providers._clients import (
    ContentFiltered,
    InvalidResponse,
    StreamTruncated,
    refuses_deferral,
)
from casual_mcp_nb.providers._offered import (
    NOTHING,
    Definition,
    Offered,
    RefusedTools,
    offered,
    with_real_names,
)
from casual_mcp_nb.providers._tool_refusals import Bisection, ToolRefusal, tool_refusal

if TYPE_CHECKING:
    from casual_mcp_nb.providers._bound_model import BoundModel

Probe = Callable[[dict[str, Any]], Awaitable[Exception | None]]
"""Sends a short request with these tools, as its arguments, and returns the error, if there is one.
"""


class ToolOffer:
    """The tools of one request.

    Args:
        tools: The definitions that are always loaded.
        found_tools: Those that searches have found, if the provider loads deferred tools itself.
        notify: Tells the person how the request was changed.
    """

    def __init__(
        self,
        model: BoundModel,
        tools: Sequence[Definition],
        found_tools: Sequence[Definition] | None,
        notify: Callable[[str], None],
    ) -> None:
        self._model = model
        self._tools = tools
        self._found_tools = found_tools
        self._notify = notify
        self._bisection: Bisection | None = None
        self._refused = model.facts.tools
        self._loaded = NOTHING
        self._found = NOTHING

    @property
    def definitions(self) -> list[Definition]:
        """The definitions before the door, with those that searches have found."""
        return [*self._tools, *(self._found_tools or ())]

    @property
    def is_empty(self) -> bool:
        """Whether no definition is sent that is always loaded."""
        return not self._loaded.definitions

    async def admit(self) -> None:
        """Have the definitions pass the door."""
        if self._tools or self._found_tools:
            dialect = self._model.dialect
            self._loaded = await offered(self._tools, dialect, self._refused)
            if self._found_tools:
                self._found = await offered(self._found_tools, dialect, self._refused)

    def arguments(self) -> dict[str, Any]:
        """Build the request's arguments for the tools that have passed."""
        return self._arguments(self._loaded, self._found)

    def _arguments(self, loaded: Offered, found: Offered) -> dict[str, Any]:
        offer_found, hosted_tools = self._model.wire.offer_found, self._model.hosted_tools
        if self._found_tools is None or offer_found is None:
            offer = self._model.offer(loaded.definitions)
        else:
            names = set(loaded.names)
            new = [tool for tool in found.definitions if tool["name"] not in names]
            offer = offer_found(loaded.definitions, new)
        if not hosted_tools:
            return offer
        tools = offer.get("tools", [])
        loaded_tools = [tool for tool in tools if not tool.get("defer_loading")]
        offer["tools"] = [*loaded_tools, *hosted_tools, *tools[len(loaded_tools) :]]
        return offer

    @property
    def _left_out(self) -> tuple[tuple[Definition, str], ...]:
        return (*self._loaded.left_out, *self._found.left_out)

    def notify_of_left_out(self) -> None:
        """Tell the person which tools the model did not have."""
        for definition, reason in self._left_out:
            name, model = shown(str(definition["name"])), shown(self._model.model)
            self._notify(f"Tool {name} is left out for model {model}: {reason.rstrip('.')}.")

    def with_real_names(self, answer: ModelResponse) -> ModelResponse:
        """Give the arguments of an answer's calls the names that the tools' servers know."""
        renamed = {**self._loaded.renamed, **self._found.renamed}
        if not renamed:
            return answer
        return replace(answer, message=with_real_names(answer.message, renamed))

    def check_forced(self, choice: str | None) -> None:
        """Check that the tool that the model has to call is not left out.

        Raises:
            BadRequestError: It is.
        """
        for definition, reason in self._left_out:
            if choice == definition["name"]:
                raise BadRequestError(
                    f"Tool {shown(str(choice))}, which has to be called (tool_choice), is left out"
                    f" for model {shown(self._model.model)}: {reason.rstrip('.')}.",
                    hint=(
                        "Choose another tool or another model, or ask the server's author to"
                        " correct its schema."
                    ),
                    client=self._model.client_name,
                    model=self._model.model,
                )

    async def changes_after(self, error: Exception, probe: Probe) -> bool:
        """Leave out the tool for whose definition the request was refused, or cut the descriptions.

        Args:
            error: Why the last attempt failed.
            probe: Used to find the tool if the provider does not name it.

        Returns:
            Whether there is a change.
        """
        names = [*self._loaded.names, *self._found.names]
        if self._model.dialect is None or not names:
            return False
        refusal = self._refusal_in(error, self._loaded, self._found)
        if refusal is None:
            return False
        longest = refusal.longest_description
        if longest is not None and longest != self._refused.longest_description:
            self._refused.longest_description = longest
            reads = f"reads {longest:,} characters of a tool's description"
            self._notify(f"Model {shown(self._model.model)} {reads}: the rest is cut.")
            return True
        reason = f"the provider refuses its definition: {refusal.reason}"
        if refusal.name in names:
            return self._leave_out([refusal.name], reason)
        if self._bisection is None:
            self._bisection = Bisection(partial(self._is_refused_for, probe))
        return await self._bisect(self._bisection, names, reason)

    async def _bisect(self, bisection: Bisection, names: Sequence[str], reason: str) -> bool:
        """Leave out a tool that the provider has not named, or all that it was not seen to take."""
        if bisection.given_up:
            return False
        found = await bisection.next(names)
        if bisection.given_up:
            suspects = [*names, bisection.unproven]
            others = [name for name in suspects if name not in bisection.accepted]
            return self._leave_out(
                others, "the provider refuses it together with the other tools: defer tools"
            )
        return found is not None and self._leave_out([found], reason)

    def _leave_out(self, names: Sequence[str], reason: str) -> bool:
        left_out = [definition for definition in self.definitions if definition["name"] in names]
        for definition in left_out:
            self._refused.add(definition, reason)
        return bool(left_out)

    def _refusal_in(self, error: Exception, loaded: Offered, found: Offered) -> ToolRefusal | None:
        """Read an error as the refusal of a tool's definition."""
        status, text = reading.status_of(error), reading.start_of_body(error)
        if self._found_tools is not None and refuses_deferral(status, text):
            return None
        sent = [_name_in(tool) for tool in self._arguments(loaded, found).get("tools", ())]
        sent += [name for name in found.names if name not in sent]
        sentence = reading.text_of(error, reading.secrets_of(self._model))
        return tool_refusal(status, text, sentence, sent)

    async def _is_refused_for(self, probe: Probe, names: Sequence[str]) -> bool | None:
        """Find out whether the provider refuses some of the tools.

        None if it cannot be told.
        """
        dialect = self._model.dialect
        rules = RefusedTools(longest_description=self._refused.longest_description)
        some = [tool for tool in self._tools if tool["name"] in names]
        some_found = [tool for tool in self._found_tools or () if tool["name"] in names]
        loaded = await offered(some, dialect, rules)
        found = await offered(some_found, dialect, rules)
        error = await probe(self._arguments(loaded, found))
        if error is None:
            return False
        if self._refusal_in(error, loaded, found) is not None:
            return True
        # An answer that cannot be used is one all the same.
        if isinstance(error, StreamTruncated | ContentFiltered | InvalidResponse):
            return False
        return None


def _name_in(tool: Mapping[str, Any]) -> str:
    """Read the name in a definition in a provider's format.

    A tool that the provider runs itself may have none.
    """
    function = tool.get("function")
    if isinstance(function, Mapping):
        tool = function
    return str(tool.get("name") or "")
