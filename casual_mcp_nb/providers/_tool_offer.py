"""The tools of one request: what it offers, and what it leaves out when the provider refuses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.dialects import PLAIN
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
    Offered,
    RefusedTools,
    offered,
)
from casual_mcp_nb.providers._tool_refusals import Bisection, ToolRefusal, tool_refusal
from casual_mcp_nb.providers.registry import Definition, Definitions, name_in

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

    Attributes:
        loaded: What is sent of `tools`.
        found: What is sent of `found_tools`.
        left_out: The definitions of both that are not sent, each with the reason.
        renamed: For each tool whose properties are sent under other names, the real names by those.
    """

    def __init__(
        self,
        model: BoundModel,
        tools: Definitions,
        found_tools: Definitions | None,
        notify: Callable[[str], None],
    ) -> None:
        self._model = model
        self._tools = tools
        self._found_tools = found_tools
        self._notify = notify
        self._bisection: Bisection | None = None
        self._refused = model.facts.refused_tools
        self.loaded = NOTHING
        self.found = NOTHING
        self.left_out: tuple[tuple[Definition, str], ...] = ()
        self.renamed: dict[str, Mapping[str, str]] = {}

    @property
    def definitions(self) -> list[Definition]:
        """The definitions as given, with those that searches have found."""
        return [*self._tools, *(self._found_tools or ())]

    async def admit(self) -> None:
        """Have the definitions pass the door."""
        if not self._tools and not self._found_tools:
            return
        dialect = self._model.dialect
        if dialect is PLAIN:
            self._notify_of_dialect()
        self.loaded = await offered(self._tools, dialect, self._refused)
        if self._found_tools:
            self.found = await offered(self._found_tools, dialect, self._refused)
        self.left_out = (*self.loaded.left_out, *self.found.left_out)
        self.renamed = {**self.loaded.renamed, **self.found.renamed}

    def arguments(self, loaded: Offered, found: Offered) -> dict[str, Any]:
        """Build a request's arguments for these tools."""
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

    def _notify_of_dialect(self) -> None:
        """Tell the person once that nothing says which schemas the provider takes."""
        facts = self._model.facts
        if not facts.told_of_dialect:
            facts.told_of_dialect = True
            self._notify(
                f"Nothing says which schemas provider {shown(self._model.wire.name)} takes, so"
                " tools are sent with what all providers take."
            )

    def notify_of_left_out(self) -> None:
        """Tell the person which tools the model did not have."""
        for definition, reason in self.left_out:
            name, model = shown(str(definition["name"])), shown(self._model.model)
            self._notify(f"Tool {name} is left out for model {model}: {reason.rstrip('.')}.")

    def check_forced(self, choice: str | None) -> None:
        """Check that the request offers the tool that the model has to call.

        Raises:
            BadRequestError: That tool is left out.
        """
        for definition, reason in self.left_out:
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
        names = [*self.loaded.names, *self.found.names]
        if self._model.dialect is None or not names:
            return False
        refusal = self._refusal_in(error, self.loaded, self.found)
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
        """Search for a tool that the provider did not name, and leave it out.

        If the search gives up, all tools are left out that the provider was not seen to take.
        """
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
        sent = [name_in(tool) for tool in self.arguments(loaded, found).get("tools", ())]
        sent += [name for name in found.names if name not in sent]
        sentence = reading.text_of(error, reading.secrets_of(self._model))
        return tool_refusal(status, text, sentence, sent)

    async def _is_refused_for(self, probe: Probe, names: Sequence[str]) -> bool | None:
        """Ask whether the provider refuses these tools, or return None if that cannot be told."""
        dialect = self._model.dialect
        rules = RefusedTools(longest_description=self._refused.longest_description)
        some = [tool for tool in self._tools if tool["name"] in names]
        some_found = [tool for tool in self._found_tools or () if tool["name"] in names]
        loaded = await offered(some, dialect, rules)
        found = await offered(some_found, dialect, rules)
        error = await probe(self.arguments(loaded, found))
        if error is None:
            return False
        if self._refusal_in(error, loaded, found) is not None:
            return True
        # An answer that cannot be used still shows that the tools were taken.
        if isinstance(error, StreamTruncated | ContentFiltered | InvalidResponse):
            return False
        return None
