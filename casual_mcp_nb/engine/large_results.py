"""Results too large for a model: what it reads of one at once, and how it reads on, searches in it
or asks in SQL.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.config import MIN_RESULT_TOKENS, ServerConfig
from casual_mcp_nb.base.content import HANDLE_NOTE, KeptText, LargeResult, ToolResult, size_in_words
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.passed import PATH, RESULT
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.whole_result import whole_of
from casual_mcp_nb.conversation.event import CALL_TOOL, READ_RESULT
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult, synthetic_spec
from casual_mcp_nb.engine.results import (
    MAX_CHARACTERS_PER_TOKEN,
    characters_within,
    cut_result,
)
from casual_mcp_nb.errors import shown
from casual_mcp_nb.isolation.worker import GaveUp, Worker

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_KEPT = 128_000_000
"""How many bytes a chat keeps for large results. The oldest go first."""

SECONDS = 10.0
"""Time limit for a question about a result, in seconds."""

_STATEMENT_SECONDS = 5.0
"""The same for one SQL statement."""

_HEAD_SHARE = 4
"""A result's head has at most the result limit divided by this. That of a table has less."""

_HEAD_ROWS = 10
"""A table's head has at most so many rows. A model queries the others with SQL."""

_HEAD_ROW_TOKENS = 200
"""How many tokens these rows have at most."""

_PART_SHARE = 2
"""Reading on returns at most the limit divided by this."""

_USUAL_LIMIT = 4_000
"""The limit on which an answer's size depends if results have none."""

_MAX_OFFSET_DIGITS = 12

_MAX_FOR_APP = 2_000_000
"""How long a result may be that is kept whole for an app, in characters."""

_SPEC = synthetic_spec(
    READ_RESULT,
    "Read on in a large result, search it, or query it.",
    {
        "handle": {"type": "string", "description": "As in its note."},
        "offset": {"type": "integer", "description": "The row or line to begin at, from 0."},
        "path": {
            "type": "string",
            "description": "A part of JSON: items[0].name, items[10:20], items[*].id.",
        },
        "search": {"type": "string", "description": "Text to find."},
        "regex": {"type": "boolean", "description": "Whether search is a regular expression."},
        "sql": {"type": "string", "description": "A SELECT over the table `result` (SQLite)."},
    },
    "handle",
)

DEFINITION = _SPEC.definition
TOKENS = _SPEC.tokens
"""The definition's estimated tokens."""

_MEANINGS = [
    f"{name}: {part.description}"
    for name, part in SchemaReader(_SPEC.input_schema).properties.items()
]

THROUGH_BRIDGE = (
    f"\n[Call it through {CALL_TOOL}, with the name {READ_RESULT}. Its arguments:"
    f" {' '.join(_MEANINGS)}]"
)
"""Follows a large result where the model has no definition of `read_result`."""


def passing(handle: str) -> str:
    """Tell a model how it passes a result on. Follows a large result where another tool could take
    it.
    """
    return f'\n[A tool takes it as {{"{RESULT}": "{handle}"}}, or a part with "{PATH}".]'


def handles_in(messages: Iterable[ChatMessage]) -> set[str]:
    """Collect the large results' handles in the texts of a conversation, for deciding whether to
    offer `read_result`. What it reads is only in `results_in`.
    """
    handles: set[str] = set()
    for message in messages:
        # The results of tasks that have ended between turns come in a message of the user's role.
        if message.role in ("tool", "user") and isinstance(message.content, str):
            handles.update(HANDLE_NOTE.findall(message.content))
    return handles


def results_in(messages: Iterable[ChatMessage]) -> dict[str, ChatMessage]:
    """Collect the messages with large results by the results' handles.

    Only a handle that the engine gave counts, not one in a text, which a server can write as well.
    """
    return {handle: message for message in messages for handle in getattr(message, "handles", ())}


def not_there(handle: str, messages: Iterable[ChatMessage]) -> str:
    """Explain to a model that a result is not kept, and name the call that makes it again."""
    message = results_in(messages).get(handle)
    if message is None:
        return (
            f"there is no result with the handle {shown(handle)} in this conversation, or it is"
            " no longer kept. Call the tool that returned it"
        )
    # A report on a task is in the result of some later call.
    call_id = getattr(message, "origins", {}).get(handle) or getattr(message, "tool_call_id", "")
    again = "the tool"
    for each in messages:
        for call in getattr(each, "tool_calls", None) or ():
            if call.id == call_id:
                again = f"{shown(call.function.name)} with {shown(call.function.arguments)}"
    return (
        f"the whole result {shown(handle)} is not kept any more. Call {again} again, for less at a"
        " time"
    )


class NoAnswer(ValueError):
    """A question about a result has no answer. The message has the reason, for the model."""


class NotKept(NoAnswer):
    """The result is not kept. The message names the call that makes it again, if that is known."""


class Readable(NamedTuple):
    """The part of a result that a model reads at once.

    Args:
        text: The whole text, or its head with a note on how to read on.
        result: The result, cut as the text is.
        large: What was kept of it, without its tokens, or None if the model reads everything.
    """

    text: str
    result: ToolResult | None = None
    large: LargeResult | None = None


@dataclass(eq=False, repr=False)
class LargeResults:
    """Keeps a chat's large results, in memory and within a limit, and answers questions about
    them.
    """

    config_of: Callable[[str], ServerConfig | None] = lambda _: None
    max_bytes: int = MAX_KEPT
    worker: Worker = field(default_factory=Worker)
    _results: OrderedDict[str, KeptText] = field(default_factory=OrderedDict)

    def apart(self) -> LargeResults:
        """Create another conversation's store for large results, empty and queried through the same
        process.
        """
        return LargeResults(self.config_of, self.max_bytes, self.worker)

    def limit_for(self, server: str, default: int) -> int:
        """Look up how many tokens the model reads from a server's result, or 0 for no limit."""
        config = self.config_of(server)
        if config is None or config.max_result_tokens is None:
            return default
        return config.max_result_tokens

    async def within(
        self,
        default: int,
        call_id: str,
        text: str,
        result: ToolResult | None,
        *,
        server: str,
        for_app: bool = False,
    ) -> Readable:
        """Keep a result if it has more tokens than the server's limit, or if it is a table and its
        text has only the first rows.

        Args:
            default: The limit of servers without their own, or 0 for none.
            call_id: The call's id, on which the handle depends.
            text: The result's text.
            result: The result, if there is more than the text.
            server: The server that it came from.
            for_app: Whether the cut result keeps the whole one, for the tool's app.
        """
        limit = self.limit_for(server, default)
        if limit and characters_within(text, limit) < len(text):
            whole, other = await asyncio.to_thread(whole_of, result, text)
            handle, size = await asyncio.to_thread(_handle_and_size, call_id, whole)
            tokens = max(limit // _HEAD_SHARE, MIN_RESULT_TOKENS)
            answer, plain = await self._described(handle, whole, tokens)
            source = self._added(handle, KeptText(whole, plain, server))
            if other:
                other = f"{other[: characters_within(other, tokens // 2)].rstrip()}\n"
            head = _head(handle, answer, size, tokens - estimate_tokens(other))
            if result is not None:
                uncut = result if for_app and len(text) <= _MAX_FOR_APP else None
                result = replace(cut_result(result, limit), whole=uncut)
            return Readable(
                f"{other}{head}", result, LargeResult(handle, answer["what"], size, source=source)
            )
        if result is None or result.rows is None:
            return Readable(text, result)
        rows = result.rows
        handle, size = await asyncio.to_thread(_handle_and_size, call_id, rows.json)
        source = self._added(handle, KeptText(rows.json, server=server))
        note = (
            f"[Result {handle}: {rows.what}, {size_in_words(size)}. {READ_RESULT}"
            f" {_means({'unit': 'rows'})}.]"
        )
        return Readable(
            f"{text}\n{note}", result, LargeResult(handle, rows.what, size, source=source)
        )

    async def ask(
        self,
        messages: Sequence[ChatMessage],
        handle: str,
        question: Mapping[str, Any],
        tokens: int = 0,
    ) -> dict[str, Any]:
        """Answer a question about a result.

        Args:
            messages: The conversation. Only its own results are read.
            handle: The result.
            question: What to do, see `isolation._query`.
            tokens: How many tokens the answer may have, unless the value itself is wanted.

        Returns:
            The answer, with the `server` that the result came from. A whole text that is too long
            to be passed has only its `size`.

        Raises:
            NotKept: There is no such result.
            NoAnswer: There is no such part, or the question is wrong.
            GaveUp: It took too long or too much memory.
        """
        source = self._results.get(handle)
        if source is None or source.text is None or handle not in results_in(messages):
            raise NotKept(not_there(handle, messages))
        size, most = len(source.text), question.get("take")
        if most is not None and size > most and not question["path"]:
            return {"size": size}
        key = f"{handle} as it is" if question.get("as_it_is") else handle
        answer = await self._query(key, source, question, tokens)
        if "error" in answer:
            raise NoAnswer(encodable(answer["error"]))
        return {**answer, "server": source.server}

    def forget_server(self, server: str) -> None:
        """Tell the results of a removed server from those of another one that gets its name."""
        for kept in self._results.values():
            if kept.server == server:
                kept.server = f"{server} (removed)"

    async def close(self, *, for_good: bool = True) -> None:
        """End the process that answers questions.

        Unless for good, the next question starts it again.
        """
        await self.worker.aclose(for_good=for_good)

    def _added(self, handle: str, source: KeptText) -> KeptText:
        """Keep a text as the newest one, and drop the oldest ones beyond the limit.

        Returns:
            The text that is kept: an equal one, if it was already here.
        """
        before = self._results.pop(handle, None)
        if before is not None and before.text == source.text:
            before.server = source.server
            source = before
        self._results[handle] = source
        sizes = [sys.getsizeof(kept.text) for kept in self._results.values()]
        kept_bytes = sum(sizes)
        for size in sizes[:-1]:
            if kept_bytes > self.max_bytes:
                _, oldest = self._results.popitem(last=False)
                oldest.drop()
                kept_bytes -= size
        return source

    async def _described(self, handle: str, whole: str, tokens: int) -> tuple[dict[str, Any], bool]:
        """Describe a result's head, and tell whether it is readable only as plain text."""
        for plain in (False, True):
            try:
                return await self._query(handle, KeptText(whole, plain), {}, tokens), plain
            except GaveUp:
                continue
        # Without the process's help, its beginning is one line.
        description = {
            "what": f"text of {len(whole):,} characters",
            "lines": [whole[: characters_within(whole, tokens)]],
            "unit": "lines",
            "total": 1,
            "header": "",
        }
        return description, True

    async def _query(
        self, key: str, source: KeptText, question: Mapping[str, Any], tokens: int
    ) -> dict[str, Any]:
        """Put a question to the process. It gets the text only if it does not have it yet."""
        # A result that is kept meanwhile may drop it.
        text = source.text
        argument = {
            "key": key,
            "text": None,
            "plain": source.plain,
            "characters": tokens * MAX_CHARACTERS_PER_TOKEN,
            "seconds": _STATEMENT_SECONDS,
            **question,
        }
        answer = await self.worker.call("query", argument, SECONDS)
        if "missing" in answer:
            answer = await self.worker.call("query", {**argument, "text": text}, SECONDS)
        return dict(answer)


def _handle_and_size(call_id: str, text: str) -> tuple[str, int]:
    """Make a result's handle, and count its bytes."""
    # Another conversation may have the same id with another text: that is another handle.
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, key=hashlib.blake2b(call_id.encode()).digest(), digest_size=5)
    return f"r_{digest.hexdigest()}", len(data)


def _head(handle: str, answer: Mapping[str, Any], size: int, tokens: int) -> str:
    """Write what the model reads of a result: how it reads on, its first lines, and the first rows
    of a table in it if they take only half of the tokens.
    """
    lines, next_line = _lines_with_columns(answer, tokens)
    table = answer.get("table")
    if table:
        left = tokens - estimate_tokens("\n".join(lines))
        if left > tokens // 2:
            rows, _ = _lines_with_columns(table, left)
            lines += [f"The first rows of {encodable(table['key'])}:", *rows]
    heading = (
        f"[Result {handle}: {encodable(answer['what'])}, {size_in_words(size)}. You read its head."
    )
    on = f"goes on at offset={next_line}, " if next_line < answer["total"] else ""
    return "\n".join([f"{heading} {READ_RESULT} {on}{_means(answer)}.]", *lines])


def _lines_with_columns(answer: Mapping[str, Any], tokens: int) -> tuple[list[str], int]:
    """List an answer's columns and as many of its lines as fit. Count the whole lines."""
    names = ", ".join(f"{encodable(name)} {kind}" for name, kind in answer.get("columns", ()))
    columns = f"Columns: {names}" if names else ""
    left = tokens - estimate_tokens(columns)
    if left < tokens // 2:
        columns, left = "", tokens
    if answer["unit"] == "rows":
        answer = {**answer, "lines": answer["lines"][:_HEAD_ROWS]}
        left = min(left, _HEAD_ROW_TOKENS + estimate_tokens(answer["header"]))
    lines, whole = _fitting(answer, left)
    return list(filter(None, (columns, encodable(answer["header"]), *lines))), whole


def _means(answer: Mapping[str, Any]) -> str:
    """Name what `read_result` can do with a result."""
    match answer["unit"]:
        case "rows":
            return "searches it, or queries it with sql"
        case "lines":
            return "searches it"
    query = ", queries it with sql" if answer.get("table") else ""
    return f"searches it{query}, or reads a part by path"


def _fitting(answer: Mapping[str, Any], tokens: int) -> tuple[list[str], int]:
    """Fit as many lines as possible, and at least the beginning of the first one.

    Count the whole ones.
    """
    tokens = max(tokens - estimate_tokens(answer["header"]), tokens // 2, 1)
    fitting: list[str] = []
    for line in map(encodable, answer["lines"]):
        needed = estimate_tokens(line) + 1
        if needed > tokens:
            if not fitting:
                return [line[: characters_within(line, tokens)]], 0
            break
        tokens -= needed
        fitting.append(line)
    return fitting, len(fitting)


class ReadResultTool:
    """Answers questions about a large result to a model that has read its head.

    Args:
        messages: The conversation. The tool reads no result outside it.
        limit: The result limit in tokens, or 0 for none. An answer has at most half as many.
    """

    name = READ_RESULT

    def __init__(
        self, messages: Sequence[ChatMessage], large_results: LargeResults, limit: int
    ) -> None:
        self._messages = messages
        self._large_results = large_results
        self._tokens = max((limit or _USUAL_LIMIT) // _PART_SHARE, MIN_RESULT_TOKENS)

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`."""
        return dict(DEFINITION)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Read a part of a result, search it or list its rows. Returns errors as sentences."""
        return SyntheticToolResult(await self._answer(args), [], None)

    async def _answer(self, args: Mapping[str, Any]) -> str:
        handle, offset = str(args.get("handle", "")), str(args.get("offset") or 0)
        if not offset.isdecimal() or len(offset) > _MAX_OFFSET_DIGITS:
            return "Error: offset must be a whole number, 0 or more."
        question = {name: args[name] for name in ("path", "search", "sql") if args.get(name)}
        are_texts = all_are(question.values(), str)
        if not are_texts or ("search" in question and "sql" in question):
            return "Error: path, search and sql are texts; give search or sql, not both."
        question = {**question, "regex": args.get("regex") is True, "offset": int(offset)}
        try:
            answer = await self._large_results.ask(self._messages, handle, question, self._tokens)
        except NoAnswer as error:
            return f"Error: {error}."
        except GaveUp as error:
            return f"Error: the question was not answered: {error}. Ask for less at a time."
        return _part(answer, int(offset), self._tokens)


def _part(answer: Mapping[str, Any], start: int, tokens: int) -> str:
    lines, _ = _fitting(answer, tokens)
    end, total = start + len(lines), answer["total"]
    where = f"[0 {answer['unit']}]"
    if lines:
        where = f"[{answer['unit']} {start:,} to {end - 1:,} of {total:,}]"
    note = f"[offset={end} goes on]" if end < total else "[This is the end.]"
    return "\n".join(filter(None, (where, encodable(answer["header"]), *lines, note)))
