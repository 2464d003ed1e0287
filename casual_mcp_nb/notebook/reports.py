"""What a session tells about itself on request: the conversation, the system prompt, the state of the set-up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from casual_mcp_nb.engine.chat import DEFAULT_TEMPLATE
from casual_mcp_nb.notebook.nouns import SessionNouns
from casual_mcp_nb.notebook.status import clients_of, tools_of
from casual_mcp_nb.notebook.twins import awaited, blocking
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.diagnosis import Diagnosis
from casual_mcp_nb.types.session import Clients, SystemPrompt, Tools


class SessionReports(SessionNouns):
    """The part of `Session` that reports."""

    @property
    def conversation(self) -> Conversation:
        """The turns of the present conversation, as they are now."""
        return Conversation(self.turns)

    @property
    def clients(self) -> Clients:
        """The clients of the config; of keys only whether they are set."""
        return clients_of(self.config)

    @property
    def known_tools(self) -> Tools:
        """The tools that are known at this moment. Does not connect and does not wait."""
        return tools_of(self._chat.current_view())

    @property
    def templates(self) -> list[str]:
        """The names of the prompt templates that can be used."""
        return self._chat.templates.names()

    async def _preview(self, template: str | None = None, variables: Mapping[str, Any] | None = None) -> SystemPrompt:
        """The system prompt that the next turn would send. Connects when needed, asks no model.

        Args:
            template: Name of a template; None for the model's.
            variables: More variables for it.

        Raises:
            TemplateError: There is no such template, or it fails.
        """
        view = await self._view()
        model = self.config.models.get(self.model or "")
        name = template or (model.template if model else None) or DEFAULT_TEMPLATE
        return SystemPrompt(self._chat.templates.render(name, tools=view.offered, variables=variables), name)

    preview, preview_async = blocking(_preview), awaited(_preview)

    def doctor(self) -> Diagnosis:
        """Look at what a session needs, and say of each thing that does not work what to do about it.

        Returns:
            A row for each thing: Python, packages, commands, config, keys, servers, templates. Nothing is started or sent.
        """
        from casual_mcp_nb.notebook.doctor import diagnose

        return diagnose(self)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the conversation into one file.

        Args:
            path: The file; its ending says the form: `.html` (one page without scripts and without the network), `.md`, or
                `.json` (everything, which `Conversation.load` reads).
            overwrite: Replace a file that is there.

        Returns:
            The file, whole or not at all.

        Raises:
            UsageError: The ending is another one, the file is there, or it cannot be written.
        """
        from casual_mcp_nb.notebook.export import export

        return export(self.conversation, Path(path), overwrite=overwrite)
