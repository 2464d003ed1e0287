"""Cells that a model writes: programs that call the tools' typed functions.

The person reads a cell before anything in it runs.
"""

from __future__ import annotations

import ast
import asyncio
import difflib
import itertools
import linecache
import re
import reprlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import CallStatus
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.written_program import ProgramState, WrittenCall, WrittenProgram
from casual_mcp_nb.discovery.manifest import generate_manifest
from casual_mcp_nb.discovery.signatures import TypeWriter, signature_of
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ExtractionError, UsageError, shown
from casual_mcp_nb.notebook.blocking import awaited, blocking
from casual_mcp_nb.notebook.caller import shell
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.program_text import read_program
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.tools import ProgramCalls, SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService
from casual_mcp_nb.notebook.warming import warm_up, warmed_up
from casual_mcp_nb.providers.builtin.offline import OfflineClient

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.providers.chat_model import ChatModel

CORRECTIONS = 2
"""How often the model may correct an answer that has no valid program."""
SEARCHES = 4
"""How often the model may search for further functions before it writes."""
MAX_FOLLOWED = 8
"""How many inserted cells are followed."""
HITS = 8
MAX_CODE = 50_000
MAX_ERROR = 2_000
MAX_HEAD = 600
MAX_SIGNATURE = 6_000
MAX_MANIFEST = 1_500
"""How many tokens the manifest in the instructions may take."""

_FENCED = re.compile(r"```(?P<language>\w*)[^\n]*\n(?P<code>.*?)```", re.DOTALL)
_SEARCH = re.compile(r"^\s*SEARCH:\s*(.+)$", re.MULTILINE)
_SYSTEM = """You write one cell of a Jupyter notebook: a Python program that does what the user wants.

MCP tools are functions that return plain Python values: a TypedDict is a dict. Call them by keyword, as their signatures say:
`{variable}.tools.SERVER.TOOL(...)`. `{variable}` exists already. Call only functions whose signature you have been shown.
If you need another one, answer with a single line, `SEARCH: ` and words that describe it, and you are shown what matches.

Otherwise answer with one fenced block of Python and nothing else. No `await`. Keep results in variables with clear names, and
end with an expression that shows a short summary. These servers and tools can be found:
<manifest>
{manifest}
</manifest>"""
_MATCHES = "Functions that match:\n{functions}"
_VARIABLES = "Variables of the notebook:\n{heads}"
_WRONG = (
    "This is not a usable answer: {problem}\nAnswer again, with one fenced block of Python only."
)
_EDITED = "The user has edited the cell. It is now:\n```python\n{code}```"
_FAILED = "{problem}\nAnswer with the whole corrected cell, as one fenced block of Python."
_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = 3
_REPR.maxdict, _REPR.maxstring, _REPR.maxlevel = 8, 60, 3
_PLAIN = (str, bytes, int, float, bool, list, tuple, dict, set, frozenset, type(None))
_numbers = itertools.count(1)


class Reading(NamedTuple):
    """What the text of a program shows, see the properties of `WrittenCell`."""

    calls: tuple[WrittenCall, ...]
    remarks: tuple[tuple[int, str], ...]
    may_call_any_tool: bool


class WrittenCell(Displayable):
    """A cell that a model wrote, as its `code`. Nothing in it has run unless `state` says so.

    Attributes:
        task: What the person wanted.
        turns: The turns in which it was written: all that the model read, and what that cost.
        before: The cell that this one corrects, or None.
        difference: The lines that the correction changed, as a unified diff.
        state: How the last run ended, `not run` if there was none.
        error: The exception of the last run.
    """

    def __init__(
        self, task: str, code: str, reading: Reading, writer: CellWriter, turns: Conversation
    ) -> None:
        self._engine = writer.engine
        self._writer = writer
        self._written = self._code = code
        self._reading = reading
        self.task = task
        self.turns = turns
        self.before: WrittenCell | None = None
        self.difference = ""
        self.state: ProgramState = "not run"
        self.error: BaseException | None = None
        self._made = ProgramCalls()

    @property
    def code(self) -> str:
        """The program. Assign an edited one to run that with `run`.

        Editing the cell that `insert` made is enough too: once it has run, this is its text.

        Raises:
            UsageError: What is assigned is not a valid program.
        """
        return self._code

    @code.setter
    def code(self, code: str) -> None:
        problem = problem_of(code)
        if problem:
            raise UsageError(f"This cannot be the program of a cell: {problem}")
        self._edit(code)

    @property
    def calls(self) -> tuple[WrittenCall, ...]:
        """The calls of tools that the text of the program shows, in its order.

        A tool's function that the program passes to something, such as `map`, counts as a call. If
        `may_call_any_tool`, the program can make other calls as well. In `run`, those need approval
        too.
        """
        return self._reading.calls

    @property
    def remarks(self) -> tuple[tuple[int, str], ...]:
        """What else you should know before the program runs, such as that it starts another one.

        Each with its line.
        """
        return self._reading.remarks

    @property
    def may_call_any_tool(self) -> bool:
        """Whether the text of the program does not show all tools that it calls.

        That is so if it passes the session to something, or cannot be read.
        """
        return self._reading.may_call_any_tool

    @property
    def call_counts(self) -> Mapping[CallStatus, int]:
        """How many calls the last `run` has made, by their status.

        A call can end after the run: an interrupt waits for it half a second at most, and a thread
        can outlive the program.
        """
        return dict(self._made.statuses)

    @property
    def now(self) -> WrittenProgram:
        """The cell as a value that does not change. It is what is displayed."""
        error = ""
        if self.error:
            error = error_text(self.error, self.code)
        return WrittenProgram(
            self.task,
            self.code,
            self.calls,
            self.round,
            self.rounds,
            self.difference,
            self.state,
            error,
            self.call_counts,
            self.turns.stats,
            self.remarks,
            self.may_call_any_tool,
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.now._repr_mimebundle_(include, exclude)

    @property
    def round(self) -> int:
        """How often the program was corrected before this version: 0 for the first."""
        if self.before is None:
            return 0
        return self.before.round + 1

    @property
    def rounds(self) -> int:
        """How often it may be corrected in all, see `SessionModels.write`."""
        return self._writer.rounds

    def _edit(self, code: str) -> None:
        if code != self._code:
            self._code, self._reading = code, self._writer.reading(code)
            self.state, self.error, self._made = "not run", None, ProgramCalls()

    def insert(self) -> None:
        """Put the program into a new cell below this one, or at IPython's next prompt, to be edited
        and run.

        A cell that you run yourself is your own: nobody asks about its calls. If it fails, even
        after you have edited it, `repair` sends the edited program and the error to the model. In
        marimo's editor, assign the edited program to `code` for that.

        Raises:
            UsageError: There is no notebook here that a cell can be inserted into.
        """
        ipython, code = shell(), self.code.rstrip("\n")
        if ipython is not None:
            ipython.set_next_input(code, replace=False)
            _INSERTED.follow(self, ipython)
        elif not _inserted_in_marimo(code):
            raise UsageError(
                "There is no notebook to insert a cell into.",
                hint="The program is the cell's `code`.",
            )

    def run(self, namespace: dict[str, Any] | None = None) -> Any:
        """Run the program in the notebook's namespace. Its calls need approval as a model's do.

        It is not a sandbox: Python code can do whatever you can. Read it first. An interrupt ends
        it, together with the call for which it waits.

        Args:
            namespace: The variables that it uses and sets, or None for the notebook's or the main
                module's.

        Returns:
            The value of its last expression, or None.

        Raises:
            UsageError: There is no session in its variable.
            Exception: What the program raised. `repair` sends it to the model.
        """
        variables = namespace
        if variables is None:
            variables = _variables()
        if self._writer.variable not in variables:
            raise UsageError(
                f"The program needs the session in a variable {shown(self._writer.variable)}.",
                hint="Name your variable: session.models.write(…, variable=…).",
            )
        name = f"<written cell {next(_numbers)}>"
        linecache.cache[name] = len(self.code), None, self.code.splitlines(keepends=True), name
        tree = ast.parse(self.code, name)
        last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body[-1].value)
            tree.body.pop()
        self.error, self.state, self._made = None, "stopped", ProgramCalls()
        try:
            with self._made.running():
                # Without the `__future__` imports of this module.
                exec(compile(tree, name, "exec", dont_inherit=True), variables)
                value = None
                if last is not None:
                    value = eval(compile(last, name, "eval", dont_inherit=True), variables)
            self.state = "ok"
            return value
        except (Exception, SystemExit) as error:
            self.error, self.state = error, "failed"
            raise

    @blocking
    async def repair(self, problem: str = "", *, variables: Sequence[str] = ()) -> WrittenCell:
        """Have the model correct the program. It reads the last run's error, not your data.

        Args:
            problem: What is wrong, in place of that error.
            variables: Names of variables whose type, shape and first values the model may read.

        Returns:
            A new cell, with its `difference`. Nothing in it has run.

        Raises:
            UsageError: There is neither an error nor a problem, or it was corrected as often as
                `write` allows.
            ExtractionError: The model wrote no valid program, or was stopped.
        """
        if not problem and self.error is None:
            raise UsageError(
                "There is nothing to repair: the last run did not fail.",
                hint='Say what is wrong: repair("…").',
            )
        if self.round >= self.rounds:
            raise UsageError(
                f"The model has corrected this program {self.round} times, which is the limit.",
                hint=(
                    "Edit it yourself, or have it written again. session.models.write(…, rounds=…)"
                    " sets the limit."
                ),
            )
        parts = []
        if self.code != self._written:
            parts.append(_EDITED.format(code=self.code.rstrip("\n") + "\n"))
        if problem:
            parts.append(problem[:MAX_ERROR])
        else:
            parts.append(f"The cell failed:\n{error_text(self.error, self.code)}")
        if variables:
            parts.append(_VARIABLES.format(heads=heads_of(variables, _variables())))
        prompt = self._writer.masked(_FAILED.format(problem="\n".join(parts)))
        cell = await self._writer.starter.run_shown(
            self._writer.ask(self.task, prompt, list(self.turns))
        )
        cell.before = self
        before, after = self.code.splitlines(), cell.code.splitlines()
        cell.difference = "\n".join(
            difflib.unified_diff(before, after, "before", "after", lineterm="")
        )
        return cell

    repair_async = awaited(repair)


class _InsertedCells:
    """Notices how inserted cells end when the person runs them, even if they were edited.

    The last few cells are followed, each with the id of the notebook's cell once that is known.
    """

    def __init__(self) -> None:
        self._cells: deque[tuple[WrittenCell, list[str]]] = deque(maxlen=MAX_FOLLOWED)

    def follow(self, cell: WrittenCell, ipython: Any) -> None:
        """Follow a cell. IPython registers a function once."""
        self._cells.appendleft((cell, []))
        ipython.events.register("post_run_cell", self.on_run)

    def on_run(self, result: Any) -> None:
        """Give a written cell the text and the error of the notebook's cell that has run."""
        text = result.info.raw_cell
        id = getattr(result.info, "cell_id", None)
        for cell, ids in self._cells:
            if ids:
                is_this = id in ids
            else:
                is_this = _is_like(cell.code, text) or _is_like(cell._written, text)
            if not is_this:
                continue
            if id:
                ids[:] = [id]
            cell._edit(text)
            error = result.error_before_exec or result.error_in_exec
            if error is None:
                cell.error, cell.state = None, "ok"
            elif isinstance(error, KeyboardInterrupt):
                cell.error, cell.state = None, "stopped"
            else:
                cell.error, cell.state = error, "failed"
            return


_INSERTED = _InsertedCells()


def _inserted_in_marimo(code: str) -> bool:
    """Insert a cell below the running one in marimo's editor, where it waits to be run.

    Returns whether that was possible. marimo has no public function for it: these are parts of what
    its editor does for agents, and any of them may be missing.
    """
    loaded: Mapping[str, Any] = sys.modules
    try:
        if loaded["marimo"].app_meta().mode != "edit":
            return False
        changes, notices = (
            loaded["marimo._messaging.notebook.changes"],
            loaded["marimo._messaging.notification"],
        )
        running = loaded["marimo._runtime.context"].get_context().execution_context.cell_id
        config = loaded["marimo._ast.cell"].CellConfig()
        created = changes.CreateCell(
            cell_id=uuid4().hex[:12], code=code, name="_", config=config, after=running
        )
        transaction = changes.Transaction(changes=(created,), source="kernel")
        notice = notices.NotebookDocumentTransactionNotification(transaction=transaction)
        loaded["marimo._messaging.notification_utils"].broadcast_notification(notice)
    except Exception:
        return False
    return True


def _is_like(code: str, text: str) -> bool:
    """Check whether a text has at least half of the lines of a program."""
    lines = {line.strip() for line in code.splitlines()} - {""}
    common = lines & {line.strip() for line in text.splitlines()}
    return bool(lines) and 2 * len(common) >= len(lines)


@dataclass(eq=False, repr=False)
class CellWriter:
    """Has a model write cells, with the functions that a search finds.

    Attributes:
        options: The options of the turns in which it writes.
        model: The model.
        variable: The session's variable in the programs.
        rounds: How often a program may be corrected.
        secrets: Returns the texts that no model may read.
    """

    tools: SessionTools
    turns: TurnService
    starter: ServerStarter
    engine: EngineThread
    consent: Consent
    options: TurnOptions
    model: ChatModel
    variable: str
    rounds: int
    secrets: Callable[[], Iterable[str]]

    def masked(self, text: str) -> str:
        """Replace the config's secrets in a text for the model."""
        # The longest first: a secret can be a part of another one.
        for secret in sorted(self.secrets(), key=len, reverse=True):
            if secret:
                text = text.replace(secret, "***")
        return text

    async def write(self, task: str, heads: str) -> WrittenCell:
        """Have the model write the first version.

        Args:
            task: What the cell should do.
            heads: The heads of variables that the model may read, or empty.
        """
        parts = [task, _MATCHES.format(functions=await self._signatures(task))]
        if heads:
            parts.append(_VARIABLES.format(heads=heads))
        return await self.ask(task, self.masked("\n\n".join(parts)), [])

    async def ask(self, task: str, prompt: str, turns: list[Turn]) -> WrittenCell:
        """Ask until the answer is a program.

        Meanwhile the model may search for further functions, at most `SEARCHES` times.

        Args:
            task: What the cell should do.
            prompt: The first message.
            turns: The turns so far, to which further ones are added.

        Raises:
            ExtractionError: The model wrote no valid program, or was stopped.
        """
        searches = corrections = 0
        while True:
            turn = await self.turns.run_separately(
                prompt, self.options, Conversation(turns).messages
            )
            turn.raise_for_status()
            if turn.status == "stopped":
                raise ExtractionError("Writing was stopped before its end.", text=turn.answer)
            turns.append(turn)
            code = code_in(turn.answer)
            wanted = _SEARCH.search(turn.answer)
            if code is None and wanted is not None and searches < SEARCHES:
                searches += 1
                prompt = _MATCHES.format(functions=await self._signatures(wanted[1][:MAX_HEAD]))
                continue
            problem = problem_of(code)
            if code is not None and not problem:
                # On another thread, because a program can be long.
                reading = await asyncio.to_thread(self.reading, code)
                cell = WrittenCell(task, code, reading, self, Conversation(turns))
                self.turns.runner.cells.append(cell)
                return cell
            if corrections == CORRECTIONS:
                raise ExtractionError(
                    f"The model wrote no usable program, even after {CORRECTIONS} corrections:"
                    f" {problem}",
                    hint="The error's `text` has its last answer. Try another wording of the task.",
                    text=turn.answer,
                    client=self.model.client_name,
                    model=self.model.model,
                )
            corrections += 1
            prompt = _WRONG.format(problem=problem)

    async def _signatures(self, query: str) -> str:
        results = await self.tools.find(query, HITS, None, all_tools=True)
        return await asyncio.to_thread(self._listed, [hit.tool for hit in results])

    def _listed(self, tools: Sequence[ToolSpec]) -> str:
        """Describe the functions of tools: types, signatures, and the beginnings of descriptions."""
        functions: dict[ToolName, tuple[str, SchemaReader | None]] = {}
        for path, tool, learned in self.tools.functions._paths():
            functions[tool.tool_name] = path, learned
        taken: set[str] = set()
        listed = []
        for tool in tools:
            if tool.tool_name not in functions:
                continue
            path, learned = functions[tool.tool_name]
            if hasattr(type(self.tools), path.partition(".")[0]):
                # The server has the name of a method.
                path = f"functions.{path}"
            types = TypeWriter(taken)
            signature = f"{self.variable}.tools.{path}{signature_of(tool, learned, types)}"
            text = "\n".join((*types.dicts.values(), signature))
            taken.update(types.dicts)
            if len(text) > MAX_SIGNATURE:
                text = signature[:MAX_SIGNATURE]
            listed.append(f"{text}\n    # {' '.join(tool.description.split())[:300]}")
        return "\n".join(listed) or "none"

    def reading(self, code: str) -> Reading:
        """Find out what the text of a program shows, see `Reading`."""
        by_path = {path: tool for path, tool, _ in self.tools.functions._paths()}
        catalog, view = self.tools.now, self.starter.chat.current_view()
        text = read_program(code, self.variable, {path.partition(".")[0] for path in by_path})
        calls = []
        by_name = {str(tool.tool_name): tool for tool in catalog}
        for path, line in text.calls:
            tool = by_path.get(path) or by_path.get(path.removesuffix("_async"))
            tool = tool or by_name.get(path)
            if tool is None:
                continue
            included = view.includes(tool)
            reason = ""
            if included:
                reason = self.consent.foreseen(tool) or ""
            policy = str(self.consent.policy(tool))
            calls.append(WrittenCall(tool, line, policy, reason, included))
        return Reading(tuple(calls), text.remarks, not text.is_followed)


def readable_heads(task: str, variables: Sequence[str], variable: str) -> str:
    """Check the input of `SessionModels.write`, and describe the variables that it names.

    On the caller's thread.

    Raises:
        UsageError: The task is empty, or a variable is not valid, or does not exist.
    """
    if not isinstance(task, str) or not task.strip():
        raise UsageError(
            "A cell needs a task.",
            hint='session.models.write("join the orders with their customers")',
        )
    if not variable.isidentifier():
        raise UsageError(f"{shown(variable)} cannot be a variable.")
    if not variables:
        return ""
    return heads_of(variables, _variables())


async def write(
    tools: SessionTools,
    turns: TurnService,
    starter: ServerStarter,
    engine: EngineThread,
    consent: Consent,
    secrets: Callable[[], Iterable[str]],
    task: str,
    heads: str,
    model: str | Model | ChatModel | None,
    variable: str,
    rounds: int,
    options: ModelOptions,
) -> WrittenCell:
    """Have a model write a cell, see `SessionModels.write`. On the engine's loop."""
    chat_model = await turns.ready_model(model)
    if isinstance(chat_model.client, OfflineClient):
        raise UsageError(
            "The offline planner is not a language model and cannot write.",
            hint="Choose a model: model=…",
        )
    warm_up()
    view = await starter.view()
    await warmed_up()
    tools_included = view.included
    manifest = await asyncio.to_thread(
        generate_manifest, tools_included, MAX_MANIFEST, view.instructions
    )
    system = _SYSTEM.format(variable=variable, manifest=manifest or "none")
    given = TurnOptions(
        model=chat_model,
        tool_set=ToolSetConfig(),
        system=system,
        discovery=False,
        stream=False,
        **options,
    )
    writer = CellWriter(
        tools, turns, starter, engine, consent, given, chat_model, variable, rounds, secrets
    )
    return await writer.write(task, heads)


def code_in(text: str) -> str | None:
    """Extract the program from an answer: the longest fenced block of Python, or of no language.

    None if there is no such block.
    """
    blocks = []
    for block in _FENCED.finditer(text[: 4 * MAX_CODE]):
        if block["language"].lower() in ("", "py", "python"):
            blocks.append(block["code"])
    if not blocks:
        return None
    return max(blocks, key=len).strip("\n") + "\n"


def problem_of(code: str | None) -> str:
    """Describe why a text cannot be a cell. Empty if it can."""
    if code is None:
        return "there is no fenced block of Python in it."
    if len(code) > MAX_CODE:
        return f"the program has {len(code):,} characters, and the limit is {MAX_CODE:,}."
    try:
        compile(code, "<written cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def heads_of(names: Sequence[str], variables: Mapping[str, Any]) -> str:
    """Describe variables for a model: type, shape, and the first values.

    Raises:
        UsageError: There is no such variable.
    """
    if isinstance(names, str):
        names = [names]
    for name in names:
        if name not in variables:
            raise UsageError(
                f"There is no variable {shown(name)}.", hint="Name variables of the notebook."
            )
    return "\n".join(f"{name}: {head_of(variables[name])[:MAX_HEAD]}" for name in names)


def head_of(value: Any) -> str:
    """Describe a value by its type, its size and its first values.

    An object of another library than pandas and NumPy is described only by its type.
    """
    kind = type(value)
    name = f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
    if name == "pandas.DataFrame":
        columns = ", ".join(f"{column}: {dtype}" for column, dtype in value.dtypes.items())
        return (
            f"{name} of {value.shape[0]:,} rows; columns {columns}; first rows"
            f" {value.head(3).to_dict('records')}"
        )
    if name in ("pandas.Series", "numpy.ndarray"):
        return f"{name}, shape {value.shape}, {value.dtype}"
    if kind in _PLAIN:
        size = ""
        if hasattr(value, "__len__"):
            size = f" of {len(value):,}"
        return f"{kind.__name__}{size}: {_REPR.repr(value)}"
    return name


def error_text(error: BaseException | None, code: str) -> str:
    """Describe a program's error for the model: its kind, its text, and the program's own line."""
    lines = code.splitlines()
    line = ""
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        # The program is found by its text: IPython chooses the file name of a cell that it runs.
        file = linecache.getlines(trace.tb_frame.f_code.co_filename)
        is_program = [each.rstrip("\n") for each in file] == lines
        if is_program and trace.tb_lineno <= len(lines):
            line = f"\nin line {trace.tb_lineno}: {lines[trace.tb_lineno - 1].strip()[:MAX_HEAD]}"
        trace = trace.tb_next
    try:
        text = str(error)[:MAX_ERROR]
    except Exception:
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text}{line}"


def _variables() -> dict[str, Any]:
    """Get the notebook's variables, or those of the main module without IPython."""
    ipython = shell()
    namespace: dict[str, Any] = vars(sys.modules["__main__"])
    if ipython is not None:
        namespace = ipython.user_ns
    return namespace
