"""Cells that a model writes: a program over the tools' typed functions, which the person reads before anything runs."""

from __future__ import annotations

import ast
import asyncio
import difflib
import itertools
import linecache
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.signatures import identifier, named, signature_of
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ExtractionError, UsageError, shown
from casual_mcp_nb.notebook.loop import EngineThread, awaited, blocking, shell
from casual_mcp_nb.notebook.starting import ServerStarter, warm_up, warmed_up
from casual_mcp_nb.notebook.tools import ASKING, SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService
from casual_mcp_nb.providers.builtin.offline import OfflineClient

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel

REPAIRS = 2
"""How often the model may correct an answer that has no valid program."""
SEARCHES = 4
"""How often the model may search for further functions before it writes."""
HITS = 8
MAX_CODE = 50_000
MAX_ERROR = 2_000
MAX_HEAD = 600

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_SEARCH = re.compile(r"^\s*SEARCH:\s*(.+)$", re.MULTILINE)
_SYSTEM = """You write one cell of a Jupyter notebook: a Python program that does what the user wants.

MCP tools are functions that return plain Python values. Call them by keyword, as their signatures say:
`{variable}.tools.SERVER.TOOL(...)`. `{variable}` exists already. Call no function of a server that you have not been shown.
If you need another one, answer with a single line, `SEARCH: ` and words that describe it, and you are shown what matches.

Otherwise answer with one fenced block of Python and nothing else. No `await`. Keep results in variables with clear names, and
end with an expression that shows a short summary. Servers: {servers}."""
_WRONG = "This is not a usable answer: {problem}\nAnswer again, with one fenced block of Python only."
_FAILED = "The cell failed:\n{error}\nAnswer with the whole corrected cell, as one fenced block of Python."
_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = 3
_REPR.maxdict, _REPR.maxstring, _REPR.maxlevel = 8, 60, 3
_PLAIN = (str, bytes, int, float, bool, list, tuple, dict, set, frozenset, type(None))
_numbers = itertools.count(1)


@dataclass(frozen=True)
class WrittenCall:
    """A call of a tool in a written cell. `reason` says why it will ask for approval; empty if it will not."""

    tool: ToolSpec
    line: int
    reason: str = ""


@dataclass(eq=False, repr=False)
class WrittenCell(Displayable):
    """A cell that a model wrote. Nothing in it has run.

    Attributes:
        task: What the person wanted.
        code: The program.
        calls: The tools that the program names, in its order. It can reach others in ways that cannot be read from its text;
            those ask for approval just the same.
        difference: The lines that a repair changed, as a unified diff.
        error: The exception of the last run.
    """

    task: str
    code: str
    calls: tuple[WrittenCall, ...]
    _writer: CellWriter
    _history: Sequence[ChatMessage]
    difference: str = ""
    error: Exception | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._engine = self._writer.engine

    def insert(self) -> None:
        """Put the program into a new cell below this one, or at the next prompt of IPython, to be edited and run.

        A cell that you run yourself is your own: its calls are not asked about.

        Raises:
            UsageError: There is no IPython here.
        """
        ipython = shell()
        if ipython is None:
            raise UsageError("There is no notebook to insert a cell into.", hint="The program is the cell's `code`.")
        ipython.set_next_input(self.code, replace=False)

    def run(self, namespace: dict[str, Any] | None = None) -> Any:
        """Run the program in the notebook's namespace. Calls of tools need approval as the calls of a model do.

        It is not a sandbox: Python code can do whatever you can. Read it first.

        Args:
            namespace: The variables that it uses and sets, or None for those of the notebook or of the main module.

        Returns:
            The value of its last expression, or None.

        Raises:
            Exception: What the program raised. `repair` sends it to the model.
        """
        variables = _variables() if namespace is None else namespace
        if self._writer.variable not in variables:
            raise UsageError(
                f"The program needs the session in a variable {shown(self._writer.variable)}.",
                hint="Name your variable: session.models.write(…, variable=…).",
            )
        name = f"<written cell {next(_numbers)}>"
        linecache.cache[name] = len(self.code), None, self.code.splitlines(keepends=True), name
        tree = ast.parse(self.code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        token, self.error = ASKING.set(True), None
        try:
            exec(compile(tree, name, "exec"), variables)
            return eval(compile(ast.Expression(last.value), name, "eval"), variables) if isinstance(last, ast.Expr) else None
        except Exception as error:
            self.error = error
            raise
        finally:
            ASKING.reset(token)

    @blocking
    async def repair(self, problem: str = "") -> WrittenCell:
        """Have the model correct the program. It reads the error of the last run, not your data.

        Args:
            problem: What is wrong, in place of that error.

        Returns:
            A new cell, with its `difference`.

        Raises:
            UsageError: There is neither an error nor a problem.
        """
        if not problem and self.error is None:
            raise UsageError("There is nothing to repair: the last run did not fail.", hint='Say what is wrong: repair("…").')
        problem = problem or error_text(self.error, self.code)
        prompt = _FAILED.format(error=self._writer.masked(problem[:MAX_ERROR]))
        cell = await self._writer.starter.run_shown(self._writer.ask(self.task, prompt, list(self._history)))
        before, after = self.code.splitlines(), cell.code.splitlines()
        cell.difference = "\n".join(difflib.unified_diff(before, after, "before", "after", lineterm=""))
        return cell

    repair_async = awaited(repair)


@dataclass(eq=False, repr=False)
class CellWriter:
    """Has a model write cells, with the functions that a search finds."""

    tools: SessionTools
    turns: TurnService
    starter: ServerStarter
    engine: EngineThread
    consent: Consent
    options: TurnOptions
    model: ChatModel
    variable: str
    secrets: Callable[[], Iterable[str]]

    def masked(self, text: str) -> str:
        """Replace secrets of the config in a text for the model."""
        for secret in sorted(self.secrets(), key=len, reverse=True):
            text = text.replace(secret, "***") if secret else text
        return text

    async def write(self, task: str, heads: str) -> WrittenCell:
        """Have the model write the first version."""
        matches = await self._signatures(task)
        parts = [task, f"Functions that match:\n{matches}", *([f"Variables of the notebook:\n{heads}"] if heads else [])]
        return await self.ask(task, self.masked("\n\n".join(parts)), [])

    async def ask(self, task: str, prompt: str, history: list[ChatMessage]) -> WrittenCell:
        """Ask until the answer is a program, searching for further functions as often as the model may."""
        searches = repairs = 0
        while True:
            turn = await self.turns.run_separately(prompt, self.options, history)
            turn.raise_for_status()
            if turn.status == "stopped":
                raise ExtractionError("Writing was stopped before its end.", text=turn.answer)
            history += turn.messages
            code = code_in(turn.answer)
            if code is None and (wanted := _SEARCH.search(turn.answer)) and searches < SEARCHES:
                searches += 1
                prompt = f"Functions that match:\n{await self._signatures(wanted[1][:MAX_HEAD])}"
                continue
            problem = problem_of(code)
            if code is not None and not problem:
                # On a thread: a program can be long.
                calls = await asyncio.to_thread(self._calls, code)
                return WrittenCell(task, code, calls, self, history)
            if repairs == REPAIRS:
                raise ExtractionError(
                    f"The model wrote no usable program, even after {REPAIRS} corrections: {problem}",
                    hint="The error's `text` has its last answer. Try another wording of the task.",
                    text=turn.answer,
                    client=self.model.client_name,
                    model=self.model.model,
                )
            repairs += 1
            prompt = _WRONG.format(problem=problem)

    async def _signatures(self, query: str) -> str:
        results = await self.tools.find(query, HITS, None, all_tools=True)
        names = {tool.tool_name: path for path, tool in self._functions()}
        lines = [
            f"{self.variable}.tools.{names[hit.tool.tool_name]}{signature_of(hit.tool)}\n"
            f"    # {' '.join(hit.tool.description.split())[:300]}"
            for hit in results
            if hit.tool.tool_name in names
        ]
        return "\n".join(lines) or "none"

    def _functions(self) -> Iterator[tuple[str, ToolSpec]]:
        servers = {tool.server: tool for tool in self.tools.now}
        for server, name in named({each: each for each in servers}).items():
            for function, tool in named({tool.name: tool for tool in self.tools.of_server(name)}).items():
                yield f"{server}.{function}", tool

    def _calls(self, code: str) -> tuple[WrittenCall, ...]:
        by_path = dict(self._functions())
        called = [
            (by_path.get(path) or by_path.get(path.removesuffix("_async")), line)
            for path, line in called_paths(code, self.variable)
        ]
        return tuple(WrittenCall(tool, line, self.consent.foreseen(tool) or "") for tool, line in called if tool is not None)


def readable_heads(task: str, variables: Sequence[str], variable: str) -> str:
    """Check what a cell is written from, and format the heads of the notebook's variables, on the caller's thread."""
    if not isinstance(task, str) or not task.strip():
        raise UsageError("A cell needs a task.", hint='session.models.write("join the orders with their customers")')
    if not variable.isidentifier():
        raise UsageError(f"{shown(variable)} cannot be a variable.")
    return heads_of(variables, _variables()) if variables else ""


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
    options: ModelOptions,
) -> WrittenCell:
    """Have a model write a cell, see `SessionModels.write`. On the engine's loop."""
    chat_model = await turns.ready_model(model)
    if isinstance(chat_model.client, OfflineClient):
        raise UsageError("The offline planner is not a language model and cannot write.", hint="Choose a model: model=…")
    warm_up()
    await starter.view()
    await warmed_up()
    servers = ", ".join(dict.fromkeys(identifier(tool.server) for tool in tools.now)) or "none"
    system = _SYSTEM.format(variable=variable, servers=servers)
    given = TurnOptions(model=chat_model, tool_set=ToolSetConfig(), system=system, discovery=False, stream=False, **options)
    return await CellWriter(tools, turns, starter, engine, consent, given, chat_model, variable, secrets).write(task, heads)


def code_in(text: str) -> str | None:
    """Extract the program from an answer: the longest fenced block. None without one."""
    blocks = _FENCED.findall(text[: 4 * MAX_CODE])
    return max(blocks, key=len).strip("\n") + "\n" if blocks else None


def problem_of(code: str | None) -> str:
    """Describe why a text cannot be a cell, or return nothing if it can."""
    if code is None:
        return "there is no fenced block of Python in it."
    if len(code) > MAX_CODE:
        return f"the program has {len(code):,} characters, and the limit is {MAX_CODE:,}."
    try:
        compile(code, "<written cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def called_paths(code: str, variable: str) -> Iterator[tuple[str, int]]:
    """Find the functions of servers that a program calls, as `server.function` and the line, also through a short name."""
    tree, short = ast.parse(code), {variable: [variable]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            path = _path(node.value, short)
            if path[:1] == [variable] and len(path) > 1:
                short[node.targets[0].id] = path
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        path = _path(call.func, short)
        path = [part for number, part in enumerate(path) if (number, part) != (2, "functions")]
        if path[:2] == [variable, "tools"] and len(path) == 4:
            yield ".".join(path[2:]), call.lineno


def _path(node: ast.AST, short: Mapping[str, list[str]]) -> list[str]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [*short.get(node.id, [node.id]), *reversed(names)] if isinstance(node, ast.Name) else []


def heads_of(names: Sequence[str], variables: Mapping[str, Any]) -> str:
    """Describe variables for a model: type, shape, and the first values.

    Raises:
        UsageError: There is no such variable.
    """
    if isinstance(names, str):
        names = [names]
    if missing := [name for name in names if name not in variables]:
        raise UsageError(f"There is no variable {shown(missing[0])}.", hint="Name variables of the notebook.")
    return "\n".join(f"{name}: {head_of(variables[name])[:MAX_HEAD]}" for name in names)


def head_of(value: Any) -> str:
    """Describe a value by type, size and first values. Objects of other libraries than pandas and NumPy only by type."""
    kind = type(value)
    name = f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
    if name == "pandas.DataFrame":
        columns = ", ".join(f"{column}: {dtype}" for column, dtype in value.dtypes.items())
        return f"{name} of {value.shape[0]:,} rows; columns {columns}; first rows {value.head(3).to_dict('records')}"
    if name in ("pandas.Series", "numpy.ndarray"):
        return f"{name}, shape {value.shape}, {value.dtype}"
    if kind in _PLAIN:
        size = f" of {len(value):,}" if hasattr(value, "__len__") else ""
        return f"{kind.__name__}{size}: {_REPR.repr(value)}"
    return name


def error_text(error: BaseException | None, code: str) -> str:
    """Describe a program's error for the model: its kind, its text, and the program's own line."""
    lines, trace = code.splitlines(), error.__traceback__ if error else None
    line = ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<written cell") and trace.tb_lineno <= len(lines):
            line = f"\nin line {trace.tb_lineno}: {lines[trace.tb_lineno - 1].strip()}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:MAX_ERROR]}{line}"


def _variables() -> dict[str, Any]:
    ipython = shell()
    namespace: dict[str, Any] = ipython.user_ns if ipython is not None else vars(sys.modules["__main__"])
    return namespace
