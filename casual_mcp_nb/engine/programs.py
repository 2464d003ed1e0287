"""Programs that a model writes, with the delivery `code`: they call tools as functions, in a
sandbox.

The sandbox is pydantic-monty: its own interpreter in its own process, without files, network or
environment. It stops at each call of a function, which then goes the way of every call: checked,
approved, recorded, shown below the program's.
"""

from __future__ import annotations

import ast
import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.limits import MAX_DEPTH
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.event import RUN_CODE
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.discovery.manifest import function_card
from casual_mcp_nb.discovery.signatures import (
    identifier,
    parameters_of,
    signature_of,
    value_of_call,
)
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult, synthetic_spec
from casual_mcp_nb.errors import CasualMcpError, closest, shown

if TYPE_CHECKING:
    import pydantic_monty as monty

MAX_CODE = 50_000
MAX_CALLS = 200
"""How many calls one program can make."""
MAX_SUSPENSIONS = 10 * MAX_CALLS
"""How often it can stop for a call, a name or a result.

A program that continues beyond `MAX_CALLS` ends here.
"""
MAX_SECONDS = 10.0
"""How long it can compute. The time in which it waits for calls does not count."""
MAX_MEMORY = 256 * 1024 * 1024
MAX_OUTPUT = 200_000
"""How many characters of what it prints, and of its value, are kept.

The model reads less, as of every large result.
"""
MAX_ARGUMENTS = 1_000_000
"""About how many characters of JSON the arguments of one call in a program may have."""
MAX_ERROR = 4_000
PARALLEL_CALLS = 8
_INPUT = re.compile(r'"<python-input-\d+>"')
_AT_ONCE = frozenset({"gather", "create_task", "ensure_future", "wait_for", "wait", "shield"})

_DESCRIPTION = """\
Run a Python program that calls tools as functions. You read what it prints, and the value of its last expression. Do as much \
as you can in one program: loops, filters, sums and joins cost nothing there, and only what it prints costs tokens.
- Call functions by keyword, as in their signatures. They return plain values: a TypedDict is a dict, Any is text or JSON.
- A call that fails raises RuntimeError, and one that the user does not approve PermissionError. The program can catch them.
- Calls of `asyncio.gather(f(a=1), f(a=2))` run at the same time; await it. Other calls need no await. \
A function that is given to map, sorted or max cannot make calls: use a loop or a comprehension.
- There are json, re, math, datetime, collections and a few others, no further packages, and neither files nor network.
- Each program starts afresh, without the variables of the last one."""
_FUNCTIONS = """
<functions>
{functions}
</functions>"""

RunCall = Callable[[ToolSpec, dict[str, Any]], Awaitable[ToolCall]]
CheckArguments = Callable[[ToolSpec, dict[str, Any]], Awaitable[Sequence[str]]]


class CodeTool:
    """Offers `run_code`. The dispatcher runs its programs. `execute` answers a call that has none.

    Args:
        loaded: The tools whose functions its description lists. A search lists the others.
    """

    name = RUN_CODE

    def __init__(self, loaded: Sequence[ToolSpec]) -> None:
        self._loaded = loaded

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`."""
        return dict(program_spec(self._loaded).definition)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Build an error that explains how to use the tool."""
        return SyntheticToolResult(f'Error: {RUN_CODE} takes a program: {{"code": "…"}}.', [], None)


def program_spec(loaded: Sequence[ToolSpec]) -> ToolSpec:
    """Describe `run_code`, with the functions of the loaded tools."""
    cards = "\n\n".join(map(function_card, loaded))
    text = _DESCRIPTION + (_FUNCTIONS.format(functions=cards) if cards else "")
    return synthetic_spec(
        RUN_CODE, text, {"code": {"type": "string", "description": "The program"}}, "code"
    )


def functions_of(tools: Sequence[ToolSpec]) -> dict[str, ToolSpec]:
    """Map the names of functions to tools.

    If two tools would have the same one, it means the tool whose wire name it is.
    """
    functions = {identifier(tool.wire_name): tool for tool in reversed(tools)}
    return functions | {tool.wire_name: tool for tool in tools if tool.wire_name in functions}


def program_in(arguments: Mapping[str, Any]) -> str:
    """Extract the program from a call's arguments, without a fence around it.

    Raises:
        ValueError: There is none, or it is too long.
    """
    code = arguments.get("code")
    if not isinstance(code, str) or not code.strip():
        raise ValueError(f'{RUN_CODE} takes a program: {{"code": "…"}}.')
    if len(code) > MAX_CODE:
        raise ValueError(
            f"the program has {len(code):,} characters, and the limit is {MAX_CODE:,}."
        )
    lines = code.strip().split("\n")
    fenced = (
        len(lines) > 1
        and lines[0].strip() in ("```", "```python", "```py")
        and lines[-1].strip() == "```"
    )
    return "\n".join(lines[1:-1]) if fenced else code


@dataclass(frozen=True)
class ProgramStart:
    """What a program has from outside besides its calls: the time, which does not pass in it, and
    the seed of `random`.

    A cassette has them, so that a replayed program makes the calls that it made.
    """

    clock: datetime = field(default_factory=lambda: datetime.now().astimezone())
    seed: int = field(default_factory=lambda: random.getrandbits(32))

    def plain(self) -> dict[str, Any]:
        """Convert it to plain values."""
        return {"clock": self.clock.isoformat(), "seed": self.seed}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> ProgramStart:
        """Convert plain values of a cassette to one."""
        return cls(plain["clock"], plain["seed"])


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended: its text for the model, its result, and whether it failed."""

    text: str
    result: ToolResult | None = None
    failed: bool = False


@dataclass(eq=False)
class Program:
    """Runs one program.

    Args:
        functions: The tools that it can call now, by the names of their functions.
        call: Makes a call, in whatever status it ends.
        check: Lists the problems with the arguments of a call.
    """

    code: str
    functions: Callable[[], Mapping[str, ToolSpec]]
    call: RunCall
    check: CheckArguments
    start: ProgramStart = field(default_factory=ProgramStart)
    made: int = field(default=0, init=False)
    ended: list[ToolCall] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._printed: list[str] = []
        self._room = MAX_OUTPUT
        self._left_out = 0
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)
        self._tasks: dict[int, asyncio.Task[monty.ExternalSettledResult]] = {}

    async def run(self) -> ProgramEnd:
        """Run it to its end. A failure is a text for the model, who can repair it.

        Only a cancellation raises.
        """
        import pydantic_monty as monty

        later = await asyncio.to_thread(_awaited_calls, self.code)
        limits: monty.ResourceLimits = {
            "max_feed_duration_secs": MAX_SECONDS,
            "max_memory": MAX_MEMORY,
            "max_suspensions": MAX_SUSPENSIONS,
        }
        policy: monty.OSPolicy = {
            "datetime": self.start.clock,
            "sleep": "zero",
            "random_start": {"seed": self.start.seed},
        }
        try:
            # A process for each program: what one leaves there, no other can find.
            async with (
                monty.AsyncMonty(min_processes=0, max_processes=1) as pool,
                pool.checkout(script_name="program.py", limits=limits, os_policy=policy) as session,
            ):
                value = await self._drive(
                    await session.feed_start(self.code, print_callback=self._print), later
                )
                return self._done(value)
        except monty.MontyError as error:
            display = getattr(error, "display", None)
            return self._failed(display() if display is not None else str(error))
        except (ValueError, TypeError, RecursionError, RuntimeError, OSError) as error:
            # Such as a number with too many digits for its text.
            return self._failed(f"{type(error).__name__}: {error}")
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _drive(self, snapshot: monty.AsyncSnapshot, later: frozenset[int]) -> Any:
        import pydantic_monty as monty

        while not isinstance(snapshot, monty.MontyComplete):
            if isinstance(snapshot, monty.AsyncNameLookupSnapshot):
                name = snapshot.variable_name
                if snapshot.object_id is None and name in self.functions():
                    snapshot = await snapshot.resume(value=_named(name))
                else:
                    snapshot = await snapshot.resume()
            elif isinstance(snapshot, monty.AsyncFutureSnapshot):
                pending = {number: self._tasks[number] for number in snapshot.pending_call_ids}
                done, _ = await asyncio.wait(pending.values(), return_when=asyncio.FIRST_COMPLETED)
                snapshot = await snapshot.resume(
                    {number: task.result() for number, task in pending.items() if task in done}
                )
            elif snapshot.is_os_function:
                snapshot = await snapshot.resume_not_handled()
            else:
                # In a task, since observers set variables for each call.
                task = asyncio.create_task(
                    self._answer(str(snapshot.function_name), snapshot.args, snapshot.kwargs)
                )
                self._tasks[snapshot.call_id] = task
                where = snapshot.position
                if snapshot.allow_eager_await or (
                    where.start in later and where.filename != "<string>"
                ):
                    snapshot = await snapshot.resume({"future": ...})
                else:
                    snapshot = await snapshot.resume(await task)
        return snapshot.output

    async def _answer(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> monty.ExternalSettledResult:
        """Make a call, and convert how it ended to what the program gets: a value or an
        exception.
        """
        functions = self.functions()
        tool = functions.get(name)
        if tool is None:
            hint = "".join(f" Did you mean {each!r}?" for each in closest(name, functions)[:1])
            return {"exc_type": "NameError", "message": f"name {name!r} is not defined.{hint}"}
        if self.made >= MAX_CALLS:
            return {
                "exc_type": "RuntimeError",
                "message": f"a program can make {MAX_CALLS} calls, and this one has made them",
            }
        real = {key: part[0] for key, part in parameters_of(tool).items()}
        arguments = {real.get(key, key): value for key, value in kwargs.items()}
        signature = f"Its signature: {name}{signature_of(tool)}"
        if args:
            return {
                "exc_type": "TypeError",
                "message": f"{name} takes arguments by keyword. {signature}",
            }
        arguments, whole = beginning_of(arguments, MAX_ARGUMENTS)
        if not whole:
            problem = f"its arguments have more than {MAX_ARGUMENTS:,} characters"
            return {"exc_type": "ValueError", "message": f"{name} was not called: {problem}"}
        try:
            arguments = to_jsonable_python(arguments)
        except (ValueError, RecursionError):
            return {
                "exc_type": "TypeError",
                "message": f"the arguments of {name} have no JSON form. {signature}",
            }
        if problems := await self.check(tool, arguments):
            listed = "; ".join(" ".join(problem.split())[:500] for problem in problems[:5])
            return {
                "exc_type": "TypeError",
                "message": f"{name} was not called: {listed}. {signature}",
            }
        self.made += 1
        try:
            async with self._slots:
                call = await self.call(tool, arguments)
        except CasualMcpError as error:
            return {"exc_type": "RuntimeError", "message": f"{name}: {str(error)[:MAX_ERROR]}"}
        self.ended.append(call)
        if call.status == "ok":
            # A function of the notebook can return any object. The program gets what a model would.
            original = replace(call.original, returned=())
            return {"return_value": value_of_call(tool, replace(call, original=original))}
        message = f"{name}: {call.result.removeprefix('Error: ')[:MAX_ERROR]}"
        return {
            "exc_type": "PermissionError" if call.status == "denied" else "RuntimeError",
            "message": message,
        }

    def _print(self, stream: str, text: str) -> None:
        self._printed.append(text[: self._room])
        self._room -= len(self._printed[-1])
        self._left_out += len(text) - len(self._printed[-1])

    @property
    def _output(self) -> str:
        cut = f"\n[… {self._left_out:,} more characters were printed …]" if self._left_out else ""
        return ("".join(self._printed) + cut).rstrip("\n")

    def _done(self, value: Any) -> ProgramEnd:
        # A program may leave hundreds of megabytes. What is cut is never converted.
        kept, whole = beginning_of(value, MAX_OUTPUT)
        plain = _jsonable(kept)
        text = plain
        if not isinstance(plain, str):
            text = json.dumps(plain, ensure_ascii=False, default=str)
        if not whole or len(text) > MAX_OUTPUT:
            size = f" of {len(value):,}" if isinstance(value, str) else ""
            text = f"{text[:MAX_OUTPUT]}\n[… cut: the first {MAX_OUTPUT:,}{size} characters …]"
            plain = None
        if printed := self._output:
            text = printed if value is None else f"{printed}\n{text}"
        elif value is None:
            text = (
                "The program ended. It printed nothing, and its last line is not an expression with"
                " a value."
            )
        structured = None
        if isinstance(plain, dict):
            structured = plain
        elif isinstance(plain, list):
            # As servers send a list: structured content is always an object.
            structured = {"result": plain}
        return ProgramEnd(text, ToolResult((ContentPart("text", text),), structured))

    def _failed(self, error: str) -> ProgramEnd:
        error = _INPUT.sub('"program"', error)
        if len(error) > MAX_ERROR:
            error = f"{error[: MAX_ERROR // 2]}\n[…]\n{error[-MAX_ERROR // 2 :]}"
        parts = [f"Error: the program failed.\n{error.strip()}"]
        if self.ended:
            ok = sum(call.status == "ok" for call in self.ended)
            count = f"{len(self.ended):,} call{'s' * (len(self.ended) != 1)}"
            parts.append(
                f"Before that it made {count}, of which {ok:,} succeeded. What they did stays done."
            )
        if printed := self._output:
            parts.append(f"It had printed:\n{printed}")
        return ProgramEnd("\n".join(parts), failed=True)


def _named(name: str) -> Callable[..., None]:
    """Create the function that a name means in a program, to be called there."""

    def function(**arguments: Any) -> None:
        raise NotImplementedError(name)

    function.__name__ = function.__qualname__ = name
    return function


def beginning_of(value: Any, characters: int) -> tuple[Any, bool]:
    """Copy the beginning of a value, about so many characters of its JSON, and say whether that is
    all of it.

    The work depends on the limit, not on the value, which may be too large for the loop on which
    this runs.
    """
    room = characters

    def part(value: Any, depth: int) -> Any:
        nonlocal room
        if depth > MAX_DEPTH:
            raise RecursionError("a value is nested too deeply")
        # A comma and a space follow the least that there is.
        room -= 3
        if isinstance(value, str | bytes):
            kept = value[: max(room, 0)]
            room -= len(value)
            return kept
        if isinstance(value, dict):
            entries = {}
            for key, each in value.items():
                if room < 0:
                    break
                entries[part(key, depth + 1)] = part(each, depth + 1)
            return entries
        if isinstance(value, list | tuple | set | frozenset):
            items = []
            for each in value:
                if room < 0:
                    break
                items.append(part(each, depth + 1))
            return items
        return value

    kept = part(value, 0)
    return kept, room >= 0


def _jsonable(value: Any) -> Any:
    try:
        return to_jsonable_python(value, fallback=repr, inf_nan_mode="strings")
    except (ValueError, RecursionError):
        return shown(repr(value), MAX_OUTPUT)


def _awaited_calls(code: str) -> frozenset[int]:
    """Find the calls that a program awaits, alone or with others: where they begin, in bytes.

    All others have their value immediately, so that a program needs no `await`. A list of calls
    that `gather` gets by its name counts too.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    offsets = [0]
    for line in code.encode("utf-8", "replace").splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    nodes = list(ast.walk(tree))
    calls: set[ast.Call] = set()
    together: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            calls.add(node.value)
        elif isinstance(node, ast.Call) and _name_of(node) in _AT_ONCE:
            together.extend(node.args)
    names = {node.id for node in _nodes_in(together) if isinstance(node, ast.Name)}
    for node in nodes:
        together.extend(_collected(node, names))
    calls.update(of_type(_nodes_in(together), ast.Call))
    return frozenset(offsets[call.lineno - 1] + call.col_offset for call in calls)


def _nodes_in(trees: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for tree in trees:
        yield from ast.walk(tree)


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _collected(node: ast.AST, names: set[str]) -> Sequence[ast.expr]:
    """List what a statement puts into a list with one of these names."""
    if isinstance(node, ast.Assign):
        is_named = any(getattr(each, "id", None) in names for each in node.targets)
        # What a call returns is no list of calls.
        return [node.value] if is_named and not isinstance(node.value, ast.Call) else []
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return []
    is_named = getattr(node.func.value, "id", None) in names
    return node.args if is_named and node.func.attr == "append" else []
