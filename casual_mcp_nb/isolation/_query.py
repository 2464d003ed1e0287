"""Read on in, search or query a large result. Runs in the worker process, without the package."""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

Kind = Literal["table", "json", "text"]

MAX_LINE = 1_000
"""Longer lines are wrapped, so that each can be read."""
MAX_CELL = 200
"""Longer values in a row or a list are cut. A path reads them whole."""
MAX_COLUMNS_NAMED = 60
_MAX_KEYS_NAMED = 12
_MAX_DIGITS = 9
_MAX_MATCH = 240
_MAX_HEADER = 2_000
_MAX_SQL = 10_000
_MAX_VALUE_BYTES = 5_000_000
_STEPS_BETWEEN_CHECKS = 10_000
_json = json.JSONEncoder(ensure_ascii=False).encode
TABLE = "result"
"""The table's name in SQL."""

_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_STEP = re.compile(
    r"\.?(?:\[(?P<index>-?\d{1,9}|\*|-?\d{0,9}:-?\d{0,9})\]|\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]|(?P<key>[^.\[\]]+))",
    re.DOTALL,
)
_WRAPPER = re.compile(r'\s*\{\s*"result"\s*:')
_COLUMN_NAME = re.compile(r"[^\d\W][\w .()/%#-]{0,60}")


class BadQuery(ValueError):
    """A question cannot be answered. The message has the reason."""


class _View(NamedTuple):
    """A value as lines that can be read from any one on."""

    what: str
    unit: str
    total: int
    lines: Callable[[int], Iterable[str]]
    header: str = ""


def query(argument: dict[str, Any]) -> dict[str, Any]:
    """Answer one question about a result.

    Args:
        argument: `key`, which result; `text`, all of it, or None for the last one again; `plain`,
            whether it is text whatever it looks like; `as_it_is`, whether its text is wanted;
            `characters`, the answer size; `seconds`, the time for a statement; and what to do:
            `path` selects a part, `sql` queries it, `search` (as a `regex` or not) finds lines,
            `offset` is where to begin. With `take`, the value itself is wanted, of at most so many
            characters, `as_text` or not, with its first `head` characters.

    Returns:
        `missing`, if the text is needed; `error`; or `what`, `columns` (name and type), `unit`,
        `total`, `header` and `lines`; and for an object with one table in it `table`, the same for
        that, with its `key`. With `take`, see `_taken`.
    """
    if argument["text"] is None and _last[0] != argument["key"]:
        return {"missing": True}
    try:
        value = _part(_parsed(argument), argument.get("path") or "")
        limit = argument.get("take")
        if limit is not None:
            return _taken(value, limit, argument)
        if statement := argument.get("sql"):
            view = _selected(value, statement, argument["seconds"])
        elif search := argument.get("search"):
            view = _searched(value, search, bool(argument.get("regex")))
        else:
            view = _view(value)
        start = argument.get("offset", 0)
        if start and start >= view.total:
            raise BadQuery(f"offset is beyond the end: there are {view.total:,} {view.unit}")
    except (BadQuery, re.error, sqlite3.Error, sqlite3.Warning, OverflowError) as error:
        return {"error": str(error)}
    answer = _answer(value, view, start, argument["characters"])
    if view.unit == "keys":
        tables = _tables_in(value)
        if len(tables) == 1:
            table = value[tables[0]]
            inner = _answer(table, _view(table), 0, argument["characters"])
            answer["table"] = {"key": tables[0], **inner}
    return answer


def _taken(value: Any, limit: int, argument: dict[str, Any]) -> dict[str, Any]:
    """Return a value with its description, its size in characters and how it begins, or without
    itself if it is larger than the limit.
    """
    text = _as_text(value)
    taken = {"what": _what(value), "size": len(text), "head": text[: argument["head"]]}
    if len(text) <= limit:
        taken["value"] = text if argument["as_text"] else value
    return taken


def _answer(value: Any, view: _View, start: int, characters: int) -> dict[str, Any]:
    columns: list[str] = []
    if view.unit == "rows" and _is_table(value):
        columns = list(_columns(value))[:MAX_COLUMNS_NAMED]
    return {
        "what": view.what,
        "columns": [[name, _type_of(value, name)] for name in columns],
        "unit": view.unit,
        "total": view.total,
        "header": view.header,
        "lines": _within(view.lines(start), characters),
    }


def part_of(text: str, path: str, *, as_text: bool, plain: bool) -> Any:
    """Find a result's value, or the part of it at a path.

    Args:
        text: The whole result.
        path: The part, see `pick`, or empty for all.
        as_text: Whether a text is wanted: as the tool gave it, or else as JSON.
        plain: Whether it is text whatever it looks like.

    Raises:
        BadQuery: There is no such part.
    """
    value = _part(_parse(text, plain=plain, as_it_is=as_text and not path), path)
    return _as_text(value) if as_text else value


def _part(parsed: tuple[Kind, Any], path: str) -> Any:
    kind, value = parsed
    if not path:
        return value
    if kind == "text":
        raise BadQuery("a path needs JSON, and this is text")
    return pick(value, path)


def _parse(text: str, *, plain: bool, as_it_is: bool) -> tuple[Kind, Any]:
    """Parse a text, unless it is wanted as it is."""
    if plain:
        return "text", text
    if as_it_is:
        return "text", _unwrapped(text)
    return parse(text)


def _unwrapped(text: str) -> str:
    """Return a text as the tool gave it. FastMCP's servers put a value into `{"result": ...}`."""
    if not _WRAPPER.match(text):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _as_text(value["result"]) if _wraps(value) else text


def _wraps(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["result"]


def parse(text: str) -> tuple[Kind, Any]:
    """Parse a text: a table's rows as objects, a JSON value, or the text.

    A list of objects, JSON lines and CSV with a header are tables. FastMCP's servers put a list
    into `{"result": [...]}`.
    """
    if text.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            rows = _json_lines(text)
            if not rows:
                return "text", text
            return "table", rows
        if _wraps(value):
            value = value["result"]
        if isinstance(value, str):
            return "text", value
        if _is_table(value):
            return "table", value
        return "json", value
    rows = _csv_rows(text)
    if not rows:
        return "text", text
    return "table", rows


_last: tuple[str | None, tuple[Kind, Any]] = (None, ("text", ""))


def _parsed(argument: dict[str, Any]) -> tuple[Kind, Any]:
    """Parse a result, or return the last one again: a model asks several times about the same
    one.
    """
    global _last
    text = argument["text"]
    if text is not None:
        # The process's memory is limited.
        _last = (None, ("text", ""))
        plain, as_it_is = bool(argument.get("plain")), bool(argument.get("as_it_is"))
        _last = (argument["key"], _parse(text, plain=plain, as_it_is=as_it_is))
    return _last[1]


def _json_lines(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or any(line.lstrip()[:1] != "{" for line in lines):
        return []
    try:
        rows = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return []
    return rows if _is_table(rows) else []


def _csv_rows(text: str) -> list[dict[str, Any]]:
    first = text.partition("\n")[0]
    delimiter = max("\t;,|", key=first.count)
    if delimiter not in first or text.count("\n") < 2:
        return []
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        names, *rows = filter(None, lines)
    except (csv.Error, ValueError):
        return []
    if not rows or len(set(names)) < len(names) or not all(map(_COLUMN_NAME.fullmatch, names)):
        return []
    if any(len(row) != len(names) for row in rows):
        return []
    columns = [_numbers(column) for column in zip(*rows, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _numbers(column: Sequence[str]) -> Sequence[Any]:
    """Convert a column to numbers if every cell is one, with None for empty cells."""
    for number in (int, float):
        try:
            return [number(cell) if cell else None for cell in column]
        except ValueError:
            continue
    return column


def pick(value: Any, path: str) -> Any:
    """Find the value at a path such as `users[0].name`, `users[10:20]` or `users[*].name`.

    `[*]` selects every item in a list or object and returns a list. A key with other characters is
    written `['a.b']`.
    """
    steps: list[str | int | slice | None] = []
    remaining = path.strip().removeprefix("$")
    while remaining:
        match = _STEP.match(remaining)
        if match is None:
            raise BadQuery(
                f"the path is not valid at {remaining[:40]!r}; write it like users[0].name or"
                " users[*].name"
            )
        index = match["index"]
        if index is None:
            steps.append(match["key"] if match["quoted"] is None else match["quoted"])
        elif ":" in index:
            begin, _, end = index.partition(":")
            steps.append(slice(int(begin or 0), int(end) if end else None))
        elif index == "*":
            steps.append(None)
        else:
            steps.append(int(index))
        remaining = remaining[match.end() :]
    return _follow(value, steps)


def _follow(value: Any, steps: Sequence[str | int | slice | None]) -> Any:
    for index, step in enumerate(steps):
        if step is None:
            return [_follow(item, steps[index + 1 :]) for item in _items(value)]
        value = _child(value, step)
    return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    raise BadQuery(f"[*] needs a list, but there is {_kind_words(value)}")


def _child(value: Any, step: str | int | slice) -> Any:
    if isinstance(value, list) and isinstance(step, str) and step.isdecimal():
        # As in `rows.0.name`.
        step = int(step[:_MAX_DIGITS])
    if not isinstance(step, str):
        if not isinstance(value, list):
            raise BadQuery(f"a number in brackets needs a list, but there is {_kind_words(value)}")
        if isinstance(step, int) and not -len(value) <= step < len(value):
            raise BadQuery(f"[{step}] is outside the list of {len(value):,} items")
        if isinstance(step, slice) and value and step.start >= len(value):
            raise BadQuery(f"[{step.start}:] is beyond the list of {len(value):,} items")
        return value[step]
    if not isinstance(value, dict):
        raise BadQuery(f"the key {step[:40]!r} needs an object, but there is {_kind_words(value)}")
    if step not in value:
        keys = list(value)[:1_000]
        near = difflib.get_close_matches(step[:100], keys, 3, 0.5)
        named = ", ".join(key[:40] for key in near or keys[:_MAX_KEYS_NAMED]) or "none"
        kind = "closest" if near else "keys"
        raise BadQuery(f"there is no key {step[:40]!r}; {kind}: {named}")
    return value[step]


def _kind_words(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(type(value), "a number")


def _is_table(value: Any) -> bool:
    if not isinstance(value, list) or not any(value):
        return False
    return all(isinstance(row, dict) for row in value)


def _columns(rows: Iterable[dict[str, Any]]) -> dict[str, None]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return names


def _type_of(rows: Sequence[dict[str, Any]], name: str) -> str:
    value = next((row[name] for row in rows if row.get(name) is not None), None)
    names = {
        bool: "boolean",
        int: "integer",
        float: "real",
        str: "text",
        list: "list",
        dict: "object",
    }
    return names.get(type(value), "null")


def _view(value: Any) -> _View:
    """Format a value as lines: the rows of a table, the items of a list, the keys of an object, a
    text's lines.
    """
    what = _what(value)
    if _is_table(value):
        names = list(_columns(value))

        def rows(start: int) -> Iterator[str]:
            for row in value[start:]:
                yield _csv_line(_cell(row.get(name)) for name in names)

        return _View(what, "rows", len(value), rows, _csv_line(names)[:_MAX_HEADER])
    if isinstance(value, list):
        return _View(what, "items", len(value), partial(_items_from, value))
    if isinstance(value, dict):
        return _View(what, "keys", len(value), partial(_entries_from, list(value.items())))
    lines = _text_lines(_as_text(value))
    return _View(what, "lines", len(lines), partial(_from, lines))


def _from(lines: list[str], start: int) -> list[str]:
    return lines[start:]


def _items_from(items: list[Any], start: int) -> Iterator[str]:
    return map(_brief, items[start:])


def _entries_from(entries: list[tuple[str, Any]], start: int) -> Iterator[str]:
    for key, item in entries[start:]:
        yield f"{key[:MAX_CELL]}: {_brief(item)}"


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _json(value)


def _what(value: Any) -> str:
    """Describe a value by its kind and size."""
    if _is_table(value):
        return f"table of {_count(len(value), 'row')}, {_count(len(_columns(value)), 'column')}"
    if isinstance(value, list):
        return f"list of {_count(len(value), 'item')}"
    if isinstance(value, dict):
        named = [str(key)[:40] for key in list(value)[:_MAX_KEYS_NAMED]]
        if len(value) > _MAX_KEYS_NAMED:
            named.append("…")
        return f"object with {_count(len(value), 'key')} ({', '.join(named)})"
    if isinstance(value, str):
        return f"text of {_count(len(value), 'character')}"
    return _kind_words(value)


def _count(number: int, unit: str, plural: str = "") -> str:
    if number != 1:
        unit = plural or f"{unit}s"
    return f"{number:,} {unit}"


def _brief(value: Any) -> str:
    """Format a value on one line, or describe it if that is too long."""
    if isinstance(value, dict | list) and len(value) > _MAX_KEYS_NAMED:
        return _what(value)
    text = _as_text(value)
    if len(text) > MAX_CELL:
        if isinstance(value, dict | list):
            return _what(value)
        return _cut(text)
    if isinstance(value, str):
        return " ".join(text.splitlines())
    return text


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return _cut(_as_text(value))


def _cut(text: str) -> str:
    if len(text) <= MAX_CELL:
        return text
    return f"{text[:MAX_CELL]}… ({len(text):,} characters)"


def _csv_line(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([" ".join(cell.splitlines()) for cell in cells])
    return line.getvalue()


def _text_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if max(map(len, lines)) <= MAX_LINE:
        return lines
    wrapped: list[str] = []
    for line in lines:
        starts = range(0, max(len(line), 1), MAX_LINE)
        wrapped += [line[start : start + MAX_LINE] for start in starts]
    return wrapped


def _within(lines: Iterable[str], characters: int) -> list[str]:
    """Join as many lines as fit, and at least one."""
    fitting: list[str] = []
    for line in lines:
        characters -= len(line) + 1
        if characters < 0 and fitting:
            break
        fitting.append(line)
    return fitting


def _searched(value: Any, search: str, is_regex: bool) -> _View:
    if is_regex:
        pattern = re.compile(search)
    else:
        pattern = re.compile(re.escape(search), re.IGNORECASE)
    matches = []
    for label, text in _searchable(value):
        match = pattern.search(text)
        if match is not None:
            matches.append(_around(label, text, match.start()))
    header = ""
    if matches and _is_table(value):
        header = _csv_line(_columns(value))[:_MAX_HEADER]
    what = _count(len(matches), "match", "matches")
    return _View(what, "matches", len(matches), partial(_from, matches), header)


def _searchable(value: Any) -> Iterator[tuple[str, str]]:
    """Iterate over the searchable parts, each with its location: rows, lines, or the JSON single
    values.
    """
    if _is_table(value):
        names = list(_columns(value))
        for number, row in enumerate(value):
            yield f"row {number}", ",".join([_whole(row.get(name)) for name in names])
    elif isinstance(value, str):
        for number, line in enumerate(_text_lines(value)):
            yield f"line {number}", line
    else:
        waiting: list[tuple[str, Any]] = [("", value)]
        while waiting:
            path, item = waiting.pop()
            if isinstance(item, dict):
                for key, child in reversed(item.items()):
                    waiting.append((f"{path}.{key}" if path else str(key), child))
            elif isinstance(item, list):
                for index in range(len(item) - 1, -1, -1):
                    waiting.append((f"{path}[{index}]", item[index]))
            else:
                # The text searched for can be a key.
                yield path, f"{path}: {_whole(item)}"


def _whole(value: Any) -> str:
    return "" if value is None else _as_text(value)


def _around(label: str, text: str, at: int) -> str:
    start = 0
    if len(text) > _MAX_MATCH:
        start = max(0, at - _MAX_MATCH // 3)
    part = " ".join(text[start : start + _MAX_MATCH].splitlines())
    if start + _MAX_MATCH < len(text):
        part = f"{part}…"
    if start:
        return f"{label}: …{part}"
    if text.startswith(f"{label}: "):
        return part
    return f"{label}: {part}"


def _selected(value: Any, statement: str, seconds: float) -> _View:
    """Run a SELECT over a table in memory. Nothing else is permitted."""
    if len(statement) > _MAX_SQL:
        raise BadQuery(f"the statement is longer than {_MAX_SQL:,} characters")
    connection = _database(_table_in(value))
    try:
        until = time.monotonic() + seconds

        def is_late() -> bool:
            return time.monotonic() > until

        connection.set_progress_handler(is_late, _STEPS_BETWEEN_CHECKS)
        connection.set_authorizer(_allow_reading)
        cursor = connection.execute(statement)
        names = [column[0] for column in cursor.description or ()]
        lines = [_csv_line(map(_sql_cell, row)) for row in cursor]
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise TimeoutError from None
        raise
    except sqlite3.DatabaseError as error:
        if any(word in str(error) for word in ("not authorized", "prohibited")):
            raise BadQuery(f"only SELECT is permitted, over the table {TABLE}") from None
        raise
    finally:
        connection.close()
    header = _csv_line(names)[:_MAX_HEADER]
    return _View(_count(len(lines), "row"), "rows", len(lines), partial(_from, lines), header)


def _allow_reading(action: int, *_details: object) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _table_in(value: Any) -> list[dict[str, Any]]:
    """Find a value's table: itself, or the only list of objects in an object."""
    if _is_table(value):
        return list(value)
    tables = _tables_in(value)
    if len(tables) == 1:
        return list(value[tables[0]])
    if tables:
        raise BadQuery(f"name the table with path: {', '.join(tables[:_MAX_KEYS_NAMED])}")
    raise BadQuery(
        f"SQL needs a table, a list of objects, but there is {_kind_words(value)}; select one with"
        " path"
    )


def _tables_in(value: Any) -> list[str]:
    """List the keys of an object's tables."""
    if not isinstance(value, dict):
        return []
    return [key for key, item in value.items() if _is_table(item)]


def _database(rows: list[dict[str, Any]]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # A large sort would spill to files, which no limit covers.
    connection.execute("PRAGMA temp_store = MEMORY")
    keys = list(_columns(rows))[: connection.getlimit(sqlite3.SQLITE_LIMIT_COLUMN)]
    names: list[str] = []
    taken: set[str] = set()
    for key in keys:
        # Column names are compared without case.
        name = _encodable(key).replace("\0", "") or "column"
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        names.append('"' + name.replace('"', '""') + '"')
    connection.execute(f"CREATE TABLE {TABLE} ({', '.join(names)})")
    insert = f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(keys))})"
    connection.execute("BEGIN")
    connection.executemany(insert, ([_sql_value(row.get(key)) for key in keys] for row in rows))
    connection.execute("COMMIT")
    return connection


def _sql_value(value: Any) -> Any:
    match value:
        case None | bool() | float():
            return value
        case int():
            if -(2**63) <= value < 2**63:
                return value
            return str(value)
        case str():
            return _encodable(value)
    return _encodable(_json(value))


def _sql_cell(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return _cell(value)


def _encodable(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
