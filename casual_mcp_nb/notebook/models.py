"""A session's models and clients, the system prompt, and cells that models write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from casual_mcp_nb.base.config import ClientConfig, Config
from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.base.status import ClientRow, Clients, ModelRow, Models, SystemPrompt
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.engine.system_prompt import prompt_source
from casual_mcp_nb.notebook.blocking import awaited, blocking
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.tools import SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService
from casual_mcp_nb.providers.registry import spec_of

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.notebook.write import WrittenCell
    from casual_mcp_nb.providers.chat_model import ChatModel


def models_of(config: Config, default: str | None) -> Models:
    """List a config's models, and whether their keys are set.

    Args:
        config: The config.
        default: The name of the model in use, or None.
    """
    rows: list[ModelRow] = []
    for name, model in config.models.items():
        client = config.clients[model.client]
        row = ModelRow(
            name=name,
            client=model.client,
            provider=client.provider,
            model=model.model,
            key=_key(client),
            default=name == default,
            template=model.template,
        )
        rows.append(row)
    return Models(tuple(rows))


def clients_of(config: Config) -> Clients:
    """List a config's clients, and whether their keys are set.

    Addresses contain nothing that could be a secret.
    """
    models: dict[str, list[str]] = {name: [] for name in config.clients}
    for name, model in config.models.items():
        models[model.client].append(name)
    rows: list[ClientRow] = []
    for name, client in config.clients.items():
        # As it was read, before variables are replaced by their values.
        address = str(dict(client)["base_url"] or "")
        key = _key(client)
        used_by = tuple(models[name])
        rows.append(ClientRow(name, client.provider, address, key, used_by, client.timeout))
    return Clients(tuple(rows))


def _key(client: ClientConfig) -> Literal["set", "not set", "not needed"]:
    if client.key_state == "set":
        return "set"
    if spec_of(client.provider).needs_key:
        return "not set"
    return "not needed"


class SessionModels(NamespaceList[ModelRow]):
    """A session's models and their system prompts: `session.models`.

    `session.model` is the one in use.
    """

    def __init__(
        self,
        chat: McpToolChat,
        config: Config,
        engine: EngineThread,
        starter: ServerStarter,
        turns: TurnService,
        tools: SessionTools,
    ) -> None:
        self._engine = engine
        self._chat = chat
        self._config = config
        self._starter = starter
        self._turns = turns
        self._tools = tools
        self._complete = True

    @property
    def now(self) -> Models:
        """The config's models."""
        return models_of(self._config, self._turns.model)

    @property
    def clients(self) -> Clients:
        """The config's clients, and whether their keys are set."""
        return clients_of(self._config)

    def templates(self) -> list[str]:
        """List the available prompt templates."""
        return self._chat.templates.names()

    @blocking
    async def preview(
        self, template: str | None = None, variables: Mapping[str, Any] | None = None
    ) -> SystemPrompt:
        """Return the system prompt that the next turn would send. Connects if needed.

        No model is called.

        Args:
            template: A template name, or None for the session's own system prompt, or the model's
                template.
            variables: Additional variables for it.

        Raises:
            TemplateError: The template does not exist, or fails.
        """
        return await self._starter.run_shown(self._preview(template, variables))

    preview_async = awaited(preview)

    @blocking
    async def write(
        self,
        task: str,
        *,
        variables: Sequence[str] = (),
        model: str | Model | ChatModel | None = None,
        variable: str = "session",
        rounds: int = 3,
        **options: Unpack[ModelOptions],
    ) -> WrittenCell:
        """Have a model write a notebook cell that calls tools as functions.

        Nothing in it runs before you run it. The model reads the task, the manifest, the signatures
        of functions that a search finds, and what you permit of your variables. It does not read
        your data, which only the program handles. The conversation stays as it is.

        Args:
            task: What the cell should do.
            variables: Variables whose type, shape and first values the model may read, by name.
            model: A model name in the config, a model object, or None for the session's.
            variable: The variable that holds this session.
            rounds: How often the program may be corrected, see `WrittenCell.repair`.
            options: Options for the model, such as `temperature`.

        Returns:
            The cell, to `insert` as an ordinary one, or to `run` with approval call by call, and to
            `repair`.

        Raises:
            UsageError: The task is empty, there is no such variable, or the model is the offline
                planner.
            ExtractionError: The model wrote no valid program, or was stopped.
            ProviderError: The provider failed.

        Examples:
            cell = session.models.write("What time is it in Tokyo and in Lima at 9:00 in Oslo?")
            cell.run()
        """
        from casual_mcp_nb.notebook import write

        heads = write.readable_heads(task, variables, variable)
        services = (
            self._tools,
            self._turns,
            self._starter,
            self._engine,
            self._chat.consent,
            self._config.secrets,
        )
        return await self._starter.run_shown(
            write.write(*services, task, heads, model, variable, rounds, options)
        )

    write_async = awaited(write)

    @property
    def cells(self) -> tuple[WrittenCell, ...]:
        """The cells that models wrote during this conversation, and their corrections, oldest
        first.
        """
        return tuple(self._turns.runner.cells)

    async def _preview(
        self, template: str | None, variables: Mapping[str, Any] | None
    ) -> SystemPrompt:
        view = await self._starter.view()
        model = self._config.models.get(self._turns.model or "")
        template_of_model = None
        if model is not None:
            template_of_model = model.template
        text, name = prompt_source(None, template, template_of_model, self._turns.system)
        if text is not None:
            return SystemPrompt(with_instructions(text, view, self._chat.server_manager))
        text = await self._chat.templates.render_async(
            name, tools=view.offered, variables=variables
        )
        return SystemPrompt(with_instructions(text, view, self._chat.server_manager), name)
