"""Provider that plays a cassette, which needs no key, network or SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import CassetteError, UsageError, shown
from casual_mcp_nb.providers._clients import AnsweringClient
from casual_mcp_nb.providers.registry import ProviderSpec

if TYPE_CHECKING:
    from casual_llm import ChatOptions
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.config import ClientConfig
    from casual_mcp_nb.cassettes.replayer import Replayer
    from casual_mcp_nb.conversation.step import ModelResponse


class ReplayClient(AnsweringClient):
    """The client for models whose answers are in a cassette.

    The engine asks the cassette, and never the client.
    """

    loads_found_tools = True
    """Whether it receives search results separately from the loaded tools, as with the delivery
    `native`.
    """

    def __init__(self, tape: Replayer) -> None:
        self.tape = tape

    async def answer(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Refuse: a cassette has only the engine's requests."""
        raise UsageError(
            "A cassette has only the requests of its session.", hint="Use a session or McpToolChat."
        )


def _build(name: str, config: ClientConfig) -> Any:
    from casual_mcp_nb.cassettes.format import Cassette
    from casual_mcp_nb.cassettes.replayer import Replayer

    if not config.cassette:
        raise CassetteError(
            f"Client {shown(name)} needs a cassette.",
            hint=f"Set clients.{name}.cassette to the path of one.",
        )
    path = config.cassette_path
    return ReplayClient(
        Replayer(Cassette.load(path), path.name, secrets=config.high_confidence_secrets)
    )


SPEC = ProviderSpec(
    name="replay",
    about="the answers of a cassette (no model is asked)",
    position=58,
    build=_build,
    api="A cassette",
    needs_key=False,
    is_language_model=False,
)
