"""A session's tools, and methods to call, add, load and group them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, overload

from pydantic import ValidationError

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Config, EmbeddingConfig, ToolSetConfig
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.displayable import Namespace
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.search import Explanation, SearchResults
from casual_mcp_nb.base.status import Manifest, Tools, ToolSets
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import Permission, ToolChange, ToolName, ToolSpec, full_names
from casual_mcp_nb.conversation.audit import Caller
from casual_mcp_nb.conversation.direct_calls import DirectCall, DirectCalls, RecordedCalls
from casual_mcp_nb.conversation.event import SYNTHETIC, CallStatus, TextEdited
from casual_mcp_nb.conversation.step import ToolCall, unloaded
from casual_mcp_nb.conversation.usage import usage_of
from casual_mcp_nb.discovery.synthetic import SyntheticTool
from casual_mcp_nb.discovery.toolsets import filter_tools, resolve_tool_set
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.direct_call import CallOutsideATurn
from casual_mcp_nb.engine.dispatch import mocked_result
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.nesting import NestedCall, Nesting
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.engine.tools import EmbeddingLike
from casual_mcp_nb.engine.turn_fields import ToolFields, spelled_out
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief, closest, did_you_mean, shown
from casual_mcp_nb.notebook.app import App
from casual_mcp_nb.notebook.apps import Apps, SessionApps
from casual_mcp_nb.notebook.blocking import awaited, blocking
from casual_mcp_nb.notebook.caller import NotebookRunner
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.functions import ServerFunctions, ToolFunctions
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.saving import save
from casual_mcp_nb.notebook.search_memory import SessionSearchMemory
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.status import estimated_budget, manifest_of, tool_sets_of, tools_of
from casual_mcp_nb.notebook.usage import SessionUsage
from casual_mcp_nb.own_tools.toolbox import Mock

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.search_tools import ToolSearchIndex


class ProgramCalls:
    """The calls of a program that a model wrote, while it runs.

    They need approval as the model's own calls do. While the program runs, every call of the
    process is one of them, even if it is not in the program's context: threads that the program
    starts are not.

    Attributes:
        statuses: How many of the calls have ended in each way.
    """

    _context: ClassVar[ContextVar[ProgramCalls | None]] = ContextVar(
        "casual_mcp_nb_program", default=None
    )
    _running: ClassVar[list[ProgramCalls]] = []

    def __init__(self) -> None:
        self.statuses: Counter[CallStatus] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the calls that the body makes as those of the program."""
        token = self._context.set(self)
        self._running.append(self)
        try:
            yield
        finally:
            self._running.remove(self)
            self._context.reset(token)

    @classmethod
    def now(cls) -> ProgramCalls | None:
        """Find the program to which a call belongs that is made now. None if it is the person's."""
        program = cls._context.get()
        if program is None and cls._running:
            program = cls._running[-1]
        return program


@dataclass(eq=False, repr=False)
class SessionTools(Namespace, Sequence[ToolSpec]):
    """A session's tools, by number or by any name that the catalog resolves: `session.tools`.

    Attributes:
        recorded: The last calls made with `call`.
    """

    _chat: McpToolChat
    _config: Config
    _engine: EngineThread
    _observers: Observers
    _starter: ServerStarter
    _questions: Questions
    _runner: ConversationRunner
    _run_function: NotebookRunner
    _apps: SessionApps
    recorded: RecordedCalls = field(default_factory=RecordedCalls, init=False)

    def __post_init__(self) -> None:
        learn = self._config.tool_discovery.learn
        self._memory = SessionSearchMemory(self._chat, self._runner.saver, on=learn)
        self._apps.recorded = self.recorded
        self._complete = True

    @property
    def now(self) -> Tools:
        """The tools known so far, with their modes. Does not connect: `session.connect()` does."""
        return tools_of(self._chat.current_view(), self._chat.server_manager.waiting)

    @overload
    def __getitem__(self, key: int | str) -> ToolSpec: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[ToolSpec, ...]: ...
    def __getitem__(self, key: int | str | slice) -> ToolSpec | tuple[ToolSpec, ...]:
        return self.now[key]

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)

    def of_server(self, name: str) -> Tools:
        """Select one server's tools."""
        return self.now.of_server(name)

    if not TYPE_CHECKING:  # Type checkers only report wrong names if they do not see this method.

        def __getattr__(self, name: str) -> ServerFunctions:
            servers: list[str] = []
            names: list[str] = []
            if not name.startswith("_"):
                servers = dir(self.functions)
                names = [*object.__dir__(self), *servers]
            if name not in servers:
                hint = did_you_mean(closest(name, names), servers)
                raise AttributeError(
                    f"session.tools has neither a method nor a server {shown(name)}. {hint}",
                    name=name,
                    obj=self,
                )
            return getattr(self.functions, name)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *dir(self.functions)]

    @property
    def functions(self) -> Any:
        """The tools as typed Python functions, by server.

        `session.tools.functions.time` is `session.tools.time`. For type checkers it is `Any`:
        annotate a variable with the class `Tools` from a stub file, see `stubs`.
        """
        return ToolFunctions(self, self._chat.server_manager.names, lambda: self._runner.turns)

    def stubs(self, path: str | Path, *, overwrite: bool = True) -> Path:
        """Write all known tools' signatures to a stub file, for editors and type checkers.

        Args:
            path: The file, such as `tools.pyi`.
            overwrite: Replace an existing file.

        Returns:
            The path.

        Raises:
            UsageError: The file cannot be written.

        Examples:
            if TYPE_CHECKING:
                from tools import Tools
            tools: "Tools" = session.tools.functions
        """
        path = Path(path)
        write_text(
            path,
            self.functions._stub(),
            overwrite=overwrite,
            hint="Give overwrite=True to replace it.",
        )
        return path

    @blocking
    async def call(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call a tool yourself.

        Selection and approval policy do not apply: the model is not involved.

        Args:
            name: Any name that the catalog resolves, such as `math__add` or `math:add`.
            arguments: The tool's arguments.

        Returns:
            The call with its result. Its status is `error` if the tool itself reports one.

        Raises:
            UnknownNameError: There is no such tool.
            ServerError: The server failed.
        """
        work = self.call_recorded(name, arguments, program=ProgramCalls.now())
        recorded = await self._starter.run_shown(work)
        return recorded.call

    call_async = awaited(call)

    @blocking
    async def app(self, name: str, /, **arguments: Any) -> App:
        """Call a tool yourself, see `call`, and open the app that its server has for it (MCP Apps).

        The app shows itself as a cell's last value. Its page runs in a frame that reaches nothing
        of the notebook, and its own calls of tools need your approval as a model's calls do.

        Args:
            name: Any name that the catalog resolves, such as `budget:get-budget-data`.
            arguments: The tool's arguments.

        Returns:
            The app: its `value` is what you did in it, as far as it reports that.

        Raises:
            UnknownNameError: There is no such tool.
            UsageError: The tool has no app.
            ServerError: The server failed.
        """
        program = ProgramCalls.now()
        return await self._starter.run_shown(self._open_app(name, arguments, program))

    app_async = awaited(app)

    async def _open_app(
        self, name: str, arguments: Mapping[str, Any], program: ProgramCalls | None
    ) -> App:
        tool = self._apps.tool_with_app((await self._starter.view()).catalog.resolve(name))
        called = await self.call_recorded(str(tool.tool_name), arguments, program=program)
        return self._apps.open(tool, called.call, called.result)

    @property
    def apps(self) -> Apps:
        """The last apps of this session, of your calls and of a model's, the newest last."""
        return self._apps.all

    async def call_recorded(
        self, name: str, arguments: Mapping[str, Any], *, program: ProgramCalls | None = None
    ) -> DirectCall:
        """Call a tool, see `call`, and record it. A coroutine on the engine's loop.

        Args:
            name: The tool, in any form.
            arguments: Its arguments.
            program: The program that makes the call, which then needs approval. None if the person
                makes it.
        """
        catalog = (await self._starter.view()).catalog

        async def run(nested: NestedCall) -> ToolCall:
            tool = catalog.resolve(nested.name)
            recorded = await self._call(tool, nested.arguments, nested.depth, run, program)
            return recorded.call

        return await self._call(catalog.resolve(name), arguments, 0, run, program)

    async def _call(
        self,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        depth: int,
        run: Callable[[NestedCall], Awaitable[ToolCall]],
        program: ProgramCalls | None,
    ) -> DirectCall:
        """Make a call of the person, or of a program.

        Args:
            tool: The tool.
            arguments: Its arguments.
            depth: How many calls it is nested in.
            run: Makes a call that is nested in it.
            program: The program, or None.
        """
        permission = None
        if program is None:
            permission = Permission("direct", definition=tool.digest)
        call = CallOutsideATurn(tool, arguments, permission)
        try:
            async with self._questions.prompt_on(), Nesting("", self._chat.context, run, depth):
                if program is None:
                    result = await call.run(self._calling(tool, arguments, depth))
                else:
                    stub = self._chat.mocks.stub_for(tool)
                    await call.allow(self._permission(tool, arguments, mocked=bool(stub)))
                    result = await call.run(self._calling_for_program(tool, arguments, stub))
        finally:
            caller: Caller = "model"
            if depth:
                caller = "tool"
            elif program is None:
                caller = "person"
            recorded = call.record(self.recorded, self._chat.audit, caller, "person")
            if program is not None:
                program.statuses[call.call.status] += 1
        return replace(recorded, result=result)

    async def _calling(
        self, tool: ToolSpec, arguments: Mapping[str, Any], depth: int
    ) -> ToolResult:
        """Call a tool for the person. A call of theirs may become a task, a nested one may not."""
        on_task = None
        if not depth and self._runner.tasks is not None:
            on_task = self._runner.tasks.keep_by_hand
        return await self._chat.server_manager.call(tool, arguments, on_task=on_task)

    async def _calling_for_program(
        self, tool: ToolSpec, arguments: Mapping[str, Any], stub: Sequence[Any]
    ) -> ToolResult:
        """Call a tool for a program, or have its stub answer."""
        if stub:
            mocks, tape = self._chat.mocks, self._chat.tape
            return await mocked_result(mocks, stub[0], tool, arguments, tape)
        return await self._chat.server_manager.call(tool, arguments)

    async def _permission(
        self, tool: ToolSpec, arguments: Mapping[str, Any], *, mocked: bool
    ) -> Permission:
        """Decide about a program's call as about a model's: the selection and the policy apply.

        A stub runs nothing, so nobody is asked.
        """
        view = self._chat.current_view()
        if not view.includes(tool):
            return Permission(
                "policy",
                False,
                reason="This tool is off: the selection excludes it.",
                definition=tool.digest,
            )
        if mocked:
            return Permission("mock", definition=tool.digest)
        return await self._chat.consent.permission(tool, dict(arguments), ignore, ignore)

    @property
    def calls(self) -> DirectCalls:
        """The last calls that you made yourself, here or in the explorer, the newest first."""
        return self.recorded.list()

    @spelled_out(ToolFields)
    def add(self, target: Any, **options: Unpack[ToolFields]) -> ToolSpec:
        """Offer a function as a tool, or an object with `name`, `description`, `input_schema` and
        `execute`.

        A function's schema comes from its type hints and docstring. A tool with the same name is
        replaced, so that the cell can be run again. In a blocking call, the function runs on the
        thread that waits. While a cell awaits, it runs on a worker thread. An async function runs
        on the caller's own loop. An exception reaches the model as text.

        Args:
            target: The function, method or object. A class is instantiated.
            options: See `ToolFields`.

        Returns:
            The tool definition for models.

        Raises:
            UsageError: It cannot be a tool. The message has the reason.
        """
        self._run_function.note_home()
        self._runner.check_open()
        spec = self._chat.add_tool(target, **options)
        self._changed()
        return spec

    def remove(self, name: str) -> None:
        """Remove a tool that `session.tool` or `add` added.

        Args:
            name: Its name.

        Raises:
            UnknownNameError: There is no such tool.
        """
        self._chat.remove_tool(name)
        self._changed()

    def add_synthetic(self, tool: SyntheticTool) -> None:
        """Offer a tool that no server runs, with a definition that you write.

        It has `name`, `definition` (`name`, `description`, `parameters`) and an async
        `execute(args)`, which returns a `SyntheticToolResult(content, newly_loaded_tools)`. So it
        can load deferred tools. It runs on the engine's loop: use `asyncio.to_thread` for slow
        work. A synthetic tool with the same name is replaced. A content that begins with `Error:`
        fails the call. So does an exception, and you see where.

        Args:
            tool: The tool.

        Raises:
            UsageError: It is not a synthetic tool, or its name is a built-in tool's or a server
                tool's.
        """
        self._runner.check_open()
        self._chat.add_synthetic_tool(tool)
        self._observers.changes.notify()

    def remove_synthetic(self, name: str) -> None:
        """Remove a tool that `add_synthetic` added.

        Args:
            name: Its name.

        Raises:
            UnknownNameError: There is no such tool.
        """
        self._chat.remove_synthetic_tool(name)
        self._observers.changes.notify()

    def mock(self, stubs: Mapping[str, Any]) -> Mock:
        """Let stubs answer in place of tools, from the model's next call on.

        No tool is called, so nobody has to approve. Stubs also answer the calls of apps, and those
        of a cell that a model wrote, in its `run`. Your own calls (`call`) still reach the tool.
        Every display marks calls that a stub answered.

        Args:
            stubs: By tool (`server:tool`, or another form), by `server:*`, or by `*` for all: a
                fixed result, a function that gets the arguments by name, or `...` for a value that
                fits the tool's output schema.

        Returns:
            The mock: a context manager, or call its `stop`. If two mocks cover a tool, the later
            one counts.

        Raises:
            UnknownNameError: There is no such server or tool.
        """
        self._runner.check_open()
        self._chat.names.check_stubs(stubs)
        return self._chat.mocks.add(stubs)

    @property
    def context(self) -> Mapping[str, Any]:
        """Values for your functions' parameters, in all turns: by name, or as `Inject` marks them.

        No model or record gets them. The values that `chat` is given are added for its turn.
        `session.conversations.new` clears them.
        """
        return self._chat.context

    @context.setter
    def context(self, values: Mapping[str, Any] | None) -> None:
        toolbox = self._chat.toolbox
        before = toolbox.tools_version
        self._chat.context = TurnOptions(context=values).given.get("context") or {}
        if toolbox.tools_version != before:
            self._changed()

    def _changed(self) -> None:
        """Update everything after a notebook tool was added or removed."""
        # A running turn reads what is updated, and the cell's next line may do so too.
        future, _ = self._engine.submit(self._chat.tools.update_known())
        if not self._engine.is_current:
            future.result()

    def load(self, name: str) -> None:
        """Load a deferred tool from the next turn on, as if the model had found it.

        Its server stays deferred. The tool is added to `selection.always_loaded`, so it is loaded
        in other conversations too. `unload` ends that.

        Args:
            name: The tool, in any form, such as `server:tool`.

        Raises:
            UnknownNameError: There is no such tool.
            UsageError: The toolset or the selection excludes it.
        """
        self._runner.check_open()
        chat, selection = self._chat, self._chat.selection
        tool = chat.catalog.get(name)
        if tool is None and ":" in name:
            # A server that has not listed its tools may have it.
            chat.names.check_tool(name)
        elif tool is None:
            tool = chat.catalog.resolve(name)
        entry = name
        if tool is not None:
            entry = str(tool.tool_name)
            if self._is_excluded(tool):
                raise UsageError(
                    f"Tool {shown(entry)} is excluded, so it cannot be loaded.",
                    hint="Include it first: see session.selection.tool_set, servers and tools_off.",
                )
        if entry not in selection.always_loaded:
            selection.always_loaded = (*selection.always_loaded, entry)

    def _is_excluded(self, tool: ToolSpec) -> bool:
        """Check whether the selection excludes a tool: by server, by tool or by toolset."""
        selection = self._chat.selection
        if selection.servers.get(tool.server) == "off":
            return True
        if any(self._chat.catalog.get(name) == tool for name in selection.tools_off):
            return True
        tool_set = resolve_tool_set(selection.tool_set, self._chat.tool_sets)
        return not filter_tools([tool], tool_set)

    def unload(self, name: str) -> None:
        """Unload a deferred tool that this conversation, or `load`, has loaded.

        The model can find it again. Results of searches that loaded it are edited, so that the
        model reads that you unloaded it.

        Args:
            name: The tool, in any form, such as `server:tool`.

        Raises:
            UnknownNameError: There is no such tool.
            UsageError: The conversation has not loaded it, or a turn is running.
        """
        self._runner.check_free()
        tool = self._chat.catalog.resolve(name)
        loaded, selection = self._runner.discovered, self._chat.selection
        name = str(tool.tool_name)
        if name in selection.always_loaded:
            others = [other for other in selection.always_loaded if other != name]
            selection.always_loaded = tuple(others)
        elif tool not in loaded:
            names = ", ".join(full_names(loaded))
            hint = "Nothing was loaded. To exclude a tool, use selection.tools_off."
            if names:
                hint = f"Loaded: {names}."
            raise UsageError(
                f"Tool {shown(str(tool.tool_name))} was not loaded by a search in this"
                " conversation.",
                hint=hint,
            )
        for turn in self._runner.turns:
            for step in turn.steps:
                for call in step.tool_calls:
                    text = unloaded(call.result, tool.wire_name)
                    if call.tool.server == SYNTHETIC and text != call.result:
                        turn.trace.append(
                            TextEdited(step.index, call.id, text, call.result, turn.trace.last_at)
                        )
        save(self._runner.saver.current, self._runner.turns)
        self._observers.changes.notify()

    @property
    def discovered(self) -> tuple[ToolSpec, ...]:
        """The deferred tools that searching or browsing has loaded in this conversation, in order."""
        return tuple(self._runner.discovered)

    @property
    def changed(self) -> Mapping[ToolName, ToolChange]:
        """The tools whose definition a server has changed, and the changes.

        Those that were accepted are not among them.
        """
        return self._chat.changed_tools

    @property
    def embedding(self) -> EmbeddingLike:
        """The embedding model by which searches compare meanings too. None to search by words only.

        Assign a value as for `tool_discovery.embedding` in a config, such as `{"local": "folder"}`,
        or a function that takes a list of texts and returns an array with a row for each. The texts
        are tool names and descriptions, and search queries.
        """
        return self._chat.tools.embedding

    @embedding.setter
    def embedding(self, model: EmbeddingLike | Mapping[str, Any]) -> None:
        self._runner.check_open()
        if isinstance(model, Mapping):
            try:
                model = EmbeddingConfig.model_validate(dict(model))
            except ValidationError as error:
                problems = error.errors(
                    include_url=False, include_context=False, include_input=False
                )
                raise UsageError(
                    f"The embedding cannot be {brief(dict(model))}: {problems[0]['msg']}."
                ) from None
        elif model is not None and not isinstance(model, EmbeddingConfig) and not callable(model):
            raise UsageError(
                f"The embedding cannot be {brief(model)}.",
                hint="Give a mapping, a function, or None.",
            )
        if isinstance(model, EmbeddingConfig):
            if model.client is not None and model.client not in self._config.clients:
                raise UnknownNameError("client", model.client, self._config.clients)
            if model.local is not None:
                from casual_mcp_nb.discovery.meaning import local_folder

                local_folder(model, self._config.folder)
        tools, before = self._chat.tools, self._chat.tools.meaning
        tools.use_embedding(model, self._chat.models, self._observers.changes.notify)
        if before is not None:
            self._engine.run(before.close())
        self._observers.changes.notify()

    @property
    def memory(self) -> SessionSearchMemory:
        """What searches learn from the saved conversations."""
        return self._memory

    @property
    def manifest(self) -> Manifest:
        """The manifest with the deferred tools known so far. `str()` of it is what the model reads."""
        return manifest_of(self._chat.current_view(), self._chat.server_manager.waiting)

    @property
    def budget(self) -> Budget:
        """The estimated cost of one turn and ten turns, now and if every tool were loaded.

        It counts the tools known so far, and does not connect.
        """
        return estimated_budget(self._chat, self._chat.current_view())

    def usage(self, conversation: str = "all") -> SessionUsage:
        """Count how the tools were really used, and what those cost that never were.

        Args:
            conversation: `all` saved conversations, `this` one, or the id of a saved one, or how it
                begins. A session that saves nothing has only this one.

        Returns:
            A row for each tool, the most called first. Its `defer()` and `turn_off()` show what a
            turn would cost without the others.

        Raises:
            UnknownNameError: There is no conversation with that id.
        """
        names = {tool.wire_name: tool.tool_name for tool in self._chat.catalog}
        store = self._runner.saver.store
        if conversation == "this" or (conversation == "all" and store is None):
            usage = usage_of(self._runner.turns, names)
        else:
            id = None if conversation == "all" else conversation
            usage = self._runner.saver.required.usage(id, names)
        return SessionUsage(**vars(usage), _chat=self._chat)

    @property
    def sets(self) -> ToolSets:
        """The config's toolsets by name, and how many known tools each includes."""
        return tool_sets_of(self._chat, self._chat.current_view())

    def save_set(
        self, name: str, tool_set: ToolSetConfig | Mapping[str, Any], *, overwrite: bool = False
    ) -> Path:
        """Save a toolset to the config file, without changing anything else in it.

        The session can then use it.

        Args:
            name: The toolset's name.
            tool_set: A toolset, or a mapping with `servers` and perhaps `description`.
            overwrite: Replace an existing toolset with that name.

        Returns:
            The file, which is changed completely or not at all.

        Raises:
            UsageError: The config was not read from a file, or the name is already used.
            ToolSetError: It is not a toolset, or names servers or tools that do not exist.
            ConfigError: The file cannot be read or written, or would not be valid with this
                toolset.
        """
        from casual_mcp_nb.config.saving import save_tool_set

        resolved = resolve_tool_set(tool_set, {})
        if self._config.path is None or resolved is None:
            raise UsageError(
                "This config was not read from a file, so there is nowhere to save a toolset.",
                hint=(
                    "Start the session from a file, Session.from_config('casual_mcp_config.json'),"
                    " or use the toolset without saving it: session.selection.tool_set ="
                    " ToolSetConfig(servers=…)."
                ),
            )
        self._chat.names.check_tool_set(resolved)
        path = save_tool_set(
            self._config.path, name, resolved, self._chat.server_manager.names, overwrite=overwrite
        )
        self._chat.tool_sets[name] = resolved
        self._observers.changes.notify()
        return path

    async def find(
        self, query: str, k: int | None, server: str | None, *, all_tools: bool
    ) -> SearchResults:
        """Search the tools as the model does, see `Session.search`."""
        if k is not None and k < 1:
            raise UsageError(
                f"k cannot be {k}.", hint="It must be 1 or more, or None for the selection's limit."
            )
        index = await self.searchable(all_tools, query)
        meaning = self._chat.tools.meaning
        if k is None:
            k = self._chat.selection.max_search_results
        results = index.find(query, k, server)
        note = ""
        if meaning is not None and "meaning" not in results.ranked_by:
            note = meaning.state
        why_not = partial(_why_not, results, index, self._chat.current_view())
        return replace(results, note=note, why_not=why_not)

    async def searchable(self, whole: bool = True, query: str = "") -> ToolSearchIndex:
        """Build the search index over the deferred tools, or over all that the selection includes.

        Args:
            whole: Include all tools, as if none is deferred.
            query: A query to prepare for: with the embedding model, if there is one, and with what
                searches have learned.

        Raises:
            UnknownNameError: The selection's toolset no longer exists.
        """
        view = await self._starter.view()
        resolve_tool_set(view.selection.tool_set, self._chat.tool_sets)
        past = await self._chat.state.past_questions() if query else ()
        return await view.searchable(whole or not view.deferred, query, past)


def _why_not(
    results: SearchResults, index: ToolSearchIndex, view: ToolView, name: str
) -> Explanation:
    """Explain any tool's rank, even if the search skipped it."""
    tool = view.catalog.resolve(name)
    if any(searched.tool_name == tool.tool_name for searched in index.tools):
        return results.why_not(str(tool.tool_name))
    skipped = "The selection leaves it out, so search skips it."
    if tool.wire_name in view.loaded_by_name:
        skipped = "Already loaded, so search skips it."
    return Explanation(tool, results.query, 0.0, None, results.cut, (), (), skipped=skipped)
