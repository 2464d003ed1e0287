"""The tools that a turn offers the model. Searches, servers and the person change them while the
turn runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.tool import ToolName, ToolSpec, by_wire_name, servers_of
from casual_mcp_nb.conversation.event import READ_RESULT, Notice
from casual_mcp_nb.discovery.manifest import brief_spec
from casual_mcp_nb.discovery.synthetic import (
    IN_CARDS,
    discovered_in,
    first_presented,
    schemas_presented,
    used_in,
)
from casual_mcp_nb.engine.deliveries import Deliveries
from casual_mcp_nb.engine.edits import ToolsEdit, edited_view
from casual_mcp_nb.engine.large_results import DEFINITION as READ_ON
from casual_mcp_nb.engine.large_results import TOKENS as READ_ON_TOKENS
from casual_mcp_nb.engine.large_results import LargeResults, ReadResultTool, handles_in
from casual_mcp_nb.engine.notices import unseen, view_changes
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.tool_view import ToolView, cut_notices
from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
    from casual_mcp_nb.engine.tools import ChatTools
    from casual_mcp_nb.providers.chat_model import ChatModel


class Definitions(NamedTuple):
    """The definitions in one request.

    Args:
        tools: Those that are defined.
        found: Those that the provider adds to the conversation, behind the search.
        tokens: Estimated tokens in all of them. The provider bills what it adds as if it were
            defined with the others.
    """

    tools: tuple[Mapping[str, Any], ...]
    found: tuple[Mapping[str, Any], ...]
    tokens: int


class TurnTools(OfferedTools):
    """The tools of one turn.

    They change when a search loads or unloads some (`load`, `unload`), when the model calls one
    that no search has found (`load_directly`), when servers change theirs (`refresh`), when the
    person edits them (`edit`), and when the model cannot load deferred tools by itself
    (`refuse_native`).

    Args:
        view: The tools as the turn begins.
        model: The model, which decides the delivery.
        messages: The conversation, which tells what was found and called before. It grows.
        source: Has the tools of the chat's servers, as they change.
        deliveries: Chooses the delivery.
        large_results: What `read_result` reads.
        result_tokens: How many tokens of a result the model reads at once, or 0 for no limit.
        on_notice: Tells the person.

    Attributes:
        delivery: How the model receives what searches find. The synthetic tools fit it.
    """

    def __init__(
        self,
        view: ToolView,
        model: ChatModel,
        messages: Sequence[ChatMessage],
        *,
        source: ChatTools,
        deliveries: Deliveries,
        large_results: LargeResults,
        result_tokens: int,
        on_notice: Callable[[Notice], None],
    ) -> None:
        discovered = {}
        # Also what was found in a conversation that is given as a whole.
        for tool in discovered_in(messages, view.catalog, view.custom_names):
            if tool.wire_name in view.deferred_by_name:
                discovered[tool.wire_name] = tool
        super().__init__(view, discovered, {}, used_in(messages, view.catalog))
        self._source = source
        self._deliveries = deliveries
        self._model = model
        self._messages = messages
        self._large_results = large_results
        self._result_tokens = result_tokens
        self._on_notice = on_notice
        self._told: list[Notice] = []
        self._for_message: tuple[str, ...] = ()
        self.delivery = self._deliveries.of(view, model)
        self._make_synthetic()

    def remember(self, notices: Iterable[Notice]) -> None:
        """Remember what the person was told already."""
        self._told.extend(notices)

    async def refresh(self) -> None:
        """Take over what servers have changed since, and tell the person."""
        before = self.view
        view = await self._source.refreshed_view(before)
        if view is before:
            # Nothing changed, or another call of this step has seen it first.
            return
        self._use(view)
        on_definitions = unseen((*self._source.change_notices(), *view.notices), self._told)
        for notice in (*view_changes(before, view), *on_definitions):
            self._told.append(notice)
            self._on_notice(notice)

    async def edit(self, edit: ToolsEdit) -> None:
        """Offer other tools until the turn ends, as the person wishes."""
        view = edited_view(edit, self.view, self._source.view)
        await view.measure()
        self._use(view)

    def _use(self, view: ToolView) -> None:
        """Offer another view. What was found stays found, as far as the view still defers it."""
        self.view = view
        for name in tuple(self.discovered):
            tool = view.deferred_by_name.get(name)
            if tool is None:
                del self.discovered[name]
            else:
                self.discovered[name] = tool
        self.delivery = self._deliveries.of(view, self._model)
        self._make_synthetic()

    def refuse_native(self) -> None:
        """Deliver found tools in another way, in this turn and those to come."""
        self._deliveries.refuse(self._model)
        self.delivery = self._deliveries.of(self.view, self._model)
        self._make_synthetic()

    def load(self, tools: Iterable[ToolSpec]) -> None:
        """Offer tools that a search found."""
        loaded = tuple(tools)
        for tool in loaded:
            self.discovered[tool.wire_name] = tool
        for notice in cut_notices(loaded):
            self._on_notice(notice)

    def unload(self, tools: Iterable[ToolSpec]) -> None:
        """Stop offering tools that were found."""
        for tool in tools:
            self.discovered.pop(tool.wire_name, None)

    def load_directly(self, tool: ToolSpec) -> None:
        """Load a tool that the model has called before a search found it."""
        name = shown(str(tool.tool_name))
        self._on_notice(
            Notice(f"The model called {name} without searching for it, so it was loaded.")
        )
        # With `native`, one more definition would change the request from its beginning.
        if self.delivery != "native":
            self.discovered[tool.wire_name] = tool

    def load_for_message(self, tools: Iterable[ToolSpec]) -> None:
        """Define tools that fit the message of a small model, and tell the person."""
        loaded = tuple(tools)
        self._for_message = tuple([tool.wire_name for tool in loaded])
        for tool in loaded:
            self.discovered[tool.wire_name] = tool
        names = ", ".join(shown(str(tool.tool_name)) for tool in loaded)
        self._on_notice(
            Notice(f"Loaded for the message, since small models seldom search: {names}.")
        )

    @property
    def count(self) -> int:
        """How many tools of servers can be called."""
        return len(self.view.loaded) + len(self.discovered)

    def leave_out(self, messages: int) -> None:
        """Take note that so many of the first messages are no longer sent.

        Where only the cards in results have the schemas of found tools, the next search repeats
        those that were in these messages.
        """
        if self.delivery in IN_CARDS and messages != self._presented_from:
            self._make_synthetic(messages)

    def _make_synthetic(self, left_out: int = 0) -> None:
        """Make the synthetic tools.

        The search tool knows which definitions the model can still read in the messages.
        """
        tools, self._presented_from = self.discovered.values(), left_out
        presented: Collection[ToolName] = ()
        if self.delivery in IN_CARDS:
            presented = schemas_presented(
                self._messages[left_out:], tools, self.view.custom_names, self.delivery
            )
        self.synthetic = self.view.synthetic_tools(
            [tool.tool_name for tool in tools],
            self.delivery,
            self.used,
            presented,
            self._learned_index,
        )
        self.offer_reader(self._messages)

    def _learned_index(self) -> ToolSearchIndex:
        return self.view.index.with_past(self.past_questions)

    def offer_reader(self, new: Iterable[ChatMessage]) -> None:
        """Offer `read_result` as soon as the new messages have a large result."""
        if READ_RESULT not in self.synthetic and (self._reads_from_the_start() or handles_in(new)):
            reader = ReadResultTool(self._messages, self._large_results, self._result_tokens)
            self.synthetic = {**self.synthetic, READ_RESULT: reader}
        # With `bridge` it is called through `call_tool`, and its definition is not sent.
        self._defines_reader = READ_RESULT in self.synthetic and not self.bridges

    def _reads_from_the_start(self) -> bool:
        """Decide whether to offer `read_result` before there is a large result, so that the tools
        stay the same.
        """
        if self.delivery in ("definitions", "bridge"):
            # With `definitions`, a turn adds tools anyway. With `bridge`, it is called through
            # `call_tool`, as the note of a large result says.
            return False
        for server in servers_of(self.view.included):
            if self._large_results.limit_for(server, self._result_tokens):
                return True
        return False

    def definitions(self, left_out: int = 0) -> Definitions:
        """Collect the definitions for a request that leaves out so many messages."""
        view = self.view
        defined, added = self._delivered(left_out)
        tokens = view.loaded_tokens + view.search_tool_tokens
        for tool in (*defined, *added):
            tokens += tool.tokens
        tools = view.definitions
        last = [tool.definition for tool in defined]
        if self._defines_reader:
            tokens += READ_ON_TOKENS
            if self.delivery == "definitions":
                last.append(READ_ON)
            else:
                # What searches add comes last, because the rest is to stay the same.
                last.insert(0, READ_ON)
        if last:
            tools = (*tools, *last)
        found = tuple([tool.definition for tool in added]) if added else ()
        return Definitions(tools, found, tokens)

    def _delivered(self, left_out: int) -> tuple[Collection[ToolSpec], Sequence[ToolSpec]]:
        """Split the found tools: those defined with the others, and those that the provider adds to
        the request's messages.
        """
        if self.delivery == "definitions":
            return self.discovered.values(), ()
        defined, added = [], []
        if self.delivery in IN_CARDS:
            for name in self._for_message:
                # What was unloaded since, or is no longer listed, is not in `discovered`.
                if name in self.discovered:
                    defined.append(self.discovered[name])
            return defined, ()
        deferred, native = self.view.deferred_by_name, set()
        places = first_presented(self._messages, self.view.custom_names)
        for name, (index, built_in) in places.items():
            if not built_in or index < left_out:
                continue
            native.add(name)
            # Also what was unloaded: without its definition, the provider would read the earlier
            # messages in another way than before.
            if name in deferred:
                added.append(brief_spec(deferred[name]))
        for name, tool in self.discovered.items():
            if name not in native:
                defined.append(tool)
        return defined, added

    def tokens_of(self, definitions: Sequence[Mapping[str, Any]]) -> int:
        """Estimate the tokens of some definitions in a request."""
        if not definitions:
            return 0
        offered = by_wire_name(self.view.offered)
        tokens = 0
        for definition in definitions:
            name = str(definition["name"])
            tool = offered.get(name) or self.view.deferred_by_name.get(name)
            if tool is None:
                tokens += READ_ON_TOKENS
            elif tool.definition == definition:
                tokens += tool.tokens
            else:
                tokens += brief_spec(tool).tokens
        return tokens
