"""Extra help for small models. Large models do not get it, because it would make them worse."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery.text import MAX_QUERY
from casual_mcp_nb.engine.loose_arguments import Reduced, rearranged, without_unknown
from casual_mcp_nb.engine.missed_search import last_prompt

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.tool import ToolSpec
    from casual_mcp_nb.engine.turn_tools import TurnTools
    from casual_mcp_nb.engine.written_calls import WrittenCall

ANSWER_NOW = "\n\nNow answer the question in one sentence."
"""Follows each result for a small model, which would otherwise write another call."""
REPEATED = (
    "\n\nYou made this call before, with the same result. Now answer the question in one sentence."
)
"""Follows the result of a small model's second identical call."""
LOADED_TOOLS = 3
"""How many tools are loaded before the first request. More definitions confuse a small model."""


class SmallModelAid:
    """Decides in one turn what a model gets if it is a small one.

    A model is small if its config says so. If the config does not say, the model counts as small as
    soon as it writes a call as text without the tags of its template (`read_written`).
    Decision 0108 has the reasons for all of this:

    - The tools that fit the message best are loaded before the first request (`tools_for`).
    - Calls of deferred tools run, although no search has found them (`calls_directly`), without
      their servers' instructions behind the result (`reads_instructions`).
    - Arguments that a tool does not have are left out of calls, and values are put under the names
      that the schema requires (`reduced`).
    - A call that failed is explained by the tool's schema (`explains_failures`).
    - Each result ends with a reminder to answer (`reminder`).
    - After a repeated call, and in the turn's last step, the model is asked without tools
      (`must_answer`).

    Args:
        small: Whether the model is a small one, or None if its config does not say.

    Attributes:
        must_answer: Whether the model is to answer without tools from now on.
    """

    def __init__(self, small: bool | None = False) -> None:
        self._unknown = small is None
        self._small = bool(small)
        self.must_answer = False

    def read_written(self, calls: Sequence[WrittenCall]) -> None:
        """Learn whether the model is small, from calls that it wrote as text and that run.

        Calls in tags have the format of the model's template, and only the server did not read
        them. A model that writes calls without tags does not know the format.
        """
        if self._unknown and not any(call.tagged for call in calls):
            self._small = True

    async def tools_for(
        self, messages: Sequence[ChatMessage], offered: TurnTools
    ) -> Sequence[ToolSpec]:
        """Find the deferred tools that fit the person's last message. A small model seldom
        searches.
        """
        if not self._small or not offered.view.deferred:
            return ()
        query = last_prompt(messages)[:MAX_QUERY]
        if not query.strip() or offered.delivery not in ("definitions", "bridge"):
            return ()
        index = await offered.view.searchable(query=query)
        hits = await asyncio.to_thread(index.search, query, LOADED_TOOLS)
        return [hit.tool for hit in hits]

    @property
    def calls_directly(self) -> bool:
        """Whether calls of deferred tools run before a search has found them."""
        return self._small

    @property
    def reads_instructions(self) -> bool:
        """Whether a result of such a call has the server's instructions.

        A small model would give them back as its answer.
        """
        return not self._small

    def reduced(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> Reduced | None:
        """Leave out arguments that a tool does not have. Return None if there is nothing to change.

        For every model, this leaves out words of the schema that stand among the arguments, and
        other unknown arguments only if the schema forbids them. For a small model, it leaves out
        all unknown arguments, and puts values under the names that the schema requires.
        """
        reduced = without_unknown(tool, arguments, small=self._small)
        if reduced is None and self._small:
            return rearranged(tool, arguments)
        return reduced

    @property
    def explains_failures(self) -> bool:
        """Whether a call that failed is explained by the tool's schema."""
        return self._small

    def reminder(self, times: int) -> str:
        """Write the reminder to answer, which follows a result. It is empty for a large model.

        Args:
            times: How many times the same call has had this result.
        """
        if not self._small:
            return ""
        if times > 1:
            self.must_answer = True
            return REPEATED
        return ANSWER_NOW

    def begin_last_step(self) -> None:
        """Have a small model answer in the last step, since it would go on calling tools."""
        self.must_answer = self.must_answer or self._small
