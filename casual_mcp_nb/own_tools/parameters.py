"""A function's parameters: which ones a model fills, by which schema, and which are injected."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, get_args, get_origin

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

from casual_mcp_nb.errors import ToolCallError, UsageError, closest, did_you_mean, shown
from casual_mcp_nb.own_tools.context import ToolContext

_MAX_PROBLEMS = 5
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Inject:
    """Marks a parameter that the session fills and no model sees: `Annotated[Connection, Inject("db")]`.

    The value comes from `inject={…}` when the tool is added, or else, at each call, from the conversation's context.

    Args:
        key: The value's key, or empty for the parameter's own name.
    """

    key: str = ""


class InvalidArgumentsError(ValueError):
    """A model's arguments do not fit the parameters. The message tells it how."""


@dataclass(frozen=True)
class Filled:
    """A parameter that a model fills. `default` is from its signature, or its pydantic `Field` if it has one."""

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
        return inspect.Parameter.empty if self.default.default_factory or self.is_required else self.default.default


@dataclass(frozen=True)
class Parameters:
    """A function's parameters.

    A model fills `filled`, by the names that it uses. `injected` are filled when the tool is added, `from_context` at each call
    by a key in the conversation's context, and `contexts` get a `ToolContext`.
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
        schemas, shared = TypeAdapter.json_schemas([(name, "validation", each.adapter) for name, each in filled.items()])
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
        whole: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return whole | ({"required": required} if required else {}) | ({"$defs": shared["$defs"]} if "$defs" in shared else {})

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """Check a call's arguments, and convert them to positional and keyword arguments."""
        hidden = self.named(context.values)
        theirs = {*hidden, *self.injected, *self.from_context, *self.contexts}
        visible = [name for name in self.filled if name not in hidden]
        problems = [
            f"{shown(name)} is filled in by the session, never by you: leave it out."
            if name in theirs
            else f"{shown(name)} is not a parameter. {did_you_mean(closest(name, visible), visible)}"
            for name in arguments
            if name not in visible
        ]
        values: dict[str, Any] = {**self.injected, **self._of_context(context), **dict.fromkeys(self.contexts, context)}
        for name, parameter in self.filled.items():
            if name in hidden:
                values[parameter.name] = context.values[parameter.name]
            elif name in arguments:
                try:
                    values[parameter.name] = parameter.adapter.validator.validate_python(arguments[name])
                except ValidationError as error:
                    problems += [_problem(name, each) for each in error.errors(include_url=False, include_context=False)]
            elif parameter.is_required:
                problems.append(f"{name} is required.")
            elif not problems and isinstance(parameter.default, FieldInfo):
                # Any other default is the function's own.
                default = parameter.default.get_default(call_default_factory=True, validated_data=dict(values))
                values[parameter.name] = default
        if problems:
            raise InvalidArgumentsError("invalid arguments: " + " ".join(problems[:_MAX_PROBLEMS]))
        return [values.pop(name) for name in self._by_position if name in values], values

    @cached_property
    def _by_position(self) -> tuple[str, ...]:
        parameters = self.signature.parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.POSITIONAL_ONLY)

    def _of_context(self, context: ToolContext) -> dict[str, Any]:
        values = {}
        for name, key in self.from_context.items():
            if key in context.values:
                values[name] = context.values[key]
            elif self.signature.parameters[name].default is inspect.Parameter.empty:
                raise ToolCallError(
                    f"the conversation's context has no {shown(key)}, which parameter {shown(name)} needs.",
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

    `inject` has values by a parameter's name, or by the key of its `Inject`. A parameter that is named in `context`, the
    conversation's context, may have any type. A UsageError names parameters that no model could fill, and injected values that
    are used twice or nowhere.
    """
    signature = inspect.signature(function)
    hints = _hints(function, name)
    filled, injected, from_context, contexts = {}, {}, {}, []
    unused = set(inject)
    for parameter in signature.parameters.values():
        if parameter.kind in _VARIADIC:
            raise UsageError(
                f"{shown(name)} takes any number of arguments ({parameter}), which no schema can describe.",
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
            try:
                adapter = _adapter(_plain(default) if isinstance(default, FieldInfo) else hint, name, parameter.name)
            except UsageError:
                if parameter.name not in context:
                    raise
                from_context[parameter.name] = parameter.name
                continue
            filled[visible] = Filled(parameter.name, adapter, default, descriptions.get(parameter.name, ""))
    if unused:
        key = min(unused)
        hint = did_you_mean(closest(key, hints), hints)
        raise UsageError(f"{shown(name)} has no parameter for the injected value {shown(key)}.", hint=hint)
    for parameter_name, key in from_context.items():
        if key in {each.name for each in filled.values()}:
            raise UsageError(
                f"{shown(key)} is a parameter of {shown(name)} that a model fills, and the key of the injected "
                f"{shown(parameter_name)}.",
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
        if inspect.isclass(function):
            made_by: Any = function if issubclass(function, BaseModel) or "__init__" not in dir(function) else function.__init__
            if made_by is object.__init__:
                made_by = function.__new__
            hints = typing.get_type_hints(made_by, include_extras=True)
        else:
            target = function if inspect.isroutine(function) else type(function).__call__
            hints = typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"A type hint of {shown(name)} cannot be resolved: {error}.", hint="Define or import it at the top level."
        ) from None
    hints.pop("return", None)
    return hints


def _keys(hint: Any, parameter: str, inject: Mapping[str, Any]) -> set[str]:
    """Find the keys by which a parameter is injected: by its mark, by its name in `inject`, or not at all."""
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Inject) or mark is Inject]
    keys = {(mark.key if isinstance(mark, Inject) else "") or parameter for mark in marks}
    return keys | ({parameter} if parameter in inject else set())


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
            f"A model cannot fill parameter {shown(parameter)} of {shown(name)}: {shown(str(hint))} has no JSON form.",
            hint=f"Inject it: session.tools.add({name}, inject={{{parameter!r}: …}}).",
        ) from None
    return adapter


def _field(hint: Any, parameter: inspect.Parameter) -> tuple[str, Any]:
    """Find the name that a model uses for a parameter, and its default: its whole `Field` if it has one."""
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
