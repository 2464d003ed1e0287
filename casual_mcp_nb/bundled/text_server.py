"""The `text` server: read, count, extract, compare and convert text."""

from __future__ import annotations

import base64
import csv
import difflib
import hashlib
import io
import json
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from casual_mcp_nb.bundled._documents import html_to_text as text_of_html
from casual_mcp_nb.bundled._server import FunctionServer, brought_by_bundled, counted, reads
from casual_mcp_nb.isolation import _query

_FUNCTIONS = {
    "abs", "avg", "ceil", "contains", "ends_with", "floor", "keys", "length", "max", "max_by",
    "min", "min_by", "not_null", "reverse", "sort", "sort_by", "starts_with", "sum", "to_number",
    "to_string", "type", "values",
}  # fmt: skip
"""Functions whose result is about as large as their input; join and map can make a list of
millions.
"""
_MAX_COPIES = 30


def pick(value: Any, query: str) -> Any:
    """Evaluate a path or a JMESPath query.

    A path is read as in `read_result`: if it leads nowhere, the error names the available keys.

    Raises:
        ToolError: The query is not valid, or finds nothing.
    """
    try:
        return _query.pick(value, query)
    except _query.BadQuery as error:
        matches = _searched(value, query)
        if matches is None:
            text = str(error)
            raise ToolError(f"{text[0].upper()}{text[1:]}.") from None
        return matches


def _searched(value: Any, query: str) -> Any:
    with brought_by_bundled("A JMESPath query"):
        import jmespath
        from jmespath.exceptions import JMESPathError
    try:
        with warnings.catch_warnings(action="ignore"):
            expression = jmespath.compile(query.strip().removeprefix("$."))
    except (JMESPathError, RecursionError):
        return None
    _check_cost(expression.parsed)
    try:
        return expression.search(value)
    except (JMESPathError, RecursionError, TypeError, ValueError, OverflowError) as error:
        raise ToolError(f"The query cannot be answered: {str(error)[:200]}.") from error


def _check_cost(parsed: dict[str, Any]) -> None:
    """Refuse a query whose result could be far larger than the value that it is applied to."""
    refused, selections, copies = set(), 0, 0
    for node in _nodes(parsed):
        match node["type"]:
            case "function_expression" if node["value"] not in _FUNCTIONS:
                refused.add(str(node["value"]))
            case "multi_select_list" | "multi_select_dict":
                selections += 1
                copies += len(node["children"])
    if refused:
        raise ToolError(
            f"The function {min(refused)} is not offered here. Valid:"
            f" {', '.join(sorted(_FUNCTIONS))}."
        )
    # Lists that repeat a value, each built from the previous one, would grow without end.
    if selections > 2 or copies > _MAX_COPIES:
        raise ToolError(
            f"The query selects too much: at most two [a, b] or {{a: b}}, with {_MAX_COPIES}"
            " values."
        )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _nodes(child)


MAX_CHARACTERS = 200_000
_MAX_LINES = 2000
_MAX_RESULT = 1_000_000

Text = Annotated[str, Field(description="The text", max_length=MAX_CHARACTERS)]

# The character before an address is looked at and every repeat has a bound, so no text makes the
# search slow.
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_URL = re.compile(r"\bhttps?://[^\s<>\"'`]{1,2000}", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")


def build() -> FunctionServer:
    """Build the server."""
    tools = reads(
        html_to_text,
        count_words,
        extract_emails,
        extract_urls,
        diff_texts,
        find_replace,
        sort_lines,
        slugify,
        hash_text,
        encode_base64,
        decode_base64,
        csv_to_markdown,
        query_json,
    )
    return FunctionServer("text", "Read, count, extract, compare and convert text.", tools)


def html_to_text(
    html: Annotated[str, Field(description="The HTML page", max_length=MAX_CHARACTERS)],
) -> str:
    """Turn an HTML page into plain readable text with the addresses of its links; tags, scripts and
    styles are dropped.
    """
    return text_of_html(html)


def count_words(text: Text) -> dict[str, Any]:
    """Count the words, characters, lines and sentences of a text.

    Also returns its most frequent words.
    """
    words, lines = _WORD.findall(text), text.splitlines()
    sizes = [
        counted(len(words), "word"),
        counted(len(text), "character"),
        counted(len(lines), "line"),
    ]
    return {
        "summary": f"The text has {', '.join(sizes)}.",
        "words": len(words),
        "characters": len(text),
        "characters_without_spaces": sum(not character.isspace() for character in text),
        "lines": len(lines),
        "sentences": len(re.findall(r"[.!?…](?=\s|$)", text)),
        "most_frequent": dict(Counter(word.casefold() for word in words).most_common(10)),
    }


def extract_emails(text: Text) -> dict[str, Any]:
    """Find all e-mail addresses in a text, each one once."""
    return _unique(_EMAIL.findall(text))


def extract_urls(text: Text) -> dict[str, Any]:
    """Find all web addresses (http and https links) in a text, each one once."""
    return _unique(list(map(_without_trailing_marks, _URL.findall(text))))


def _without_trailing_marks(url: str) -> str:
    """Cut the marks of a sentence off an address, and a bracket that was opened before it."""
    while url[-1:] in {*".,;:!?)]}"}:
        opening = {")": "(", "]": "[", "}": "{"}.get(url[-1])
        if opening and url.count(opening) >= url.count(url[-1]):
            break
        url = url[:-1]
    return url


def diff_texts(
    before: Annotated[str, Field(description="The old text", max_length=MAX_CHARACTERS)],
    after: Annotated[str, Field(description="The new text", max_length=MAX_CHARACTERS)],
) -> dict[str, Any]:
    """Compare two texts line by line.

    Returns a unified diff, counts of changes, and a similarity 0 to 1.
    """
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MAX_LINES:
        raise ToolError(f"Texts of more than {_MAX_LINES} lines are not compared.")
    diff = list(difflib.unified_diff(old, new, "before", "after", lineterm=""))
    changes = Counter(line[0] for line in diff[2:])
    similarity = difflib.SequenceMatcher(None, old, new).ratio()
    return {
        "diff": "\n".join(diff),
        "added": changes["+"],
        "removed": changes["-"],
        "similarity": round(similarity, 3),
    }


def find_replace(
    text: Text,
    find: Annotated[
        str, Field(description="What to find, literally", min_length=1, max_length=1000)
    ],
    replace: Annotated[str, Field(description="What to put in its place", max_length=10_000)],
    ignore_case: Annotated[bool, Field(description="true ignores upper and lower case")] = False,
    whole_words: Annotated[bool, Field(description="true replaces whole words only")] = False,
) -> dict[str, Any]:
    """Replace every occurrence of a phrase in a text.

    Returns the new text and how many were replaced.
    """
    expression = re.escape(find)
    if whole_words:
        expression = rf"(?<!\w){expression}(?!\w)"
    pattern = re.compile(expression, re.IGNORECASE if ignore_case else 0)
    count = sum(1 for _ in pattern.finditer(text))
    if len(text) + count * len(replace) > _MAX_RESULT:
        raise ToolError(f"The result would have more than {_MAX_RESULT:,} characters.")
    return {"text": pattern.sub(lambda _match: replace, text), "replaced": count}


def sort_lines(
    text: Text,
    order: Annotated[
        Literal["ascending", "descending"], Field(description="The order")
    ] = "ascending",
    by: Annotated[
        Literal["text", "number", "length"], Field(description="What to sort by")
    ] = "text",
    unique: Annotated[bool, Field(description="true keeps each line only once")] = False,
) -> str:
    """Sort the lines of a text by text, by the first number in them, or by length; can drop
    duplicates.
    """
    lines = text.splitlines()
    if unique:
        lines = list(dict.fromkeys(lines))
    descending = order == "descending"
    if by == "number":
        # Lines without one come last in both orders.
        numbered = [line for line in lines if _first_number(line) is not None]
        others = [line for line in lines if _first_number(line) is None]
        return "\n".join([*sorted(numbered, key=_first_number, reverse=descending), *others])  # type: ignore[arg-type]
    key: Callable[[str], Any] = len if by == "length" else str.casefold
    return "\n".join(sorted(lines, key=key, reverse=descending))


def slugify(
    text: Annotated[str, Field(description="A title or name", max_length=1000)],
    separator: Annotated[Literal["-", "_"], Field(description="What to put between words")] = "-",
) -> str:
    """Make a slug out of a title, a short name for URLs and files, such as 'crème brûlée!' into
    'creme-brulee'.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return separator.join(re.findall(r"[a-z0-9]+", plain.lower()))


def hash_text(
    text: Text,
    algorithm: Annotated[
        Literal["sha256", "sha512", "sha1", "md5"], Field(description="The hash function")
    ] = "sha256",
) -> str:
    """Calculate the hash (checksum) of a text in UTF-8. Returns it as hexadecimal digits."""
    return hashlib.new(algorithm, _encoded(text), usedforsecurity=False).hexdigest()


def encode_base64(
    text: Text,
    url_safe: Annotated[bool, Field(description="true uses - and _ instead of + and /")] = False,
) -> str:
    """Encode a text in UTF-8 as Base64."""
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    return encode(_encoded(text)).decode()


def decode_base64(
    text: Annotated[
        str, Field(description="The Base64, ordinary or URL-safe", max_length=MAX_CHARACTERS)
    ],
) -> str:
    """Decode Base64 to the text it stands for."""
    compact = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True).decode()
    except UnicodeDecodeError as error:
        raise ToolError("It decodes to bytes that are not UTF-8 text.") from error
    except ValueError as error:
        raise ToolError(
            "Not Base64: only A-Z, a-z, 0-9, + and / (or - and _) are valid."
        ) from error


def csv_to_markdown(
    text: Annotated[
        str, Field(description="The CSV; its first line is the heading", max_length=MAX_CHARACTERS)
    ],
    delimiter: Annotated[
        Literal[",", ";", "\t", "|"], Field(description="What separates the cells")
    ] = ",",
) -> str:
    """Turn CSV into a Markdown table."""
    try:
        rows = list(filter(None, csv.reader(io.StringIO(text), delimiter=delimiter)))
    except csv.Error as error:
        raise ToolError(f"Not valid CSV: {error}.") from error
    if not rows:
        raise ToolError("The CSV is empty. It needs a heading line.")
    width = max(map(len, rows))
    if width * len(rows) > _MAX_RESULT // 4:
        raise ToolError("The table is too large.")
    lines = [_table_row(row, width) for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def query_json(
    text: Annotated[str, Field(description="The JSON", max_length=MAX_CHARACTERS)],
    path: Annotated[
        str,
        Field(
            description=(
                "What to pick: a path such as 'users[0].name' or 'users[*].name', or JMESPath;"
                " empty for all"
            ),
            max_length=500,
        ),
    ] = "",
) -> dict[str, Any]:
    """Check JSON and pick values out of it by a path or a JMESPath query.

    Returns the value and its type.
    """
    try:
        value = pick(json.loads(text, parse_constant=_no_constant), path)
    except json.JSONDecodeError as error:
        raise ToolError(
            f"Not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ToolError(
            "Not usable JSON: nested too deeply, or a number that JSON does not have."
        ) from error
    return {"value": value, "type": type(value).__name__}


def _unique(items: list[str]) -> dict[str, Any]:
    unique = list(dict.fromkeys(items))
    return {"summary": ", ".join(unique) or "None.", "count": len(unique), "found": unique}


def _first_number(line: str) -> float | None:
    # A minus after a word is a hyphen, as in `item-10`.
    match = re.search(r"(?:(?<!\w)-)?\d{1,300}(?:\.\d{1,300})?", line)
    return float(match[0]) if match else None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            "The text has characters that UTF-8 cannot hold (lone surrogates)."
        ) from error


def _table_row(row: list[str], width: int) -> str:
    cells = [" ".join(cell.replace("|", "\\|").split()) for cell in row]
    cells += [""] * (width - len(row))
    return f"| {' | '.join(cells)} |"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
