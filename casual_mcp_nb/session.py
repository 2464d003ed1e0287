"""Session: the main object for users.

It is a table of contents: its namespaces are the services in `SessionParts`, see
`notebook/parts.py`. `docs/rooms.md` follows a turn from `Session.chat` to the server of a tool.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, overload

from casual_mcp_nb.base.displayable import Checked, Displayable
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.engine.turn_fields import ChatOptions, ToolFields, list_options, spelled_out
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine
from casual_mcp_nb.notebook.images import with_images
from casual_mcp_nb.notebook.saving import DEFAULT, QuickOptions, SessionOptions, StoreLike

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage
    from fastmcp import FastMCP
    from pydantic import BaseModel

    from casual_mcp_nb.base.config import Config, Policies
    from casual_mcp_nb.base.search import SearchResults
    from casual_mcp_nb.base.selection import Selection
    from casual_mcp_nb.base.status import Servers, SessionStatus
    from casual_mcp_nb.cassettes import MatchOn
    from casual_mcp_nb.config.quick import ServerLike
    from casual_mcp_nb.conversation.conversation import Prompt
    from casual_mcp_nb.conversation.event import Event
    from casual_mcp_nb.conversation.planned import PlannedCalls
    from casual_mcp_nb.conversation.stats import ChatStats
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.engine.events import Observation
    from casual_mcp_nb.experiments.service import SessionExperiments
    from casual_mcp_nb.notebook.cassettes import SessionCassettes
    from casual_mcp_nb.notebook.consent import SessionConsent
    from casual_mcp_nb.notebook.conversations import SessionConversations
    from casual_mcp_nb.notebook.limits import SessionLimits
    from casual_mcp_nb.notebook.live import Echo
    from casual_mcp_nb.notebook.models import SessionModels
    from casual_mcp_nb.notebook.pauses import Pauses
    from casual_mcp_nb.notebook.resource_service import SessionPrompts, SessionResources
    from casual_mcp_nb.notebook.servers import SessionServers
    from casual_mcp_nb.notebook.tools import SessionTools
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.serve.serving import SessionServe
    from casual_mcp_nb.telemetry import OpenTelemetry
    from casual_mcp_nb.widgets.conversation import Panel
    from casual_mcp_nb.widgets.explorer import Explorer

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="BaseModel")


class Session(Checked, Displayable):
    """MCP servers, models and one conversation, for a notebook or a script.

    ```python
    with Session.demo() as session:  # or Session.from_config("casual_mcp_config.json")
        print(session.chat("What is 17 * 23 + 4?").answer)
        print(session.search("convert a time zone"), session.tools.call("math:add", a=1, b=2).result)
    ```

    Every method that takes time blocks. Its `_async` variant is awaited instead. Use it as a
    context manager, or call `close`. In IPython each config has one session: opening another closes
    the previous one, unless their names differ.

    Args:
        config: A path to a config file, a dict, or a loaded config.
        model: The default model instead of the config's first: one of the config's, or
            `openai:gpt-4.1`, see `Session.quick`. `offline:planner` is the offline planner.
        in_process: This process's FastMCP servers, by name.
        name: Distinguishes sessions with the same config.
        system: The system prompt, or None for the default template. A turn's own prompt comes
            before it, and so does the template of a model.
        prices: Model prices, instead of the config's: a JSON file or plain objects, see
            `read_prices`.
        approval: When calls need approval, by server: `never`, `destructive`, `always`, or a
            mapping from tool names to these. It replaces the config's `approval`, and can name
            in-process servers.
        strict: Whether to be stricter: every call asks unless its policy was set to `never`, a
            changed tool is blocked until you accept the change, and only your own answer accepts a
            config file. The config's `strict` does the same.
        trust: Whether to start a config file's servers although you have not accepted it, see
            `session.consent.trust`.
        quiet: Do not show how the servers start; `MCP_QUIET` in the environment does the same for
            all sessions.
        store: The file in which conversations are saved, or a `ConversationStore`. None saves
            nothing. The default comes from `MCP_STORE` or the config's `store`, or else is a file
            in the user's data folder for a notebook.

    Attributes:
        config: The config as loaded.
        name: The name as given.
        questions: Questions that running turns wait for you to answer: calls to approve, servers'
            forms, pauses in step mode.
        parts: The services behind the namespaces, for this package's own widgets and magics. They
            may change in any release.

    Raises:
        ConfigError: The config or a policy is wrong. Nothing was started.
        UnknownNameError: `approval` names a server, or `model` a model, that does not exist.
        ProviderError: The key or the SDK of `model` is missing. The message names it.
    """

    _kind = "a session"

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        *,
        model: str | None = None,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        name: str | None = None,
        system: str | None = None,
        prices: str | Path | Mapping[str, Any] | None = None,
        approval: Mapping[str, Policies] | None = None,
        strict: bool = False,
        trust: bool = False,
        quiet: bool = False,
        store: StoreLike = DEFAULT,
    ) -> None:
        from casual_mcp_nb.notebook.parts import SessionParts

        try:
            self.parts = parts = SessionParts(
                config,
                model=model,
                in_process=in_process,
                name=name,
                system=system,
                prices=prices,
                approval=approval,
                strict=strict,
                trust=trust,
                quiet=quiet,
                store=store,
            )
        finally:
            # A traceback with local variables would show a dict's contents.
            del config
        self.config = parts.config
        self.name = parts.name
        self.questions = parts.questions
        self._engine = parts.engine
        self._experiments: SessionExperiments | None = None
        self._complete = type(self) is Session  # A subclass may add attributes.

    @classmethod
    def from_config(
        cls, config: Config | str | Path | Mapping[str, Any], **options: Unpack[SessionOptions]
    ) -> Self:
        """Open a session from a config file or value. For the arguments, see `Session`.

        It connects on first use.
        """
        try:
            return cls(config, **options)
        finally:
            del config

    @classmethod
    def quick(
        cls,
        model: str | None = None,
        servers: Mapping[str, ServerLike] | Iterable[ServerLike] = (),
        *,
        base_url: str | None = None,
        cassette: str | Path | None = None,
        pace: float | None = None,
        match_on: Collection[MatchOn] | None = None,
        **options: Unpack[QuickOptions],
    ) -> Self:
        """Open a session without a config file: `Session.quick("openai:gpt-4.1", servers={"docs":
        "npx -y …"})`.

        Args:
            model: Provider and model, such as `openai:gpt-4.1`, or only a well-known model, such as
                `gpt-5`; `lmstudio:`, `llamacpp:` and `vllm:` are servers on this computer. With
                `openai:`, reasoning models use the Responses API; `openai-chat:` and
                `openai-responses:` choose explicitly. None for the offline planner. Keys come from
                the environment or `.env`.
            servers: Servers by name, each as for `session.servers.add`, or without names: texts, or
                in-process servers, which have one.
            base_url: Another address than the provider's own. Its key, if it needs one, is taken
                from `QUICK_API_KEY`.
            cassette: Answer from a cassette instead of models and servers: no key, no network, no
                server. It is a file that `session.cassettes.use` recorded, or an HTML file with a
                cassette in it. Models, servers, toolsets, selection and system prompt come from the
                recording. See `session.cassettes.replay`.
            pace: How long the cassette's pauses are, see `session.cassettes.use`.
            match_on: The request parts that must match the recording, or None for all except the
                system prompt.
            options: See `Session`.

        Raises:
            UsageError: The provider or a server is unknown, or a cassette was given with something
                that it replaces.
            CassetteError: The cassette does not exist, or is not one.
            ProviderError: The provider's key or its SDK is missing. The message names it.
            ConfigError: A server entry is wrong.
        """
        from casual_mcp_nb.notebook.servers import quick_session_config

        if cassette is not None:
            from casual_mcp_nb.notebook.cassettes import opened_cassette

            given = {"model": model, "servers": servers, "base_url": base_url, **options}
            file, recorded, config = opened_cassette(cassette, given)
            approval = options.pop("approval", None)
            options["system"] = recorded.session.system
            session = cls(config, **options)
            session.cassettes.replay_only(recorded, file, pace, match_on, approval)
            return session
        try:
            config, in_process = quick_session_config(model, servers, base_url=base_url)
        finally:
            del servers
        return cls(config, in_process=in_process, **options)

    @classmethod
    def demo(cls, model: str | None = None) -> Self:
        """Open a session with the bundled servers whose libraries are installed.

        Args:
            model: See `quick`, or None for the offline planner: no key, no network.
        """
        from casual_mcp_nb.notebook.demo import demo_config

        return cls(demo_config(model))

    @classmethod
    def resume(cls, id: str | None = None, *, store: StoreLike = DEFAULT) -> Self:
        """Open the session of a saved conversation again, in a new kernel, and continue the
        conversation.

        The session has the config that it had, the servers that were added to it, and the model,
        the system prompt and the selection of the conversation. It connects on first use, and asks
        about the servers as always. In a session that is open, `session.conversations.resume`
        continues another conversation.

        Args:
            id: The conversation's id, or the beginning of its id, or None for this notebook's last
                one.
            store: Where it is saved, see `Session`.

        Raises:
            UsageError: There is none, or the config that it had is gone. The message says what to
                do next.
            UnknownNameError: There is no conversation with that id.
            ConfigError: The config is not valid any more.
        """
        from casual_mcp_nb.notebook.resuming import resume_session

        resumed = resume_session(cls, id, store)
        for problem in resumed.problems:
            warnings.warn(problem, stacklevel=2)
        return resumed.session

    @blocking
    async def connect(self, *, strict: bool = False, quiet: bool = False) -> Servers:
        """Start all servers at the same time, and wait until each is ready or has failed.

        Args:
            strict: Whether a failed server raises an error.
            quiet: Show nothing.

        Returns:
            Their states. A failed server does not raise unless `strict`. Its status has the reason.

        Raises:
            ConnectError: With `strict`, a server failed. The message has each reason.
        """
        return await self.parts.starter.connect(strict=strict, quiet=quiet)

    connect_async = awaited(connect)

    @overload
    def tool(self, function: F) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolFields]) -> Callable[[F], F]: ...
    def tool(
        self, function: F | None = None, **options: Unpack[ToolFields]
    ) -> F | Callable[[F], F]:
        """Offer a notebook function as a tool. A decorator, with or without options.

        Args:
            function: The function.
            options: See `session.tools.add`.

        Returns:
            The function, unchanged.

        Raises:
            UsageError: It cannot be a tool. The message has the reason.
        """

        def register(function: F) -> F:
            self.parts.tools.add(function, **options)
            return function

        if function is None:
            return register
        return register(function)

    @blocking
    async def close(self) -> None:
        """End all server processes and connections. A running turn is stopped.

        The conversation stays readable. Closing twice is harmless, and so is closing in a forked
        child, which leaves the parent's servers alone.
        """
        if not self._engine.inherited:
            await on_engine(self.parts.close())

    close_async = awaited(close)

    def __reduce__(self) -> Never:
        raise UsageError(
            "A session cannot be pickled or copied: it belongs to the process that opened it.",
            hint="Open one there, from the same config: Session.from_config(…).",
        )

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.connect_async()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close_async()

    @property
    def model(self) -> str | None:
        """The default model's name, or None if the config has no models."""
        return self.parts.turn_service.model

    @model.setter
    def model(self, name: str | None) -> None:
        self.parts.turn_service.model = name

    @property
    def system(self) -> str | None:
        """The session's system prompt, or None for the default template.

        A turn's own prompt comes before it, and so does the template of a model.
        """
        return self.parts.turn_service.system

    @system.setter
    def system(self, text: str | None) -> None:
        self.parts.turn_service.system = text

    @property
    def selection(self) -> Selection:
        """Which tools the model sees. Assign to its fields.

        Changes take effect with the next turn.
        """
        return self.parts.chat.selection

    @selection.setter
    def selection(self, value: Selection) -> None:
        self.parts.chat.selection.assign(value)

    @property
    def servers(self) -> SessionServers:
        """The servers by name, with their status, and methods to add, remove and examine them.

        Does not connect.
        """
        return self.parts.servers

    @property
    def tools(self) -> SessionTools:
        """The tools known so far and their cost, and methods to call, add and load them.

        Does not connect.
        """
        return self.parts.tools

    @property
    def consent(self) -> SessionConsent:
        """The session's approvals and call record."""
        return self.parts.consent

    @property
    def limits(self) -> SessionLimits:
        """The spend limits, and what requests to models took in the last turn, in this conversation
        and today.
        """
        return self.parts.limits

    @property
    def models(self) -> SessionModels:
        """The config's models, their clients and templates."""
        return self.parts.models

    @property
    def status(self) -> SessionStatus:
        """An overview of the session. Does not connect."""
        return self.parts.status()

    @blocking
    async def search(
        self,
        query: str,
        *,
        k: int | None = None,
        server: str | None = None,
        all_tools: bool = False,
    ) -> SearchResults:
        """Search the deferred tools as the model does.

        If no tool is deferred, search all that the selection includes.

        Args:
            query: The search words.
            k: How many hits to return at most, or None for the selection's limit.
            server: Only this server's tools.
            all_tools: Search the loaded tools too.

        Returns:
            The hits, best first. Each explains itself, and `why_not(name)` explains any other tool.

        Raises:
            UsageError: `k` is less than 1.
        """
        work = self.parts.tools.find(query, k, server, all_tools=all_tools)
        return await self.parts.starter.run_shown(work)

    search_async = awaited(search)

    @property
    def resources(self) -> SessionResources:
        """All servers' resources and templates, as last listed.

        `session.resources.list()` asks the servers.
        """
        return self.parts.resources

    @property
    def prompts(self) -> SessionPrompts:
        """All server prompts, as last listed. `session.prompts.list()` asks the servers."""
        return self.parts.prompts

    @blocking
    @spelled_out(ChatOptions)
    async def chat(
        self,
        prompt: Prompt,
        *,
        images: Any = None,
        echo: Echo = "output",
        **options: Unpack[ChatOptions],
    ) -> Turn:
        """Send a message to the model, which can call the tools to answer it.

        The turn continues the conversation.

        Args:
            prompt: The text, or messages to add: casual-llm's, or mappings such as `{"role":
                "user", "content": "Hello"}`.
            images: One image or several, for models that can see: bytes, a file path, a URL
                (`https://…`), which the provider fetches, or an object with `savefig` or `save`,
                such as a matplotlib figure or a Pillow image.
            echo: The live output in a notebook: `none`, `text` (the answer alone), `output` (the
                usual display), or `all`.
            model: A model name in the config, a model object, or None for the session's.
            tool_set: A toolset name for this turn, or None for the selection's.
            system: The system prompt for this turn. None for the session's or the template's.
            template: File in `prompt-templates/` for this turn, or None for the model's.
            discovery: Whether deferred tools are hidden behind the search tool in this turn, or
                None for the selection's.
            delivery: How the model receives search results in this turn, see `DiscoveryOptions`, or
                None for the selection's.
            max_steps: How many model calls this turn may make, or None for the config's limit.
            stream: False requests each answer in one piece. Otherwise text is shown as it arrives,
                if the provider streams.
            repair_calls: Whether to run calls that the model writes as text, or None for the
                config's setting.
            variables: Additional variables for the template.
            meta: Passed to the servers with each call.
            mock: Stubs that answer in place of tools in this turn, by tool as in
                `session.tools.mock`. They come before the session's own.
            context: Values for your own functions' parameters, by name or as `Inject` marks them.
                No model or record gets them. They are added to `session.tools.context`.
            step: Whether to pause before each model call, or a callback to await there, see
                `BeforeModelCall`, or None for `session.consent.step_mode`.
            attach: Resources and prompts for the model to read with the message, one or several:
                URIs or names as for `resources.read`, links, or results from `resources.read` and
                `prompts.get`. They are sent as a message before it, each marked with its server,
                and cut if they are longer than the config's `tool_results.max_tokens`.
            options: The options above, and `ModelOptions` such as `temperature`, which go to the
                model.

        Returns:
            The turn. If the model or a limit made it fail, its status is `failed` and
            `raise_for_status` raises. If it was stopped by `stop` or in a panel, its status is
            `stopped`.

        Raises:
            UsageError: An option or a name does not exist. Nothing was sent.
            KeyboardInterrupt: It was interrupted. The turn is in `turns`, marked as stopped, and
                the conversation stays valid.
        """
        return await self.parts.turn_service.chat(with_images(prompt, images), options, echo)

    chat_async = awaited(chat)

    @blocking
    @spelled_out(ChatOptions)
    async def plan(
        self, prompt: Prompt, *, images: Any = None, **options: Unpack[ChatOptions]
    ) -> PlannedCalls:
        """Ask the model for the calls that it would make to answer a message, without running them.

        The model reads the conversation so far, which stays as it is. Its searches for deferred
        tools are run, so that it can find the right ones. Planning ends with its first answer that
        calls other tools.

        Args:
            prompt: The text, or messages.
            images: See `chat`.
            options: See `chat`.

        Returns:
            The calls, checked against their tools' schemas, to read, edit and `run`. None if the
            model would only answer.

        Raises:
            UsageError: An option or a name does not exist. Nothing was sent.
            ProviderError: The model failed.
        """
        return await self.parts.turn_service.plan(with_images(prompt, images), options)

    plan_async = awaited(plan)

    @spelled_out(ChatOptions)
    async def stream(
        self, prompt: Prompt, *, images: Any = None, **options: Unpack[ChatOptions]
    ) -> AsyncIterator[Event]:
        """Send a message, and follow the turn event by event, on the caller's event loop.

        Args:
            prompt: The text, or messages to add.
            images: See `chat`.
            options: See `chat`.

        Yields:
            The turn's events. The last one is `TurnFinished`. Leaving the loop early stops the
            turn.

        Raises:
            UsageError: A name does not exist, or another turn is running. Nothing was sent.
        """
        async with aclosing(
            self.parts.turn_service.stream(with_images(prompt, images), options)
        ) as events:
            async for event in events:
                yield event

    @spelled_out(ChatOptions)
    def submit(
        self, prompt: Prompt, *, images: Any = None, **options: Unpack[ChatOptions]
    ) -> Future[Turn]:
        """Start a turn without waiting for it. Use `observe` to follow it.

        Its questions wait in `questions`. `input()` is not used.

        Args:
            prompt: The text, or messages to add.
            images: See `chat`.
            options: See `chat`.

        Returns:
            A future for the turn. Cancelling it stops the turn.
        """
        started = self.parts.turn_service.submit(with_images(prompt, images), options)
        # The session is not collected before its turn has ended, even if nobody else holds it.
        started.add_done_callback(lambda _: self and None)
        return started

    @spelled_out(ChatOptions)
    def pauses(
        self, prompt: Prompt, *, images: Any = None, **options: Unpack[ChatOptions]
    ) -> Pauses:
        """Run a turn step by step: `for pause in session.pauses("…")`, or `async for`.

        The turn pauses before each model call. A pause has the request that is about to be sent.
        Change its `texts`, its `system` prompt or its `tools`. Continuing the loop sends the
        request. `pause.run()` makes it the last pause, and `pause.stop()` stops the turn. A loop
        that is left early, by `break` or an error, stops the turn as well. Its completed steps are
        kept and valid.

        Args:
            prompt: The text, or messages to add.
            images: See `chat`.
            options: See `chat`, without `step`.

        Returns:
            The pauses, to iterate over once. The turn begins with the loop, and `turn` is complete
            after it.
        """
        from casual_mcp_nb.notebook.pauses import Pauses

        return Pauses(self.parts, with_images(prompt, images), options)

    def stop(self) -> None:
        """Stop the running turn, from any thread. Harmless if nothing runs.

        Its completed steps stay in `turns`, marked as stopped. This waits for its end, for half a
        second at most, but not on the engine's thread.
        """
        self.parts.turn_service.stop()

    async def stop_async(self) -> None:
        """Stop the running turn, as `stop` does, and await its end."""
        await self._engine.wait(self.parts.runner.stop())

    def undo(self) -> Turn | None:
        """Remove the last turn from the conversation, with the tools that it discovered.

        Returns:
            The turn, or None if there is none.

        Raises:
            UsageError: A turn is running.
        """
        return self.parts.runner.undo()

    @blocking
    @spelled_out(ChatOptions)
    async def rerun(
        self,
        index: int = -1,
        prompt: str | None = None,
        *,
        echo: Echo = "output",
        **options: Unpack[ChatOptions],
    ) -> Turn:
        """Run a turn again. It replaces that turn and removes those after it.

        Args:
            index: The turn's index in `turns`.
            prompt: Replaces the original text, but keeps its images. None sends the same text.
            echo: See `chat`.
            options: See `chat`. The default is the session's current choice.

        Raises:
            UsageError: There is no such turn, an option or a name does not exist, or a turn is
                running. The conversation is unchanged.
        """
        return await self.parts.turn_service.rerun(index, prompt, options, echo)

    rerun_async = awaited(rerun)

    @blocking
    @spelled_out(ModelOptions)
    async def extract(
        self,
        prompt: Prompt,
        schema: type[M],
        *,
        model: str | Model | ChatModel | None = None,
        images: Any = None,
        conversation: bool = False,
        **options: Unpack[ModelOptions],
    ) -> M:
        """Have the model fill in a pydantic class. It gets no tools.

        The model may correct an invalid answer twice.

        Args:
            prompt: The text to extract from with instructions, or messages.
            schema: A pydantic class. The model reads its docstring and its fields' descriptions.
            model: A model name in the config, a model object, or None for the session's.
            images: See `chat`.
            conversation: Whether to continue the conversation: the model reads it, and the turns
                become part of it. Otherwise the conversation and its stats stay as they are.
            options: Those of `chat` that go to the model, such as `temperature`.

        Returns:
            The instance, validated.

        Raises:
            ExtractionError: None of the model's answers was valid. `text` has the last one.
            UsageError: `schema` is not a pydantic class, an option or a name does not exist, or the
                model is the offline planner, which cannot extract.
            ProviderError: The model failed.
        """
        from casual_mcp_nb.notebook.extract import extract

        messages = with_images(prompt, images)
        turns = self.parts.turn_service
        return await on_engine(extract(turns, messages, schema, model, conversation, options))

    extract_async = awaited(extract)

    @property
    def conversations(self) -> SessionConversations:
        """The saved conversations, with methods to continue, fork and keep them.

        They are read when they are used.
        """
        return self.parts.conversations

    @property
    def turns(self) -> list[Turn]:
        """The conversation's turns, oldest first. A running turn is the last."""
        return self.parts.runner.turns

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation as messages. A valid history at any time."""
        return self.parts.runner.messages

    @property
    def stats(self) -> ChatStats:
        """The conversation's usage: tokens, calls, searches."""
        return self.parts.runner.stats

    @property
    def cassettes(self) -> SessionCassettes:
        """Records and plays cassettes."""
        return self.parts.cassettes

    @property
    def experiments(self) -> SessionExperiments:
        """Compare models and settings, and measure how well tools are found and called."""
        if self._experiments is None:
            from casual_mcp_nb.experiments.service import SessionExperiments

            self._experiments = SessionExperiments(self.parts, _runs_explorer)
        return self._experiments

    def export(
        self,
        path: str | Path,
        id: str | None = None,
        *,
        overwrite: bool = False,
        player: bool = False,
    ) -> Path:
        """Write the conversation, or a saved one, to a file.

        Args:
            path: The file. Its extension decides the format: `.html` (one page, without scripts or
                network access), `.md`, `.json` (all of the conversation; `Conversation.load` reads
                it), or `.ipynb` (a notebook that makes the calls again, without a model). All have
                the written cells too.
            id: A saved conversation's id, or the beginning of its id, or None for this one.
            overwrite: Replace a file that exists.
            player: Make the `.html` file a player: a page that steps through the conversation,
                forward and back, and lists its searches and the session's tools. It needs no
                network, and cuts very long texts. It is a cassette too, unless that is too large
                for a page: `Session.quick(cassette=…)` replays it.

        Returns:
            The file. It is written whole or not at all.

        Raises:
            UsageError: The extension is not one of these, the file exists, or it cannot be written.
            UnknownNameError: There is no conversation with that id.
        """
        if not player:
            return self.parts.export(path, id, overwrite=overwrite)
        from casual_mcp_nb.widgets.player import player_page

        return self.parts.export(path, id, overwrite=overwrite, page=player_page)

    def explore(self) -> Explorer:
        """Return a widget with all servers and tools, their cost, the manifest, and the search.

        Everything in it can be done in Python: `selection`, `servers.reconnect`, `search`,
        `tools.call`, `tools.save_set`.
        """
        from casual_mcp_nb.widgets.explorer import Explorer

        self.parts.runner.remember(widget="explorer")
        return Explorer(self)

    @spelled_out(ChatOptions)
    def panel(self, **options: Unpack[ChatOptions]) -> Panel:
        """Return a panel to chat in: message box, live transcript, approvals, step mode, tokens.

        Args:
            options: For turns started in it, see `chat`.

        Returns:
            A widget. As a cell's last value it shows itself.
        """
        from casual_mcp_nb.widgets.conversation import Panel

        self.parts.runner.remember(widget="panel")
        return Panel(self, **options)

    @property
    def serve(self) -> SessionServe:
        """Serves this session to other programs: over HTTP (`http`) and as an MCP server (`mcp`,
        `stdio`).
        """
        from casual_mcp_nb.serve.serving import SessionServe

        return SessionServe(self.parts)

    def observe(
        self,
        listener: Callable[[Turn, Event], object] | OpenTelemetry | None = None,
        *,
        changes: Callable[[], object] | None = None,
        closing: Callable[[], object] | None = None,
    ) -> Observation:
        """Call functions with every turn's events, whoever started it, and when something changes.

        Args:
            listener: Called with the turn and the event, once the trace has it. It is called on the
                engine's thread, so it must be quick. If it raises, the error goes to the log and
                the turn continues. `OpenTelemetry()` makes spans and metrics of the events.
            changes: Called when a server, the tools, the turns, the model or a question changes. It
                is called on the thread that made the change, so it must be quick too. For changes
                to the selection, see `Selection.watch`.
            closing: Called once, when the session closes or a newer one replaces it, on the thread
                that closes it.

        Returns:
            An object that ends the subscription: by `close`, as a context manager, or when called.
        """
        return self.parts.observe(listener, changes, closing)

    def __repr__(self) -> str:
        return (
            f"<Session: {len(self.servers)} servers, model {self.model}, {len(self.turns)} turns>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.status._repr_mimebundle_(include, exclude)


def _runs_explorer(*args: Any) -> Any:
    from casual_mcp_nb.widgets.runs import RunsExplorer

    return RunsExplorer(*args)


list_options(Session.from_config, SessionOptions, Session)
list_options(Session.quick, QuickOptions, Session)
