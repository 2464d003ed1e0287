"""What a session tells about itself on request: the conversation, the system prompt, the state of the set-up."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.build_run import DEFAULT_TEMPLATE
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.notebook.nouns import SessionNouns
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.notebook.status import clients_of, tools_of
from casual_mcp_nb.notebook.sync_and_async import awaited, blocking
from casual_mcp_nb.toolsets import resolve_tool_set
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.diagnosis import Diagnosis
from casual_mcp_nb.types.evaluation import Case, Evaluation, Lint
from casual_mcp_nb.types.event import Notice
from casual_mcp_nb.types.session import Clients, SystemPrompt, Tools

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex
    from casual_mcp_nb.evaluation import Strategy
    from casual_mcp_nb.widgets.explorer import Explorer


class SessionReports(SessionNouns):
    """The part of `Session` that reports."""

    _observers: Observers

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

    @property
    def approval_problems(self) -> tuple[Notice, ...]:
        """The tools that a policy for approvals names and that their servers, as far as they are connected, do not have."""
        return tuple(self._chat.consent.unknown_tools())

    @property
    def exclusion_problems(self) -> tuple[Notice, ...]:
        """The tools that `include_tools` and `exclude_tools` name and that their servers, as far as they are connected, do not
        have."""
        return self._chat.exclusions.notices(self._chat.catalog)

    async def _preview(self, template: str | None = None, variables: Mapping[str, Any] | None = None) -> SystemPrompt:
        """The system prompt that the next turn would send. Connects when needed, asks no model.

        Args:
            template: Name of a template; None for the session's own system prompt, or the model's template.
            variables: More variables for it.

        Raises:
            TemplateError: There is no such template, or it fails.
        """
        view = await self._view()
        model = self.config.models.get(self.model or "")
        if template is None and self._chat.system is not None:
            return SystemPrompt(with_instructions(self._chat.system, view, self._chat.server_manager))
        name = (model.template if model else None) or DEFAULT_TEMPLATE if template is None else template
        text = await self._chat.templates.render_async(name, tools=view.offered, variables=variables)
        return SystemPrompt(with_instructions(text, view, self._chat.server_manager), name)

    preview, preview_async = blocking(_preview), awaited(_preview)

    def save_tool_set(self, name: str, tool_set: ToolSetConfig | Mapping[str, Any], *, overwrite: bool = False) -> Path:
        """Write a toolset into the config file, whose other content stays as it is, and know it from now on.

        Args:
            name: Its name.
            tool_set: A toolset, or a mapping with `servers` and perhaps `description`.
            overwrite: Replace another toolset of that name.

        Returns:
            The file, changed whole or not at all.

        Raises:
            UsageError: The config was not read from a file, or there is another toolset of that name.
            ToolSetError: It is no toolset.
            ConfigError: The file cannot be read or written, or with this toolset it would not be right.
        """
        from casual_mcp_nb.config.saving import save_tool_set

        made = resolve_tool_set(tool_set, {})
        if self.config.path is None or made is None:
            raise UsageError(
                "This config was not read from a file, so there is nowhere to save a toolset.",
                hint="Start the session from a file, Session.from_config('casual_mcp_config.json'), or use the toolset without "
                "saving it: session.selection.tool_set = ToolSetConfig(servers=…).",
            )
        outside = [server for server in made.servers if server in self.servers and server not in self.config.servers]
        if outside:
            raise UsageError(
                f"Server {shown(outside[0])} lives in this process and does not stand in the config file.",
                hint="Leave it out of the toolset, or use the toolset without saving it.",
                server=outside[0],
            )
        path = save_tool_set(self.config.path, name, made, overwrite=overwrite)
        self._chat.tool_sets[name] = made
        self._observers.changed()
        return path

    def explore(self) -> Explorer:
        """A widget with all servers and tools: what each costs, what the model sees, the manifest, the budget, the search.

        Everything that is done in it can be done in Python, with `selection`, `reconnect`, `search`, `call_tool` and
        `save_tool_set`.
        """
        explorer: Explorer = importlib.import_module("casual_mcp_nb.widgets").Explorer(self)
        return explorer

    async def _evaluate(
        self,
        cases: Iterable[Case] | str | Path,
        strategies: Mapping[str, Strategy] | None = None,
        *,
        k: int | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> Evaluation:
        """See how well the tools that the selection lets through are found.

        Args:
            cases: The questions with what should be found, or a file of them, `{"query": text, "gold": [[[server, tool]]]}` in
                a line, where `gold` has for each need the tools that meet it.
            strategies: What is compared, as for `casual_mcp_nb.evaluation.evaluate`; None for the search alone.
            k: How many tools of each search count; None for the selection's limit.
            executor: Does the work elsewhere, see `evaluate`.
            progress: Show a progress bar on stderr.

        Returns:
            A score for each strategy, with its misses and why they are misses. No model is asked.

        Raises:
            UsageError: There are no cases, the file cannot be read, or `k` is less than 1.
        """
        from casual_mcp_nb.evaluation import evaluate, load_cases

        read = load_cases(cases) if isinstance(cases, str | Path) else cases
        tools = (await self._searchable()).tools
        return await asyncio.to_thread(
            evaluate,
            tools,
            read,
            strategies,
            k=self.selection.max_search_results if k is None else k,
            executor=executor,
            progress=progress,
            manifest_max_tokens=self.selection.manifest_max_tokens,
        )

    evaluate, evaluate_async = blocking(_evaluate), awaited(_evaluate)

    async def _lint(self) -> Lint:
        """Look the tools that the selection lets through over for what makes them hard to find, or dear.

        Returns:
            A finding for each thing that the people who write the servers should mend.
        """
        from casual_mcp_nb.evaluation import lint

        return await asyncio.to_thread(lint, (await self._searchable()).tools)

    lint, lint_async = blocking(_lint), awaited(_lint)

    async def _searchable(self, whole: bool = True) -> ToolSearchIndex:
        """Return the search index over the deferred tools, or over all that the selection includes.

        Args:
            whole: All of them; so it is also where none is deferred.

        Raises:
            UnknownNameError: The selection's toolset does not exist any more.
        """
        view = await self._view()
        resolve_tool_set(view.selection.tool_set, self._chat.tool_sets)
        return await view.searchable(whole=whole or not view.deferred)

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
