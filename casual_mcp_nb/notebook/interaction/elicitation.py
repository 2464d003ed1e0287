"""Questions of servers to the person: forms to fill in, and pages to visit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.notebook.interaction.form import FormField, checked, fields_of
from casual_mcp_nb.notebook.interaction.questions import Channel, Question

MAX_MESSAGE = 4_000


class Elicitation(Question):
    """A question of a server to the person; the answer goes to that server."""

    def __init__(self, channel: Channel, server: str, message: str) -> None:
        from casual_mcp_nb.display.text import clean, cut

        super().__init__(channel, server)
        self.message = clean(cut(message, MAX_MESSAGE))

    @property
    def text(self) -> str:
        """Which server asks, and its message."""
        return f"Server {self.server!a} asks (not the model, and not this notebook):\n{self.message}"

    def decline(self) -> None:
        """Refuse."""
        self._settle(("decline", None))

    def cancel(self) -> None:
        """Answer neither yes nor no."""
        self._settle(("cancel", None))

    def expire(self, why: str) -> None:
        """Answer neither yes nor no."""
        self.cancel()


class FormQuestion(Elicitation):
    """A form that a server asks the person to fill in.

    Args:
        channel: Where it is asked.
        server: The server.
        message: The server's message.
        schema: The form, as a JSON Schema.

    Attributes:
        fields: The form's fields.
    """

    kind = "form"

    def __init__(self, channel: Channel, server: str, message: str, schema: Mapping[str, Any]) -> None:
        super().__init__(channel, server, message)
        self.fields: tuple[FormField, ...] = fields_of(schema)

    def answer(self, values: Mapping[str, Any]) -> None:
        """Send the form.

        Args:
            values: The values by field name. A field that is missing gets the schema's default, if it has one; one that is
                empty is left out.

        Raises:
            UsageError: Something is missing or wrong; the question stays open.
        """
        self._settle(("accept", checked(self.fields, values)))


class UrlElicitation(Elicitation):
    """A page that a server asks the person to visit. It is never opened from here.

    Args:
        channel: Where it is asked.
        server: The server.
        message: The server's message.
        address: The page's address.
    """

    kind = "link"

    def __init__(self, channel: Channel, server: str, message: str, address: str) -> None:
        from casual_mcp_nb.display.text import clean

        super().__init__(channel, server, message)
        self.address = clean(address)

    @property
    def text(self) -> str:
        """Which server asks, its message, and the address."""
        return f"{super().text}\nTo answer, open this page yourself: {self.address}"

    def accept(self) -> None:
        """Tell the server that the person has visited the page, or is doing so."""
        self._settle(("accept", None))
