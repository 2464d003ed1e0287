"""Choose how a turn delivers the tools that searches find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.engine.tool_view import ToolView

if TYPE_CHECKING:
    from casual_mcp_nb.providers.chat_model import ChatModel


class Deliveries:
    """Chooses each turn's delivery, and remembers between turns which models refused the native
    one.
    """

    def __init__(self) -> None:
        self._refused: set[tuple[str, str]] = set()

    def of(self, view: ToolView, model: ChatModel) -> Delivery:
        """Choose the delivery for a model: the selection's, as far as it is possible."""
        setting = view.selection.delivery
        if view.coded:
            return "code"
        if not view.deferred or setting == "code":
            return "definitions"
        if setting == "bridge" or setting == "definitions":
            return setting
        if self._key(model) in self._refused:
            return "definitions"
        if setting == "native" or model.defers_natively or model.tries_natively:
            return "native"
        return "definitions"

    def refuse(self, model: ChatModel) -> None:
        """Record that a model refused the native delivery."""
        self._refused.add(self._key(model))

    def _key(self, model: ChatModel) -> tuple[str, str]:
        return model.client_name, model.model
