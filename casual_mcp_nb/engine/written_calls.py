"""Read calls that a model wrote as text: in the tags of its template, in fenced code, or at the
beginning of a line.

Nothing is evaluated. A call's arguments can be JSON, Python literals, or tags for each argument.
`FORMS` has the sources.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from casual_mcp_nb.base.arguments import values_in
from casual_mcp_nb.base.schema import SchemaReader

MAX_TEXT = 20_000
"""Maximum characters in a text to parse."""
MAX_CALLS = 16
_MAX_NAME = 128
_MAX_ARGUMENTS = 100


class Form(NamedTuple):
    """A form in which models write calls.

    Args:
        models: The models whose templates have it.
        source: Where it is defined.
        seen: When that was looked up.
    """

    models: str
    source: str
    seen: str


_PARSERS = "github.com/vllm-project/vllm, vllm/tool_parsers"

FORMS: Mapping[str, Form] = {
    "tool_call": Form("Hermes, Qwen 2.5 and 3", f"{_PARSERS}/hermes_tool_parser.py", "2026-11-23"),
    "function=": Form("Llama 3", f"{_PARSERS}/llama_tool_parser.py", "2026-11-23"),
    "python_tag": Form("Llama 3", f"{_PARSERS}/llama_tool_parser.py", "2026-11-23"),
    "TOOL_CALLS": Form("Mistral", f"{_PARSERS}/mistral_tool_parser.py", "2026-11-23"),
    "deepseek v3": Form("DeepSeek V3, R1", f"{_PARSERS}/deepseekv3_tool_parser.py", "2026-11-28"),
    "deepseek v3.1": Form("DeepSeek V3.1", f"{_PARSERS}/deepseekv31_tool_parser.py", "2026-11-28"),
    "deepseek dsml": Form(
        "DeepSeek V3.2, V4", f"{_PARSERS}/deepseekv32_tool_parser.py", "2026-11-28"
    ),
    "kimi": Form("Kimi K2", f"{_PARSERS}/kimi_k2_tool_parser.py", "2026-11-28"),
    "glm": Form("GLM 4.5 to 4.7", f"{_PARSERS}/glm4_moe_tool_parser.py", "2026-11-28"),
    "qwen coder": Form("Qwen3 Coder", f"{_PARSERS}/qwen3coder_tool_parser.py", "2026-11-28"),
    "harmony": Form("gpt-oss", "github.com/openai/harmony, docs/format.md", "2026-11-28"),
    "anthropic": Form(
        "Claude, and models trained on its answers", "docs.claude.com, tool use", "2026-11-28"
    ),
}
"""The forms of templates. Others are fenced code, and JSON or Python at the beginning of a line."""

_OPENING = re.compile(
    r"<(?P<tag>tool_calls?|function_calls?)>"
    r"|<function=(?P<function>[^>\s]{1,128})>"
    r"|<(?P<prefix>[a-z]{1,12}:|\uff5cDSML\uff5c)?invoke"
    r" name=[\"'](?P<invoke>[^\"'>]{1,128})[\"'][^>]{0,100}>"
    r"|<\uff5ctool▁call▁begin\uff5c>(?P<deepseek>[^<\s]{1,128})<\uff5ctool▁sep\uff5c>"
    r"|<\|tool_call_begin\|>\s{0,9}(?P<kimi>[^<\s]{1,128})\s{0,9}<\|tool_call_argument_begin\|>"
    r"|\bto=functions\.(?P<harmony>[\w.-]{1,128})"
    r"|<\|(?:python_tag|tool_call)\|>|\[TOOL_CALLS\]"
    r"|```[a-z_]{0,12}"
)
_LINE = re.compile(r"^[ \t]*(?=[\[{]|[A-Za-z_][\w.]{0,127}\()", re.MULTILINE)
_PARAMETER = re.compile(
    r"<(?:[a-z]{1,12}:|\uff5cDSML\uff5c)?parameter(?:=|\s+name=)[\"']?(?P<name>[^\"'>\s]{1,128})[\"']?(?:\s+string=\"(?P<text>true|false)\")?>"
)
_PARAMETER_END = re.compile(r"</(?:[a-z]{1,12}:|\uff5cDSML\uff5c)?parameter>")
_FENCE = "```"
_FENCED = re.compile(r"\s{0,99}```[a-z]{0,12}\s{0,99}")
_DEEPSEEK_TYPE = "function"
_NUMBERED = re.compile(r":\d{1,6}\Z")
_HEADER = 100
"""How many characters a header of harmony may have between the tool's name and its arguments."""
_NAMES = ("name", "tool_name", "tool", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "tool_input", "input")
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,127}")
_CONSTANTS = {"True": True, "False": False, "None": None}

Schemas = Callable[[str], Mapping[str, Any] | None]
"""Finds the schema of the arguments that a tool takes, by the tool's name as it was written."""


class WrittenCall(NamedTuple):
    """A call that the model wrote as text, perhaps in the tags of a template."""

    name: str
    arguments: dict[str, Any]
    tagged: bool = False


class _Part(NamedTuple):
    """A part of a text that can be a call.

    Args:
        start: Where it begins.
        name: The tool's name, where the form has it outside the arguments.
        value: The arguments, or whole calls where there is no name. A text is parsed as JSON or
            Python.
        certain: Whether nothing but a call is written like this.
    """

    start: int
    name: str
    value: str | dict[str, Any]
    certain: bool


def _no_schema(name: str) -> None:
    """Find no schema, for callers that know none."""


def written_calls(
    text: str,
    is_offered: Callable[[str], bool],
    *,
    schemas: Schemas = _no_schema,
    cut: bool = False,
    any_name: bool = False,
) -> tuple[list[WrittenCall], str]:
    """Parse the calls in a text, and the text before the first one.

    Args:
        text: The model's answer.
        is_offered: Checks whether a name means a tool that the model was offered.
        schemas: Tells the types of arguments that are written without quotes.
        cut: Whether the answer ends at a limit. Then a call counts only if it was finished before.
        any_name: Also parse calls of tools that are not offered, where nothing but a call is
            written like this.
    """
    calls: list[WrittenCall] = []
    before = ""
    has_sign = "{" in text or "(" in text or "<" in text
    if not has_sign or len(text) > MAX_TEXT:
        return calls, before
    for part in _parts(text, schemas, cut):
        value = _value(part.value.strip()) if isinstance(part.value, str) else part.value
        for call in _calls_in(value, part.name):
            if len(calls) >= MAX_CALLS or len(call.name) > _MAX_NAME:
                continue
            is_meant = is_offered(call.name)
            if not is_meant and any_name:
                is_meant = _is_certain(text, part, value, call.name, cut)
            if not is_meant:
                continue
            if not calls:
                before = text[: part.start].strip()
            calls.append(call._replace(tagged=part.certain))
    return calls, before


def _is_certain(text: str, part: _Part, value: Any, name: str, cut: bool) -> bool:
    """Check whether a call is meant even if there is no such tool.

    It is in a template's tags, or the answer ends with nothing but calls with exactly a name and
    arguments, as JSON.
    """
    if not _PLAIN_NAME.fullmatch(name):
        return False
    if part.certain:
        return True
    if not isinstance(part.value, str) or part.value.lstrip("[ \t\r\n")[:1] != "{":
        return False
    listed = value if isinstance(value, list) else [value]
    only_calls = all(
        isinstance(each, dict) and each.keys() == {"name", "arguments"} for each in listed
    )
    return only_calls and (cut or text.rstrip()[-1:] in "}]`")


def _parts(text: str, schemas: Schemas, cut: bool) -> Iterator[_Part]:
    """Yield the parts of a text that can be calls."""
    end = 0
    tagged = False
    for opening in _OPENING.finditer(text):
        if opening.start() < end:
            continue
        tagged = True
        found = _form(opening, text, schemas, cut)
        if found is not None:
            part, end = found
            yield part
    if not tagged and (line := _LINE.search(text)):
        yield _Part(line.start(), "", text[line.end() :], False)


def _form(
    opening: re.Match[str], text: str, schemas: Schemas, cut: bool
) -> tuple[_Part, int] | None:
    """Read the part that an opening begins, and where it ends.

    None if it is no call, or cut before its end, or if the calls have openings of their own in it.
    """
    start, after, found = opening.start(), opening.end(), opening.groupdict()
    if tag := found["tag"]:
        content, end = _until(text, after, f"</{tag}>")
        if glm := _glm_call(content, schemas):
            if cut and end > len(text):
                # Without its end, the last argument could be missing.
                return None
            return _Part(start, *glm, True), end
        is_json = content.lstrip()[:1] in ("{", "[")
        if not is_json and ("<function=" in content or "invoke name=" in content):
            return None
        return _Part(start, "", content, True), end
    if name := found["function"]:
        content, end = _until(text, after, "</function>")
        values = _parameters(content, schemas(name))
        if values is None:
            return _Part(start, name, content, True), end
        return None if cut and end > len(text) else (_Part(start, name, values, True), end)
    if name := found["invoke"]:
        content, end = _until(text, after, f"</{found['prefix'] or ''}invoke>")
        values = _parameters(content, schemas(name)) or {}
        return None if cut and end > len(text) else (_Part(start, name, values, True), end)
    if name := found["deepseek"]:
        content, end = _until(text, after, "<\uff5ctool▁call▁end\uff5c>")
        if name == _DEEPSEEK_TYPE and _FENCE in content:
            name, _, content = content.partition("\n")
        if fence := _FENCED.match(content):
            content = content[fence.end() :]
        return _Part(start, name.strip(), content, True), end
    if name := found["kimi"]:
        content, end = _until(text, after, "<|tool_call_end|>")
        return _Part(start, bare(_NUMBERED.sub("", name)), content, True), end
    if name := found["harmony"]:
        brace = text.find("{", after, after + _HEADER)
        if brace < 0:
            return None
        content, end = _until(text, brace, "<|call|>")
        return _Part(start, name, content, True), end
    fenced = opening[0].startswith(_FENCE)
    content, end = _until(text, after, _FENCE) if fenced else (text[after:], len(text))
    return _Part(start, "", content, not fenced), end


def _until(text: str, start: int, closing: str) -> tuple[str, int]:
    """Cut out the text up to a closing, and find the closing's end. Without one, take all that is
    left, with an end beyond the text.
    """
    end = text.find(closing, start)
    if end < 0:
        return text[start:], len(text) + 1
    return text[start:end], end + len(closing)


def bare(name: str) -> str:
    """Leave out the namespace that some templates put before a tool's name."""
    for prefix in ("functions.", "function.", "tools.", "tool."):
        if name.startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :]
    return name


def _glm_call(content: str, schemas: Schemas) -> tuple[str, dict[str, Any]] | None:
    """Read GLM's form: the tool's name, then a key and a value for each argument."""
    head, *pairs = content.split("<arg_key>", _MAX_ARGUMENTS)
    name = head.strip()
    if not _PLAIN_NAME.fullmatch(name):
        return None
    properties = SchemaReader(schemas(name) or {}).properties
    values = {}
    for pair in pairs:
        key, found, rest = pair.partition("</arg_key>")
        written, ended, _ = rest.partition("</arg_value>")
        if not found or not ended:
            continue
        key = key.strip()
        values[key] = _typed(written.partition("<arg_value>")[2], properties.get(key))
    return name, values


def _parameters(content: str, schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Read arguments that have a tag each, or None if there are none."""
    properties = SchemaReader(schema or {}).properties
    values: dict[str, Any] = {}
    openings = list(_PARAMETER.finditer(content))[:_MAX_ARGUMENTS]
    for number, opening in enumerate(openings):
        end = openings[number + 1].start() if number + 1 < len(openings) else len(content)
        if closing := _PARAMETER_END.search(content, opening.end(), end):
            end = closing.start()
        schema_of_value = properties.get(opening["name"])
        if opening["text"] == "true":
            schema_of_value = SchemaReader({"type": "string"})
        values[opening["name"]] = _typed(content[opening.end() : end], schema_of_value)
    return values if openings else None


def _typed(written: str, schema: SchemaReader | None) -> Any:
    """Read a value that is written without quotes: as a text where the schema has one, otherwise as
    JSON if it can be read as such.
    """
    written = written.removeprefix("\n").removesuffix("\n")
    if schema is not None and schema.without_null().types == ("string",):
        return written
    plain = written.strip()
    if plain in _CONSTANTS:
        return _CONSTANTS[plain]
    try:
        return json.loads(plain)
    except (ValueError, RecursionError):
        return written


def _value(part: str) -> Any:
    """Parse a text as JSON or as Python without running anything, or None if it is neither."""
    # What follows the calls can be prose.
    values, _ = values_in(part, MAX_CALLS, separators=",;")
    if values:
        return values
    try:
        with warnings.catch_warnings():
            # About escapes in a text that nobody runs.
            warnings.simplefilter("ignore")
            return _python(ast.parse(part, mode="eval").body)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _python(node: ast.expr) -> Any:
    """Convert literals, and calls with literal arguments by name, to objects. Calls nothing."""
    if isinstance(node, ast.List | ast.Tuple) and any(
        isinstance(each, ast.Call) for each in node.elts
    ):
        return list(map(_python, node.elts[:MAX_CALLS]))
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("a call with arguments that have no name")
    return {
        "name": ast.unparse(node.func),
        "arguments": {each.arg: ast.literal_eval(each.value) for each in node.keywords},
    }


def _calls_in(value: Any, name: str, depth: int = 0) -> Iterator[WrittenCall]:
    """Yield the calls in a value.

    Where a call's tag names the tool, the value has the arguments.
    """
    if isinstance(value, list | tuple) and depth < 3:
        for each in value[:MAX_CALLS]:
            yield from _calls_in(each, name, depth + 1)
    if not isinstance(value, dict):
        return
    if name:
        yield from _call(name, value)
    elif isinstance(value.get("tool_calls"), list) and depth < 3:
        yield from _calls_in(value["tool_calls"], "", depth + 1)
    elif isinstance(value.get("function"), dict):
        yield from _calls_in(value["function"], "", 3)
    else:
        named = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
        arguments = next((key for key in _ARGUMENTS if key in value), None)
        if named is not None and arguments is not None:
            yield from _call(named, value[arguments])


def _call(name: str, arguments: Any) -> Iterator[WrittenCall]:
    """Yield a call, if its arguments are an object and not a tool's definition."""
    try:
        if isinstance(arguments, str) and arguments.strip():
            arguments = json.loads(arguments)
        elif not arguments:
            arguments = {}
        # Also what Python writes in another way, such as tuples; infinite numbers have no JSON.
        plain = json.loads(json.dumps(arguments, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return
    is_definition = (
        isinstance(plain, dict)
        and isinstance(plain.get("properties"), dict)
        and plain.get("type") == "object"
    )
    if isinstance(plain, dict) and not is_definition:
        yield WrittenCall(name, plain)
