"""Find out whether the gateway before a model loads deferred tools, or drops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.engine.turn_tools import TurnTools
from casual_mcp_nb.errors import NativeDeferralError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.base.tokens import TokenUsage
    from casual_mcp_nb.conversation.step import ModelResponse
    from casual_mcp_nb.providers.chat_model import ChatModel

_LEAST_GROWTH = 100
"""How many estimated tokens new found tools must have, for their absence to show in the tokens that
are reported for a request.
"""


class NativeCheck:
    """Learns in one turn whether a gateway passes on the fields that load deferred tools.

    A call to a found tool proves that it does. Without one, the reported tokens tell: the first
    request that loads found tools is larger by their definitions.
    """

    def __init__(self, model: ChatModel, offered: TurnTools) -> None:
        self._model = model
        self._offered = offered
        self._last: tuple[Request, TokenUsage] | None = None

    def remember(self, request: Request, usage: TokenUsage | None) -> None:
        """Remember the tokens that were reported for a request."""
        self._last = None if usage is None else (request, usage)

    def check(self, request: Request, response: ModelResponse) -> None:
        """Learn from a response to a request with the native delivery.

        Raises:
            NativeDeferralError: The model did not get the found tools. The response is not used.
        """
        names = {str(tool["name"]) for tool in request.found}
        if any(call.function.name in names for call in response.message.tool_calls or ()):
            self._model.remember_native(True)
            return
        if self._last is None or response.usage is None:
            return
        before, usage = self._last
        if before.delivery != "native" or before.left_out != request.left_out:
            # The requests differ by more than the found tools.
            return
        if usage.prompt_tokens is None or response.usage.prompt_tokens is None:
            return
        growth = response.usage.prompt_tokens - usage.prompt_tokens
        expected = self._offered.tokens_of(
            [tool for tool in request.found if tool not in before.found]
        )
        if expected >= _LEAST_GROWTH and growth < expected / 2:
            raise NativeDeferralError(
                f"Model {shown(self._model.name)} was not shown the tools that were found: its"
                " gateway drops them.",
                hint="Choose another delivery of search results.",
                client=self._model.client_name,
                model=self._model.model,
            )
