"""Choose how a turn delivers the tools that searches find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.engine.tool_view import ToolView

if TYPE_CHECKING:
    from casual_mcp_nb.providers.chat_model import ChatModel


class Deliveries:
    """Chooses each turn's delivery, and remembers which models refused the native one.

    It outlives turns.
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
        if setting == "auto":
            setting = "native" if model.defers_natively or model.tries_natively else "definitions"
        return (
            "definitions" if setting == "native" and self._key(model) in self._refused else setting
        )

    def refuse(self, model: ChatModel) -> None:
        """Record that a model refused the native delivery."""
        self._refused.add(self._key(model))

    def _key(self, model: ChatModel) -> tuple[str, str]:
        return model.client_name, model.model
