"""Session: the one object that a person holds."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack

from pydantic import BaseModel

from casual_mcp_nb.config import Settings, load_config, read_environment
from casual_mcp_nb.config.prices import read_prices
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.signatures import spelled_out
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.demo import demo_config
from casual_mcp_nb.notebook.extract import extract
from casual_mcp_nb.notebook.images import with_images
from casual_mcp_nb.notebook.interaction.pending import Questions
from casual_mcp_nb.notebook.live import Echo
from casual_mcp_nb.notebook.log import show_log
from casual_mcp_nb.notebook.loop import OTHER_PROCESS, engine_thread
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.notebook.session_registry import close_in_background, replace_earlier, unregister
from casual_mcp_nb.notebook.status import clients_of, manifest_of, models_of, status_of, tools_of
from casual_mcp_nb.notebook.sync_and_async import awaited, blocking, on_engine, run, wait
from casual_mcp_nb.notebook.tool_service import ToolService
from casual_mcp_nb.notebook.turn_service import Prompt, TurnService, checked_system
from casual_mcp_nb.types.config import Config, ToolSetConfig
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.diagnosis import Diagnosis
from casual_mcp_nb.types.displayable import Displayable
from casual_mcp_nb.types.evaluation import Case, Evaluation, Lint
from casual_mcp_nb.types.event import Event, Notice
from casual_mcp_nb.types.model_options import ModelOptions
from casual_mcp_nb.types.search import SearchResults
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.server import Policies
from casual_mcp_nb.types.session import (
    Clients,
    Manifest,
    Models,
    Servers,
    ServerStatus,
    SessionStatus,
    SystemPrompt,
    Tools,
    ToolSets,
)
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.tool import ToolChange, ToolName
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage
    from fastmcp import FastMCP

    from casual_mcp_nb.evaluation import Strategy
    from casual_mcp_nb.providers.base import ChatModel
    from casual_mcp_nb.widgets.explorer import Explorer
    from casual_mcp_nb.widgets.panel import Panel

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Session(Displayable):
    """MCP servers, models and one conversation, for a notebook or a script.

    Every method that takes time blocks; its twin with `_async` at the end of the name is awaited instead. Both run on the
    engine thread, so it does not matter which loop or thread they are called from. Use it as a context manager, or call
    `close`.

    In IPython a config stands for one session: opening it anew closes the one before, so that a set-up cell can be run again
    and again. Two of one config at the same time have different names.

    Args:
        config: A path to a config file, a dict, or a loaded config.
        in_process: FastMCP servers of this process, by name.
        name: What tells this session from another one of the same config.
        system: The system prompt of turns that name neither another one nor a template; None for the model's template.
        prices: What models cost, in the place of the config's `prices`: a JSON file or plain objects, see `read_prices`.
        approval: When the person is asked before a call, by server, also for servers of this process: `never`, `destructive`,
            `always`, or a mapping of tool names to these. It counts instead of the config's `approval`.
        quiet: Do not show how the servers start; `MCP_QUIET` in the environment does the same for all sessions.

    Attributes:
        config: The config as loaded.
        name: The name as given.
        engine: The thread on which the servers and the turns live.
        tool_service: The servers, tools and toolsets, for code that shows or changes them.
        turn_service: What runs the turns.
        observers: Who is told of events and changes; `observe`, `on_change` and `on_close` add to them.
        questions: What running turns wait for the person to answer: calls to approve, forms of servers, pauses of the step
            mode.

    Raises:
        ConfigError: The config or a policy is wrong; nothing was started.
        UnknownNameError: `approval` names a server that does not exist.
    """

    _made = False

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        name: str | None = None,
        system: str | None = None,
        prices: str | Path | Mapping[str, Any] | None = None,
        approval: Mapping[str, Policies] | None = None,
        quiet: bool = False,
    ) -> None:
        try:
            self.config = load_config(config)
        finally:
            # A traceback that shows the values of variables would show what is in a dict.
            del config
        if prices is not None:
            self.config = self.config.model_copy(update={"prices": read_prices(prices)})
        self.name = name
        self.engine = engine_thread()
        self.observers = Observers()
        self.questions = Questions(self.engine, self.observers)
        variables = read_environment(self.config.folder)
        settings = Settings.from_environ(variables)
        if variables.get("LOG_LEVEL", "").strip():
            show_log(settings.log_level)
        self._chat = McpToolChat.from_config(
            self.config,
            settings=settings,
            in_process=in_process,
            system=checked_system(system),
            approver=self.questions.approve,
            approval=approval,
            can_ask=self.questions.can_ask,
            answer_limits=self.questions.limits,
            elicitation=self.questions.elicit,
            changed=self.observers.changes.notify,
        )
        # The parts do not know the session: one that is forgotten is collected, and its servers end.
        self._runner = ConversationRunner(self._chat, self.observers)
        self.tool_service = ToolService(
            self._chat,
            self.config,
            self.engine,
            self.observers,
            self.questions,
            check_open=self._runner.check_open,
            quiet=quiet,
        )
        self.turn_service = TurnService(
            self._chat, self.config, self.engine, self._runner, self.tool_service, self.questions, self.observers
        )
        self._forgotten = weakref.finalize(self, close_in_background, self.engine, self._chat.close)
        self._forgotten.atexit = False
        self.tool_service.predecessors = replace_earlier(self)
        self._made = True

    if not TYPE_CHECKING:  # A type checker finds such a name by itself, unless there is this method.

        def __setattr__(self, name: str, value: Any) -> None:
            # A subclass has attributes of its own.
            if self._made and type(self) is Session and not name.startswith("_"):
                self._check_attribute(name)
            super().__setattr__(name, value)

    def _check_attribute(self, name: str) -> None:
        if name not in self.__dict__ and not hasattr(type(self), name):
            known = [each for each in dir(type(self)) if getattr(getattr(type(self), each), "fset", None)]
            raise UnknownNameError("attribute of a session", name, known)

    @classmethod
    def from_config(
        cls,
        config: Config | str | Path | Mapping[str, Any],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        name: str | None = None,
        system: str | None = None,
        prices: str | Path | Mapping[str, Any] | None = None,
        approval: Mapping[str, Policies] | None = None,
        quiet: bool = False,
    ) -> Self:
        """A session from a config file or value; it connects on first use, or by `connect`. Takes what `Session` takes."""
        try:
            return cls(config, in_process=in_process, name=name, system=system, prices=prices, approval=approval, quiet=quiet)
        finally:
            del config

    @classmethod
    def demo(cls) -> Self:
        """A session with the bundled servers and the offline planner: no key, no network."""
        return cls(demo_config())

    @blocking
    async def connect(self, *, strict: bool = False, quiet: bool = False) -> Servers:
        """Start all servers side by side and wait until each is ready or has failed; a cell or a terminal shows it meanwhile.

        Args:
            strict: Whether a server that failed is an error.
            quiet: Show nothing.

        Returns:
            How each of them is. A server that failed does not raise unless `strict`; its status says why.

        Raises:
            ConnectError: With `strict`, a server failed; the message has the reason of each.
        """
        return await self.tool_service.connect(strict=strict, quiet=quiet)

    connect_async = awaited(connect)

    @blocking
    async def reconnect(self, name: str) -> ServerStatus:
        """Connect one server anew; the others are not touched.

        Args:
            name: The server's name in the config.

        Raises:
            UnknownNameError: There is no such server.
        """
        return await self._on_engine(self.tool_service.reconnect(name))

    reconnect_async = awaited(reconnect)

    @blocking
    async def close(self) -> None:
        """End all server processes and connections; a turn that is running is stopped. Closing twice is harmless, and so is
        closing in a forked child, which leaves the parent's servers alone; what was said stays readable."""
        if not self.engine.inherited:
            await on_engine(lambda _: self._close())

    close_async = awaited(close)

    async def _close(self) -> None:
        self._forgotten.detach()
        unregister(self)
        try:
            await self._runner.close("it was closed")
        finally:
            # After the turn: what freezes now stays as it is.
            self.observers.closing.notify()
            self.observers.closing.clear()
        await self._chat.close()

    def close_replaced(self, why: str) -> Future[None]:
        """Close in the background, from any thread; use from now on is an error that says why."""
        self._runner.end(why)
        return close_in_background(self.engine, self._close)

    def abandon(self) -> None:
        """Become unusable, in a forked child, without a word to servers, listeners or the engine thread: they are the
        parent's."""
        self._forgotten.detach()
        self.observers.clear()
        self._runner.end(OTHER_PROCESS)
        self._chat.abandon()

    def __reduce__(self) -> Never:
        raise UsageError(
            "A session cannot be pickled or copied: it belongs to the process that made it.",
            hint="Make one where it is used, from the same config: Session.from_config(…).",
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

    def check_open(self) -> None:
        """Do nothing, unless the session cannot be used any more.

        Raises:
            ClosedError: It was closed, or belongs to the process that this one was forked from.
        """
        self.turn_service.check_open()

    @property
    def closed(self) -> bool:
        """Whether it was closed, or a newer session took its place."""
        return self._runner.ended

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._runner.busy

    @property
    def model(self) -> str | None:
        """Name of the model that is used unless a call names another; None where the config has none."""
        return self.turn_service.model

    @model.setter
    def model(self, name: str | None) -> None:
        self.turn_service.model = name

    @property
    def system(self) -> str | None:
        """The system prompt of turns that name neither another one nor a template; None for the model's template."""
        return self.turn_service.system

    @system.setter
    def system(self, text: str | None) -> None:
        self.turn_service.system = text

    @property
    def step_mode(self) -> bool:
        """Whether turns pause before each call of the model; it holds at once, also for a turn that is running."""
        return self.questions.step_mode

    @step_mode.setter
    def step_mode(self, on: bool) -> None:
        self.questions.step_mode = on

    @property
    def selection(self) -> Selection:
        """What the model is shown. Assign to its fields; it holds from the next turn on."""
        return self.tool_service.selection

    @selection.setter
    def selection(self, value: Selection) -> None:
        self.tool_service.selection.assign(value)

    @property
    def servers(self) -> Servers:
        """How each server is, by name. Does not connect."""
        return self.tool_service.servers

    @property
    def tools(self) -> Tools:
        """All tools with their price, by number or name. Connects when needed, and blocks until then; see `tools_async`."""
        return run(self.engine, self._noun(tools_of))

    async def tools_async(self) -> Tools:
        """Return `tools`, awaited."""
        return await wait(self.engine, self._noun(tools_of))

    @property
    def toolsets(self) -> ToolSets:
        """The toolsets of the config by name. Connects when needed, and blocks until then; see `toolsets_async`."""
        return run(self.engine, self._noun(self.tool_service.tool_sets_in))

    async def toolsets_async(self) -> ToolSets:
        """Return `toolsets`, awaited."""
        return await wait(self.engine, self._noun(self.tool_service.tool_sets_in))

    @property
    def manifest(self) -> Manifest:
        """What the model reads about the deferred tools: `str()` is exactly that text. Connects when needed, and blocks until
        then; see `manifest_async`."""
        return run(self.engine, self._noun(manifest_of))

    async def manifest_async(self) -> Manifest:
        """Return `manifest`, awaited."""
        return await wait(self.engine, self._noun(manifest_of))

    @property
    def known_tools(self) -> Tools:
        """The tools that are known at this moment. Does not connect and does not wait."""
        return tools_of(self.tool_service.current_view())

    @property
    def changed_tools(self) -> Mapping[ToolName, ToolChange]:
        """The tools that a server describes in another way than before, with old and new text, unless that was accepted."""
        return self.tool_service.changed_tools

    def accept_change(self, name: str | ToolName) -> None:
        """Take a tool as its server describes it now; with `pin_tools` it is offered again from the next turn on.

        Raises:
            UnknownNameError: There is no such tool, or it has not changed.
        """
        self.tool_service.accept_change(name)

    @property
    def models(self) -> Models:
        """The models of the config."""
        return models_of(self.config, self.model)

    @property
    def clients(self) -> Clients:
        """The clients of the config; of keys only whether they are set."""
        return clients_of(self.config)

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

    @property
    def status(self) -> SessionStatus:
        """The session at a glance. Does not connect."""
        return status_of(self._chat, self.config, self.model, len(self.turns))

    @blocking
    async def search(
        self, query: str, k: int | None = None, server: str | None = None, *, all_tools: bool = False
    ) -> SearchResults:
        """Search the deferred tools as the model does; where none is deferred, all that the selection includes.

        Args:
            query: What is looked for, in words.
            k: How many; None for the selection's limit.
            server: Only tools of this server.
            all_tools: Search the loaded tools too.

        Returns:
            The hits, best first; each explains itself, and `why_not(name)` explains any other tool.

        Raises:
            UsageError: `k` is less than 1.
        """
        return await self._on_engine(self.tool_service.search(query, k, server, all_tools=all_tools))

    search_async = awaited(search)

    @blocking
    async def call_tool(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call a tool by hand. Selection and approval policy do not apply: it is the person who asks.

        Args:
            name: Any name that the catalog resolves, such as `math__add` or `math:add`.
            arguments: The tool's arguments.

        Returns:
            The call with its result; its status is `error` where the tool itself reports one.

        Raises:
            UnknownNameError: There is no such tool.
            ServerError: The server failed.
        """
        return await self._on_engine(self.tool_service.call(name, arguments))

    call_tool_async = awaited(call_tool)

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
        return self.tool_service.save_tool_set(name, tool_set, overwrite=overwrite)

    @blocking
    async def evaluate(
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
        work = self.tool_service.evaluate(cases, strategies, k=k, executor=executor, progress=progress)
        return await self._on_engine(work)

    evaluate_async = awaited(evaluate)

    @blocking
    async def lint(self) -> Lint:
        """Look the tools that the selection lets through over for what makes them hard to find, or dear.

        Returns:
            A finding for each thing that the people who write the servers should mend.
        """
        return await self._on_engine(self.tool_service.lint())

    lint_async = awaited(lint)

    @blocking
    @spelled_out(ChatOptions)
    async def chat(self, prompt: Prompt, *, images: Any = None, echo: Echo = "output", **options: Unpack[ChatOptions]) -> Turn:
        """Say something, and go on with the conversation.

        Args:
            prompt: The text, or messages to add.
            images: One image or several, for models that can see: bytes, the path of a file, an address (`https://…`), which
                the provider fetches, or an object with `savefig` or `save`, such as a figure of matplotlib or an image of
                Pillow.
            echo: What a notebook shows live: `none`, `text` (the answer alone), `output` (the usual display), or `all`.
            model: Name of a model of the config, or a model object; None for the session's.
            tool_set: Name of a toolset for this turn; None for the selection's.
            system: The system prompt for this turn; None for the session's, or the template's.
            template: File in `prompt-templates/` for this turn; None for the model's.
            discovery: Whether deferred tools are hidden behind the search tool in this turn; None for the selection's.
            max_steps: Calls of the model at most; None for the config's limit.
            stream: False asks the model for each answer in one piece; otherwise its text is shown as it arrives, where the
                provider streams.
            variables: More variables for the template.
            meta: Handed through to the servers with each call.
            step: Whether to pause before each model call, or what to await there, see `BeforeModelCall`; None for the session's
                `step_mode`.
            options: These, and those of `ModelOptions`, such as `temperature`, which go to the model.

        Returns:
            The turn. When the model or a limit failed it, its status is `failed` and `raise_for_status` raises; when it was
            stopped by `stop` or in a panel, its status is `stopped`.

        Raises:
            UsageError: An option or a name does not exist; nothing was sent.
            KeyboardInterrupt: It was interrupted; the turn is in `turns`, marked as stopped, and the conversation is valid.
        """
        return await self.turn_service.chat(with_images(prompt, images), options, echo)

    chat_async = awaited(chat)

    @spelled_out(ChatOptions)
    async def stream(self, prompt: Prompt, *, images: Any = None, **options: Unpack[ChatOptions]) -> AsyncIterator[Event]:
        """Say something, and follow the turn event by event, on the loop of the caller.

        Args:
            prompt: The text, or messages to add.
            images: As of `chat`.
            options: As of `chat`.

        Yields:
            The events of the turn; the last one is `TurnFinished`. Leaving the loop early stops the turn.

        Raises:
            UsageError: A name does not exist, or another turn is running; nothing was sent.
        """
        async with aclosing(self.turn_service.stream(with_images(prompt, images), options)) as events:
            async for event in events:
                yield event

    @spelled_out(ChatOptions)
    def submit(self, prompt: Prompt, *, images: Any = None, **options: Unpack[ChatOptions]) -> Future[Turn]:
        """Start a turn without a cell that waits for it; `observe` follows it.

        What it asks the person waits in `questions`; `input()` is not used.

        Args:
            prompt: The text, or messages to add.
            images: As of `chat`.
            options: As of `chat`.

        Returns:
            Becomes the turn; cancelling it stops the turn.
        """
        return self._kept(self.turn_service.submit(with_images(prompt, images), options))

    def stop(self) -> None:
        """Stop the running turn, from any thread: what it has stays in `turns`, marked as stopped.

        Returns when it has ended, after half a second at most; on the engine's thread at once. Harmless when nothing runs.
        """
        self.turn_service.stop()

    async def stop_async(self) -> None:
        """Stop the running turn, as `stop` does, and await its end."""
        await self.engine.wait(self._runner.stop())

    def undo(self) -> Turn | None:
        """Take back the last turn of the conversation, with what it has discovered.

        Returns:
            The turn; None where there is none.

        Raises:
            UsageError: A turn is running.
        """
        return self._runner.undo()

    @blocking
    @spelled_out(ChatOptions)
    async def rerun(
        self, index: int = -1, prompt: str | None = None, *, echo: Echo = "output", **options: Unpack[ChatOptions]
    ) -> Turn:
        """Go back to before a turn, and ask again; that turn and those after it leave the conversation.

        Args:
            index: The turn's place in `turns`.
            prompt: Another text in the place of what was asked, whose images stay; None asks the same.
            echo: As of `chat`.
            options: As of `chat`; what is not given is the session's present choice.

        Raises:
            UsageError: There is no such turn, an option or a name does not exist, or a turn is running; the conversation is
                as before.
        """
        return await self.turn_service.rerun(index, prompt, options, echo)

    rerun_async = awaited(rerun)

    @spelled_out(ChatOptions)
    def submit_rerun(self, index: int = -1, prompt: str | None = None, **options: Unpack[ChatOptions]) -> Future[Turn]:
        """`rerun` as `submit` does it."""
        return self._kept(self.turn_service.submit_rerun(index, prompt, options))

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
        """Have the model fill a pydantic model. No tools are offered; an answer that does not fit is told back twice.

        Args:
            prompt: What to take it from, and what to look for, or messages.
            schema: A class of pydantic; its docstring and the descriptions of its fields are read by the model.
            model: Name of a model of the config, or a model object; None for the session's.
            images: As of `chat`.
            options: As of `chat`, those that go to the model, such as `temperature`.
            conversation: Whether to go on with the conversation: the model reads what was said, and the turns are kept in it.
                Otherwise the extraction stands by itself, and the conversation and its stats stay as they are.

        Returns:
            The instance, validated.

        Raises:
            ExtractionError: Nothing that the model said fits; `text` has the last of it.
            UsageError: `schema` is not a pydantic model, an option or a name does not exist, or the model is the offline
                planner, which cannot extract.
            ProviderError: The model failed.
        """
        asked = with_images(prompt, images)
        return await on_engine(lambda _: extract(self.turn_service, asked, schema, model, conversation, options))

    extract_async = awaited(extract)

    @blocking
    async def preview(self, template: str | None = None, variables: Mapping[str, Any] | None = None) -> SystemPrompt:
        """The system prompt that the next turn would send. Connects when needed, asks no model.

        Args:
            template: Name of a template; None for the session's own system prompt, or the model's template.
            variables: More variables for it.

        Raises:
            TemplateError: There is no such template, or it fails.
        """
        return await self._on_engine(self.turn_service.preview(template, variables))

    preview_async = awaited(preview)

    def new_conversation(self) -> None:
        """Start another conversation: nothing said, nothing discovered, nothing approved. The selection stays."""
        self.turn_service.new_conversation()

    @property
    def turns(self) -> list[Turn]:
        """The turns of the present conversation, oldest first; one that is running is the last."""
        return self._runner.turns

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation as messages; valid at every moment."""
        return self._runner.messages

    @property
    def stats(self) -> ChatStats:
        """What the present conversation took."""
        return self._runner.stats

    @property
    def conversation(self) -> Conversation:
        """The turns of the present conversation, as they are now."""
        return self._runner.conversation

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

    def doctor(self) -> Diagnosis:
        """Look at what a session needs, and say of each thing that does not work what to do about it.

        Returns:
            A row for each thing: Python, packages, commands, config, keys, servers, templates. Nothing is started or sent.
        """
        from casual_mcp_nb.notebook.doctor import diagnose

        notices = (*self.approval_problems, *self.exclusion_problems)
        return diagnose(self.config, self.servers, self.templates, notices)

    def explore(self) -> Explorer:
        """A widget with all servers and tools: what each costs, what the model sees, the manifest, the budget, the search.

        Everything that is done in it can be done in Python, with `selection`, `reconnect`, `search`, `call_tool` and
        `save_tool_set`.
        """
        from casual_mcp_nb.widgets.explorer import Explorer

        return Explorer(self)

    @spelled_out(ChatOptions)
    def panel(self, **options: Unpack[ChatOptions]) -> Panel:
        """A panel to chat in: message box, live transcript, approvals, step mode, tokens.

        Args:
            options: For the turns that begin in it, as of `chat`.

        Returns:
            A widget; as the last value of a cell it shows itself.
        """
        from casual_mcp_nb.widgets.panel import Panel

        return Panel(self, **options)

    def observe(self, listener: Callable[[Turn, Event], object]) -> Callable[[], None]:
        """Follow the events of every turn, whoever started it.

        Args:
            listener: Called with the turn and the event, after the trace has it, on the engine's thread: it must be quick.
                When it raises, that goes to the log and the turn goes on.

        Returns:
            A function that ends it.
        """
        return self.observers.events.add(listener)

    def on_change(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Be told when something else than the selection changed: a server, the tools, the turns, the model, a question.

        Args:
            listener: Called without arguments, on the thread that made the change: it must be quick. When it raises, that
                goes to the log.

        Returns:
            A function that ends it.
        """
        return self.observers.changes.add(listener)

    def on_close(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Be told, once, when the session closes, also where a newer one takes its place.

        Args:
            listener: Called without arguments, on the thread that closes it.

        Returns:
            A function that ends it.
        """
        return self.observers.closing.add(listener)

    def __repr__(self) -> str:
        return f"<Session: {len(self.servers)} servers, model {self.model}, {len(self.turns)} turns>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.status._repr_mimebundle_(include, exclude)

    async def _on_engine(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the engine do what may have to start servers first, which is shown."""
        with self.tool_service.start_shown():
            return await on_engine(lambda _: work)

    async def _noun(self, of: Callable[[ToolView], T]) -> T:
        return of(await self._on_engine(self.tool_service.view()))

    def _kept(self, started: Future[Turn]) -> Future[Turn]:
        """The session is not collected before a turn of it has ended, though nobody else holds it."""
        started.add_done_callback(lambda _: self and None)
        return started
