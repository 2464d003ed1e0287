"""A function as a tool: which parameters a model fills and which are injected, and what a model
reads of the return value.
"""

from __future__ import annotations

import inspect
import io
import json
import reprlib
import types
import typing
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin

from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo

from casual_mcp_nb.base.content import (
    ContentPart,
    PayloadPreview,
    TableRows,
    ToolResult,
    media_type_of,
)
from casual_mcp_nb.errors import ToolCallError, UsageError, closest, did_you_mean, shown
from casual_mcp_nb.own_tools.context import FunctionRunner, ToolContext

_MAX_PROBLEMS = 5
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Inject:
    """Marks a parameter that the session fills and no model sees: `Annotated[Connection,
    Inject("db")]`.

    The value comes from `inject={…}` when the tool is added, or else, at each call, from the
    conversation's context.

    Args:
        key: The value's key, or empty for the parameter's own name.
    """

    key: str = ""


class InvalidArgumentsError(ValueError):
    """A model's arguments do not fit the parameters. The message tells it how."""


@dataclass(frozen=True)
class Filled:
    """A parameter that a model fills.

    `default` is from its signature, or its pydantic `Field` if it has one.
    """

    name: str
    adapter: TypeAdapter[Any]
    default: Any
    description: str

    @property
    def is_required(self) -> bool:
        """Whether the model has to fill it."""
        if isinstance(self.default, FieldInfo):
            return self.default.is_required()
        return self.default is inspect.Parameter.empty

    @property
    def schema_default(self) -> Any:
        """The default that the schema names; `inspect.Parameter.empty` for none."""
        if not isinstance(self.default, FieldInfo):
            return self.default
        if self.default.default_factory or self.is_required:
            return inspect.Parameter.empty
        return self.default.default


@dataclass(frozen=True)
class Parameters:
    """A function's parameters.

    A model fills `filled`, by the names that it uses. `injected` are filled when the tool is added,
    `from_context` at each call by a key in the conversation's context, and `contexts` get a
    `ToolContext`.
    """

    signature: inspect.Signature
    filled: Mapping[str, Filled]
    injected: Mapping[str, Any]
    from_context: Mapping[str, str]
    contexts: tuple[str, ...]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema for the model's arguments."""
        return self.schema_beside(())

    def named(self, names: Collection[str]) -> set[str]:
        """Find a model's names for these parameters."""
        return {name for name, each in self.filled.items() if each.name in names}

    def schema_beside(self, context: Collection[str]) -> dict[str, Any]:
        """Copy this schema without the parameters that the conversation's context fills."""
        hidden = self.named(context)
        filled = {name: each for name, each in self.filled.items() if name not in hidden}
        schemas, shared = TypeAdapter.json_schemas(
            [(name, "validation", each.adapter) for name, each in filled.items()]
        )
        properties, required = {}, []
        for name, parameter in filled.items():
            schema = {**schemas[name, "validation"]}
            if parameter.description:
                schema["description"] = parameter.description
            if parameter.is_required:
                required.append(name)
            elif parameter.schema_default is not inspect.Parameter.empty:
                schema |= _default(parameter.adapter, parameter.schema_default)
            properties[name] = schema
        whole: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
        if required:
            whole["required"] = required
        if "$defs" in shared:
            whole["$defs"] = shared["$defs"]
        return whole

    def bind(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> tuple[list[Any], dict[str, Any]]:
        """Check a call's arguments, and convert them to positional and keyword arguments."""
        hidden = self.named(context.values)
        theirs = {*hidden, *self.injected, *self.from_context, *self.contexts}
        visible = [name for name in self.filled if name not in hidden]
        problems: list[str] = []
        for name in arguments:
            if name in theirs and name not in visible:
                text = f"{shown(name)} is filled in by the session, never by you: leave it out."
                problems.append(text)
            elif name not in visible:
                hint = did_you_mean(closest(name, visible), visible)
                problems.append(f"{shown(name)} is not a parameter. {hint}")
        values: dict[str, Any] = {
            **self.injected,
            **self._of_context(context),
            **dict.fromkeys(self.contexts, context),
        }
        for name, parameter in self.filled.items():
            if name in hidden:
                values[parameter.name] = context.values[parameter.name]
            elif name in arguments:
                validator = parameter.adapter.validator
                try:
                    values[parameter.name] = validator.validate_python(arguments[name])
                except ValidationError as error:
                    errors = error.errors(include_url=False, include_context=False)
                    problems += [_problem(name, each) for each in errors]
            elif parameter.is_required:
                problems.append(f"{name} is required.")
            elif not problems and isinstance(parameter.default, FieldInfo):
                # Any other default is the function's own.
                default = parameter.default.get_default(
                    call_default_factory=True, validated_data=dict(values)
                )
                values[parameter.name] = default
        if problems:
            raise InvalidArgumentsError("invalid arguments: " + " ".join(problems[:_MAX_PROBLEMS]))
        return [values.pop(name) for name in self._by_position if name in values], values

    @cached_property
    def _by_position(self) -> tuple[str, ...]:
        kind = inspect.Parameter.POSITIONAL_ONLY
        parameters = self.signature.parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is kind)

    def _of_context(self, context: ToolContext) -> dict[str, Any]:
        values = {}
        for name, key in self.from_context.items():
            if key in context.values:
                values[name] = context.values[key]
            elif self.signature.parameters[name].default is inspect.Parameter.empty:
                raise ToolCallError(
                    f"the conversation's context has no {shown(key)}, which parameter {shown(name)}"
                    " needs.",
                    hint=f"Pass it: session.chat(…, context={{{key!r}: …}}).",
                )
        return values


def read_parameters(
    function: Callable[..., Any],
    name: str,
    inject: Mapping[str, Any],
    descriptions: Mapping[str, str],
    context: Collection[str] = (),
) -> Parameters:
    """Read the parameters of a function that will become a tool.

    `inject` has values by a parameter's name, or by the key of its `Inject`. A parameter that is
    named in `context`, the conversation's context, may have any type. A UsageError names parameters
    that no model could fill, and injected values that are used twice or nowhere.
    """
    signature = inspect.signature(function)
    hints = _hints(function, name)
    filled, injected, from_context, contexts = {}, {}, {}, []
    unused = set(inject)
    for parameter in signature.parameters.values():
        if parameter.kind in _VARIADIC:
            raise UsageError(
                f"{shown(name)} takes any number of arguments ({parameter}), which no schema can"
                " describe.",
                hint="Give it a parameter for each value.",
            )
        hint = hints.get(parameter.name, Any)
        keys = _keys(hint, parameter.name, inject)
        if _is_context(hint):
            contexts.append(parameter.name)
        elif keys:
            key = _one(keys, name, parameter.name)
            unused.discard(key)
            if key in inject:
                injected[parameter.name] = inject[key]
            else:
                from_context[parameter.name] = key
        else:
            visible, default = _field(hint, parameter)
            if visible in filled:
                text = f"Two parameters of {shown(name)} are both {shown(visible)} for a model."
                raise UsageError(text, hint="Give one of them another alias.")
            annotation = _plain(default) if isinstance(default, FieldInfo) else hint
            try:
                adapter = _adapter(annotation, name, parameter.name)
            except UsageError:
                if parameter.name not in context:
                    raise
                from_context[parameter.name] = parameter.name
                continue
            filled[visible] = Filled(
                parameter.name, adapter, default, descriptions.get(parameter.name, "")
            )
    if unused:
        key = min(unused)
        hint = did_you_mean(closest(key, hints), hints)
        raise UsageError(
            f"{shown(name)} has no parameter for the injected value {shown(key)}.", hint=hint
        )
    for parameter_name, key in from_context.items():
        if key in {each.name for each in filled.values()}:
            raise UsageError(
                f"{shown(key)} is a parameter of {shown(name)} that a model fills, and the key of"
                f" the injected {shown(parameter_name)}.",
                hint="Give one of them another name.",
            )
    return Parameters(signature, filled, injected, from_context, tuple(contexts))


def unwrapped(function: Any) -> Any:
    """Unwrap a `functools.partial` to its function. Any other function is returned as it is."""
    while isinstance(function, partial):
        function = function.func
    return function


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    function = unwrapped(function)
    try:
        if not inspect.isclass(function):
            made_by: Any = function if inspect.isroutine(function) else type(function).__call__
        elif issubclass(function, BaseModel) or "__init__" not in dir(function):
            made_by = function
        else:
            made_by = function.__init__
        if made_by is object.__init__:
            made_by = function.__new__
        hints = typing.get_type_hints(made_by, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"A type hint of {shown(name)} cannot be resolved: {error}.",
            hint="Define or import it at the top level.",
        ) from None
    hints.pop("return", None)
    return hints


def _keys(hint: Any, parameter: str, inject: Mapping[str, Any]) -> set[str]:
    """Find the keys by which a parameter is injected: by its mark, by its name in `inject`, or not
    at all.
    """
    keys: set[str] = set()
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Inject):
            keys.add(mark.key or parameter)
        elif mark is Inject:
            keys.add(parameter)
    if parameter in inject:
        keys.add(parameter)
    return keys


def _one(keys: set[str], name: str, parameter: str) -> str:
    if len(keys) > 1:
        both = " and ".join(sorted(map(shown, keys)))
        text = f"Parameter {shown(parameter)} of {shown(name)} is injected twice, as {both}."
        raise UsageError(text, hint="Keep one of them.")
    (key,) = keys
    return key


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (typing.Union, types.UnionType):
        return any(each is ToolContext for each in get_args(hint))
    return hint is ToolContext


def _adapter(hint: Any, name: str, parameter: str) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError):
        raise UsageError(
            f"A model cannot fill parameter {shown(parameter)} of {shown(name)}: {shown(str(hint))}"
            " has no JSON form.",
            hint=f"Inject it: session.tools.add({name}, inject={{{parameter!r}: …}}).",
        ) from None
    return adapter


def _field(hint: Any, parameter: inspect.Parameter) -> tuple[str, Any]:
    """Find the name that a model uses for a parameter, and its default: its whole `Field` if it has
    one.
    """
    if isinstance(parameter.default, FieldInfo):
        field = FieldInfo.from_annotated_attribute(hint, parameter.default)
    elif any(isinstance(mark, FieldInfo) for mark in getattr(hint, "__metadata__", ())):
        if parameter.default is parameter.empty:
            field = FieldInfo.from_annotation(hint)
        else:
            field = FieldInfo.from_annotated_attribute(hint, parameter.default)
    else:
        return parameter.name, parameter.default
    alias = field.validation_alias or field.alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    return alias if isinstance(alias, str) else parameter.name, field


def _plain(field: FieldInfo) -> Any:
    """Copy a field's annotation without its name and default, which belong to the parameter."""
    about = Field(
        title=field.title,
        description=field.description,
        examples=field.examples,
        discriminator=field.discriminator,
        json_schema_extra=field.json_schema_extra,
    )
    return Annotated[field.annotation, *field.metadata, about]


def _default(adapter: TypeAdapter[Any], value: Any) -> dict[str, Any]:
    try:
        default = adapter.dump_python(value, mode="json", warnings=False)
        json.dumps(default, allow_nan=False)
        return {"default": default}
    except ValueError:
        # A default without a JSON form is still a default.
        return {}


def _problem(name: str, error: Any) -> str:
    where = ".".join(map(str, (name, *error["loc"])))
    return f"{shown(where)}: {error['msg']}."


MAX_PREVIEWS = 5
PREVIEW_ROWS = 10
PREVIEW_COLUMNS = 8
MAX_CELL = 80
MAX_TEXT = 500
MAX_PICTURE = 20_000
"""Maximum picture size in bytes. A larger one is scaled down."""
_PIXELS = (560, 360, 200)
_INCHES = 6.4
_MAX_DOTS_PER_INCH = 100


def is_table(value: Any) -> bool:
    """Check whether a value is a DataFrame from pandas, polars or another library."""
    return hasattr(value, "shape") and hasattr(value, "head") and hasattr(value, "columns")


def can_save(value: Any) -> bool:
    """Check whether a value is a matplotlib figure or a Pillow image."""
    return callable(getattr(value, "savefig", None)) or type(value).__module__.startswith("PIL.")


def figure_of(value: Any) -> Any:
    """Find the figure or image to draw for a value: the value itself, or the figure of axes, axes
    arrays and other artists.

    Returns None for anything else.
    """
    if can_save(value):
        return value
    if (
        type(value).__module__ == "numpy"
        and str(getattr(value, "dtype", "")) == "object"
        and value.size
    ):
        value = value.flat[0]
    figure = getattr(value, "figure", None)
    return figure if callable(getattr(figure, "savefig", None)) else None


def _preview(value: Any, pictures: Iterator[bytes] | None) -> PayloadPreview:
    try:
        if is_table(value):
            return _table_preview(value)
        if can_save(value):
            drawn = next(pictures, None) if pictures is not None else None
            return PayloadPreview(type(value).__name__, picture=_picture(value, drawn))
        return PayloadPreview(_what(value), text=_text(value) if pictures is None else "")
    except Exception:
        # Whatever an object does when it is looked at, the call succeeded.
        return PayloadPreview(type(value).__name__)


def _table_preview(table: Any) -> PayloadPreview:
    count, names = int(table.shape[0]), list(table.columns)
    head = table.head(PREVIEW_ROWS)
    columns = [_index(head)]
    for index, name in enumerate(names[:PREVIEW_COLUMNS]):
        columns.append((str(name), _column(head, index)))
    visible = [(name, cells) for name, cells in columns if cells is not None]
    rows = zip(*(map(_cell, cells) for _, cells in visible), strict=True)
    what = f"{type(table).__name__}, {_count(count, 'row')}, {_count(len(names), 'column')}"
    titles = tuple(name[:MAX_CELL] for name, _ in visible)
    return PayloadPreview(what, titles, tuple(rows), max(0, count - PREVIEW_ROWS))


def _index(head: Any) -> tuple[str, list[Any] | None]:
    """Read the name and an index's values, or None where it only numbers the rows."""
    index = getattr(head, "index", None)
    if index is None or callable(index) or type(index).__name__ == "RangeIndex":
        return "", None
    return str(index.name or ""), list(index)


def _column(head: Any, index: int) -> list[Any]:
    # pandas columns can share a name.
    if hasattr(head, "iloc"):
        return list(head.iloc[:, index])
    return list(head[head.columns[index]])


def _cell(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"


def _picture(value: Any, drawn: bytes | None) -> bytes | None:
    if drawn is not None and len(drawn) <= MAX_PICTURE:
        return drawn
    for data in _saved(value):
        if len(data) <= MAX_PICTURE:
            return data
    return None


def _saved(value: Any) -> Iterator[bytes]:
    for pixels in _PIXELS:
        buffer = io.BytesIO()
        if hasattr(value, "savefig"):
            inches = max(value.get_size_inches()) if hasattr(value, "get_size_inches") else _INCHES
            value.savefig(buffer, format="PNG", dpi=min(_MAX_DOTS_PER_INCH, pixels / inches))
        else:
            smaller = value.copy()
            smaller.thumbnail((pixels, pixels))
            smaller.save(buffer, format="PNG")
        yield buffer.getvalue()


def _what(value: Any) -> str:
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{name}, shape {shape}"
    if isinstance(value, list | tuple | dict | set):
        return f"{name}, {_count(len(value), 'item')}"
    return name


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _count(number: int, singular: str) -> str:
    return f"{number:,} {singular}" if number == 1 else f"{number:,} {singular}s"


MAX_ROWS = 20
MAX_COLUMNS = 20
MAX_CELLS = 1_000_000
"""How many table cells a model can ask about."""
MAX_YIELDED = 100_000
"""How many values a generator can yield. One without an end would fill the memory."""
_RECORDS: Mapping[str, Any] = {"orient": "records", "date_format": "iso", "default_handler": str}
_MAX_CELL = 100


@dataclass(frozen=True)
class ToolOutput:
    """A result in two forms: one for the model, one for the person.

    Args:
        content: The result for the model: a text, anything with a JSON form, a table, a figure, or
            a list of these.
        payload: Any object. It stays in this process: it is shown and listed in `turn.payloads`,
            but no model or file gets it.
    """

    content: Any = None
    payload: Any = None


async def result_from(run: FunctionRunner, call: Callable[[], Any], is_async: bool) -> ToolResult:
    """Have a function run, and return its result. Figures are drawn on the thread that ran it.

    Generators are read to their end, and awaitables are awaited, even if a plain function returned
    them.
    """

    def start() -> Any:
        return _awaited(call()) if is_async else _read(call())

    outcome = await run(start, is_async)
    if not isinstance(outcome, _Unread):
        return cast("ToolResult", outcome)
    try:
        return cast("ToolResult", await run(partial(_awaited, outcome.value), True))
    finally:
        if inspect.iscoroutine(outcome.value):
            # Where no loop was free to run it; else it has ended.
            outcome.value.close()


class _Unread(NamedTuple):
    """A plain function's return value that only a loop can read."""

    value: Any


async def _awaited(value: Any) -> ToolResult:
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncGenerator):
        async with aclosing(value):
            items = []
            async for item in value:
                items.append(item)
                _check_count(items)
        value = items
    return result_of(value)


def _read(value: Any) -> ToolResult | _Unread:
    if inspect.isawaitable(value) or isinstance(value, AsyncGenerator):
        return _Unread(value)
    return result_of(value)


def _check_count(items: list[Any]) -> None:
    if len(items) > MAX_YIELDED:
        raise ToolCallError(
            f"it yielded more than {MAX_YIELDED:,} values.",
            hint="End it earlier, or return a table.",
        )


def result_of(value: Any) -> ToolResult:
    """Convert a function's return value to a tool's result, with previews of its payload for
    displays.
    """
    if isinstance(value, Generator | map | filter | zip):
        items = list(islice(value, MAX_YIELDED + 1))
        _check_count(items)
        value = items
    result = _result_of(value)
    if isinstance(value, ToolResult):
        return result
    returned = value
    if isinstance(value, ToolOutput):
        returned = value.content if value.payload is None else value.payload
    if result.payload is None:
        return replace(result, returned=(returned,))
    is_separate = (
        isinstance(value, ToolOutput)
        and value.payload is not None
        and value.payload is not value.content
    )
    pictures: Iterator[bytes] | None = None
    if not is_separate:
        # The pictures in the result's content show the payload.
        pictures = iter([part.data for part in result.content if part.data is not None])
    payloads = [result.payload]
    if isinstance(result.payload, list) and result.payload:
        some = result.payload[:MAX_PREVIEWS]
        if all(is_table(each) or can_save(each) for each in some):
            payloads = result.payload
    previews = [_preview(each, pictures) for each in payloads[:MAX_PREVIEWS]]
    more = len(payloads) - MAX_PREVIEWS
    if more > 0:
        previews.append(PayloadPreview(f"{more:,} more"))
    return replace(result, returned=(returned,), previews=tuple(previews))


def _result_of(value: Any) -> ToolResult:
    """Convert a function's return value to a tool's result.

    Tables become their first rows with their shape, figures and images become PNG, and are the
    payload too. Axes become their figure. All else becomes text or JSON. A value without a JSON
    form becomes its `repr`, and is the payload.
    """
    match value:
        case ToolResult():
            return value
        case ToolOutput():
            inner = _result_of(value.content)
            payload = inner.payload if value.payload is None else value.payload
            return replace(inner, payload=payload)
        case str():
            return ToolResult((ContentPart("text", value),))
        case int() | float():
            return ToolResult((ContentPart("text", str(value)),))
        case None:
            return ToolResult()
        case list() if (
            value
            and all(_is_rich(each) or isinstance(each, str) for each in value)
            and any(map(_is_rich, value))
        ):
            parts = list(map(_result_of, value))
            content = tuple(chain.from_iterable(part.content for part in parts))
            payloads = [part.payload for part in parts if part.payload is not None]
            return ToolResult(content, payload=payloads)
    if is_table(value):
        return ToolResult((ContentPart("text", _table(value)),), payload=value, rows=_rows(value))
    figure = figure_of(value)
    if figure is not None:
        return ToolResult((_drawn(figure),), payload=figure)
    if isinstance(value, bytes | bytearray):
        return ToolResult((_part(bytes(value)),), payload=value)
    return _json(value)


def _is_rich(value: Any) -> bool:
    return is_table(value) or figure_of(value) is not None


def _table(table: Any) -> str:
    """Format a DataFrame's first rows (pandas, polars, …) as text, below its shape."""
    rows, columns = table.shape[0], len(table.columns)
    head = table.head(MAX_ROWS)
    if columns > MAX_COLUMNS:
        head = head[list(table.columns)[:MAX_COLUMNS]]
    text = head.to_string(max_colwidth=_MAX_CELL) if hasattr(head, "to_string") else str(head)
    shown = "" if rows <= MAX_ROWS else f", the first {MAX_ROWS} rows below"
    cut = "" if columns <= MAX_COLUMNS else f", {MAX_COLUMNS} of its columns"
    return f"Table with {rows:,} rows and {columns:,} columns{shown}{cut}:\n{text}"


def _rows(table: Any) -> TableRows | None:
    """Convert a table's rows.

    None if the text has them all, or if they are too many or have no JSON form.
    """
    rows, columns = table.shape[0], len(table.columns)
    if (rows <= MAX_ROWS and columns <= MAX_COLUMNS) or rows * columns > MAX_CELLS:
        return None
    try:
        # polars; pandas has the other.
        if hasattr(table, "write_json"):
            json = table.write_json()
        else:
            json = _with_index(table).to_json(**_RECORDS)
    except Exception:
        # Such as two columns with one name.
        return None
    return TableRows(f"table of {rows:,} rows, {columns:,} columns", json)


def _with_index(table: Any) -> Any:
    if all(name is None for name in table.index.names):
        return table
    return table.reset_index()


def _drawn(figure: Any) -> ContentPart:
    buffer = io.BytesIO()
    save = getattr(figure, "savefig", None) or figure.save
    save(buffer, format="PNG")
    return _part(buffer.getvalue())


def _part(data: bytes) -> ContentPart:
    kind = media_type_of(data)
    if kind is None:
        return ContentPart("unknown", f"{len(data):,} bytes")
    return ContentPart("image", f"{kind}, {len(data):,} bytes", mime_type=kind, data=data)


def _json(value: Any) -> ToolResult:
    from pydantic_core import from_json, to_json

    try:
        # JSON has no infinite numbers, and none for NaN.
        text = to_json(value, indent=2, inf_nan_mode="strings").decode()
    except Exception:
        # It has no JSON form, or fails when it is looked at; the call succeeded.
        return ToolResult((ContentPart("text", _repr(value)),), payload=value)
    structured = from_json(text) if text.startswith("{") else None
    return ToolResult((ContentPart("text", text),), structured=structured)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} object>"
