"""Base classes for config sections: strict fields, values that are masked when shown, and the
options of model requests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    StrictBool,
    StringConstraints,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from casual_mcp_nb.base.iterables import all_are, drop_none
from casual_mcp_nb.base.model_options import ReasoningEffort
from casual_mcp_nb.base.secret import (
    COMMON,
    MASK,
    Secrets,
    can_be_masked,
    certain,
    holds_mask,
    mask_of,
    masked_value,
    redacted,
    revealed_by_name,
    with_tokens,
)
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown

T = TypeVar("T")
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, le=86_400)]


_MAY_HOLD_SECRETS = ("command", "args", "cwd", "roots", "url", "base_url", "extra_body")
IS_MASK = (
    "is the mask of a secret, not the secret. Write ${NAME} to refer to an environment variable"
)

FieldPath = tuple[str | int, ...]
"""Where a value is in a config section: the names and indices that lead to it."""


@dataclass(frozen=True)
class Written:
    """How a value was written in the file: its text there, or None if the file has no such value.

    `value` is the resulting value, see `held`. A section whose value differs was changed, and the
    text no longer applies.
    """

    text: str | None
    value: Any = field(repr=False)


@dataclass(frozen=True)
class Typed:
    """A value in which the person typed something.

    `before` is its text with the inputs in place of what they typed, and `questions` say what they
    are asked. `value` is as in `Written`.
    """

    before: SecretStr
    questions: tuple[str, ...]
    value: Any = field(repr=False)


def held(value: Any) -> Any:
    """Wrap a value so that tracebacks with local variables do not show it."""
    return SecretStr(value) if isinstance(value, str) else value


@dataclass(frozen=True, eq=False)
class ConfigOrigin:
    """Where a config came from: passed as validation context, and stored outside the fields.

    `variables` has the inserted variables' names, by section and entry, and `sensitive` their
    values in fields whose type is not secret. `inserted` are the values of the environment, in
    whatever fields. `at` is where this section is in the config, and `written` how its values were
    written in the file, where that differs. `typed` are those in which the person typed something.
    `found` says that a public catalog or registry named it. `recalled` is the saved conversation's
    session that it was read from, which is as little the person's word as a file. `unusable` are
    the servers of a host's file that cannot be used, with the reasons.
    """

    path: Path | None = None
    sensitive: frozenset[str] = field(default=frozenset(), repr=False)
    inserted: frozenset[str] = field(default=frozenset(), repr=False)
    notes: tuple[str, ...] = ()
    key_variable: str | None = None
    variables: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    at: FieldPath = ()
    written: Mapping[FieldPath, Written] = field(default_factory=dict, repr=False)
    typed: Mapping[FieldPath, Typed] = field(default_factory=dict, repr=False)
    found: bool = False
    recalled: str = ""
    unusable: Mapping[str, str] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        # Configs with the same content are equal, wherever they came from.
        return isinstance(other, ConfigOrigin)


_IN_PYTHON = ConfigOrigin()


class BaseConfig(BaseModel):
    """A config section: immutable, and unknown keys are errors.

    `load_config` reads a JSON dump again: references such as `${NAME}` and relative paths as
    written in the file, and no key that came from the environment. A literal secret is an error,
    unless `context={"secrets": "plain"}` requests it; `{"secrets": "masked"}` is for a dump that is
    only looked at.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )

    # As a factory, because pydantic copies a default deeply for each instance, and options are made
    # for each request.
    _origin: ConfigOrigin = PrivateAttr(default_factory=lambda: _IN_PYTHON)

    def model_post_init(self, context: Any, /) -> None:
        """Remember where the config came from."""
        if isinstance(context, ConfigOrigin):
            self._origin = context

    def before_typing(self) -> Self:
        """Copy the section, with `${input:NAME}` in place of what the person typed."""
        changes: dict[FieldPath, Any] = {}
        for path, typed in self._typed().items():
            value = value_at(self, path)
            if isinstance(value, SecretStr):
                changes[path] = typed.before
            elif isinstance(value, str):
                changes[path] = typed.before.get_secret_value()
        return cast(Self, _changed(self, changes))

    @property
    def questions(self) -> dict[str, tuple[str, ...]]:
        """What the person is asked to type, by the path of the value that it goes to."""
        found: dict[str, tuple[str, ...]] = {}
        for path, typed in self._typed().items():
            found[".".join(map(str, path))] = typed.questions
        return found

    def _typed(self) -> dict[FieldPath, Typed]:
        typed: dict[FieldPath, Typed] = {}
        for path, each in self._origin.typed.items():
            if held(value_at(self, path)) == each.value:
                typed[path] = each
        return typed

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Dump the fields as pydantic does.

        Secrets stay `SecretStr`, and JSON follows the class.
        """
        return _complete(super().model_dump, options)

    def model_dump_json(self, **options: Any) -> str:
        """Dump the fields as JSON that `load_config` reads.

        A UsageError names which secret would be lost.
        """
        return _complete(super().model_dump_json, options)

    @model_serializer(mode="wrap")
    def _dumped(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        data, lost = self._as_written(handler(self), info)
        if (together := _lost.get()) is not None:
            together += lost
        elif lost:
            raise _refusal(lost)
        return data

    def _as_written(
        self, data: dict[str, Any], info: SerializationInfo
    ) -> tuple[dict[str, Any], list[FieldPath]]:
        """Restore the values as written in the file in a dump, and list where secrets would be
        lost.
        """
        option = info.context.get("secrets") if isinstance(info.context, Mapping) else None
        in_json, origin = info.mode == "json", self._origin
        changes: dict[FieldPath, Any] = {}
        lost: list[FieldPath] = []
        values = {path: value_at(self, path) for path in origin.written}
        for name in type(self).model_fields:
            values.update(_leaves(getattr(self, name), (name,)))
        for path, value in values.items():
            if not isinstance(value, SecretStr):
                now, masked = value, self._shown(path, value)
            elif in_json:
                now = value.get_secret_value()
                masked = MASK if now else now
            else:
                continue
            hides = masked != now and not (isinstance(now, str) and now.lower() in COMMON)
            written = origin.written.get(path)
            if written and written.value == held(now) and (in_json or hides):
                changes[path] = written.text
            elif hides and option != "plain":
                changes[path] = masked
                if option != "masked" and value_at(data, path) is not None:
                    lost.append(path)
            elif masked != now:
                changes[path] = now
        data = _changed(data, changes)
        if in_json and info.include is None:
            for path, written in origin.written.items():
                # A path that the loader read, under a key that is not a field.
                if path[0] not in type(self).model_fields:
                    data[str(path[0])] = written.text
        return data, [(*origin.at, *path) for path in lost]

    def _shown(self, path: FieldPath, value: Any) -> Any:
        return value


def value_at(thing: Any, path: FieldPath) -> Any:
    """Find the value at a path in a section or its dump, or None if there is none."""
    for step in path:
        if isinstance(thing, BaseModel):
            thing = getattr(thing, str(step), None)
        elif isinstance(thing, Mapping):
            thing = thing.get(step)
        elif isinstance(thing, list | tuple) and isinstance(step, int) and step < len(thing):
            thing = thing[step]
        else:
            return None
    return thing


def _leaves(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the texts and secrets in a value. Other sections dump themselves."""
    if isinstance(value, str | SecretStr):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))


def _changed(value: Any, changes: Mapping[FieldPath, Any], at: FieldPath = ()) -> Any:
    """Replace values in a section or its dump. None removes the value."""
    if at in changes:
        return changes[at]
    if isinstance(value, BaseModel):
        names = {str(path[len(at)]) for path in changes if path[: len(at)] == at}
        update: dict[str, Any] = {}
        for name in names:
            update[name] = _changed(getattr(value, name), changes, (*at, name))
        return value.model_copy(update=update)
    if isinstance(value, dict):
        changed: dict[Any, Any] = {}
        for step, item in value.items():
            path = (*at, step)
            if changes.get(path, ...) is not None:
                changed[step] = _changed(item, changes, path)
        return changed
    if isinstance(value, list | tuple):
        return type(value)(_changed(item, changes, (*at, step)) for step, item in enumerate(value))
    return value


_lost: ContextVar[list[FieldPath] | None] = ContextVar("lost", default=None)
"""Where the running dump would lose secrets: pydantic would wrap an error raised in a serializer.
"""


def _complete(dump: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Check that a dump has all its secrets.

    No local variable holds one then: it has masks in their place.
    """
    lost: list[FieldPath] = []
    token = _lost.set(lost)
    try:
        dumped = dump(**options)
    finally:
        _lost.reset(token)
    if lost:
        raise _refusal(lost)
    return dumped


def _refusal(lost: list[FieldPath]) -> UsageError:
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return UsageError(
        f"{'.'.join(map(str, lost[0]))}{more} cannot be written: it contains a literal secret,"
        " which would be lost.",
        hint=(
            "Write ${NAME} there instead (`casual-mcp-nb migrate-config` does), which is kept as it"
            ' is; or pass context={"secrets": "plain"} to write secrets, or {"secrets": "masked"}'
            " to read the dump only."
        ),
    )


class RemoteConfig(BaseConfig):
    """A section with a URL, which can contain a variable's value: that value is masked when
    shown.
    """

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse pickling: the secrets would end up in the bytes, and so in a cache or on another
        machine.
        """
        raise UsageError(
            f"A {type(self).__name__} is not pickled: its keys would be in the bytes.",
            hint="Pass the path of the config instead, and call load_config there.",
        )

    @model_validator(mode="after")
    def _holds_no_mask(self) -> Self:
        for name in _MAY_HOLD_SECRETS:
            for path, value in _leaves(getattr(self, name, None), (name,)):
                if holds_mask(value):
                    raise ValueError(f"{'.'.join(map(str, path))} {IS_MASK}")
        return self

    def _shown(self, path: FieldPath, value: Any) -> Any:
        if path[0] not in _MAY_HOLD_SECRETS or not isinstance(value, str):
            return value
        # A text that happens to contain another entry's variable, such as a host name, is no secret
        # for that.
        chance = {each for each in self._origin.sensitive if not certain("", each)}
        return redacted(value, self._secrets() - chance)

    def __iter__(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        return self._without_secrets(super().__iter__())

    def __repr_args__(self) -> Iterator[tuple[Any, Any]]:
        return self._without_secrets(super().__repr_args__())

    def in_question(self) -> dict[str, Any]:
        """The fields as the person reads them before they accept them.

        Hidden are values of the environment where the file inserts them, and what an option or a
        part of an address names as a secret, there. An entry could hide anything else of what it
        starts, by repeating it in a header.
        """
        fields = {name: getattr(self, name, None) for name in _MAY_HOLD_SECRETS}
        texts = {path: text for path, text in _leaves(fields, ()) if isinstance(text, str)}
        together = "\n".join(texts.values())
        named = {each for each in self._named_secrets() if together.count(each) == 1}
        shown_texts: dict[FieldPath, Any] = {}
        for path, text in texts.items():
            hidden: Set[str] = named
            written = self._origin.written.get(path)
            if written is not None and "$" in (written.text or ""):
                hidden = named | self._origin.inserted
            shown_texts[path] = redacted(text, hidden)
        return dict(_changed(fields, shown_texts))

    def _named_secrets(self) -> set[str]:
        """Collect what an option of a command or a part of an address names as a secret."""
        return set()

    def _without_secrets(self, fields: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for name, value in fields:
            yield name, self._hidden(value) if name in _MAY_HOLD_SECRETS else value

    def _hidden(self, value: Any) -> Any:
        return masked_value(value, mask_of(self._secrets()))

    def secrets(self) -> Secrets:
        """Collect every value to mask in text, except those too short or too common to distinguish
        from other text.
        """
        return Secrets(filter(can_be_masked, self._secrets()))

    def high_confidence_secrets(self) -> Secrets:
        """Collect only those `secrets` that are not just settings.

        They are also masked in tool results, where a time zone or a year from `env` may
        legitimately appear.
        """
        return Secrets(filter(can_be_masked, self._secrets(sure=True)))

    def _secrets(self, *, sure: bool = False) -> set[str]:
        """Collect every value that is, or can contain, a secret, whatever its length.

        Args:
            sure: Leave out what can be just a setting.
        """
        return {value for value in self._origin.sensitive if not sure or certain("", value)}


def _as_text(value: Any) -> Any:
    """Convert numbers and booleans to text, because hosts accept them in `env` and `headers`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""


def _refusing(problem: Callable[[str], str | None]) -> AfterValidator:
    """Create a validator that refuses a text, or a secret one, for a reason that does not contain
    it.
    """

    def check(value: T) -> T:
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        if reason := problem(text):
            raise ValueError(reason)
        return value

    return AfterValidator(check)


def header_problem(value: str) -> str | None:
    """Explain why a string cannot be an HTTP header value, or return None.

    The text does not contain the string.

    HTTP libraries would refuse it too, but in mid-request, and with the string in the message.
    """
    if "\r" in value or "\n" in value:
        return "contains a line break, which a header cannot have"
    if not value.isascii():
        return "contains a character that is not ASCII, which a header cannot have"
    if not value.replace("\t", "").isprintable():
        return "contains a control character, which a header cannot have"
    return None


def _header_name_problem(name: str) -> str | None:
    return None if _HEADER_NAME.fullmatch(name) else "is not a valid header name"


def _variable_name_problem(name: str) -> str | None:
    if not name or "=" in name or "\0" in name:
        return "is not a valid name for an environment variable"
    return None


def _variable_problem(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character, which an environment variable cannot have"
    return None


def _mask_problem(text: str) -> str | None:
    return IS_MASK if holds_mask(text) else None


_NOT_A_MASK = _refusing(_mask_problem)


def _without_nulls(value: Any) -> Any:
    """Leave out a mapping's entries that are null, as other hosts do: null means that nothing is
    set.
    """
    if not isinstance(value, Mapping):
        return value
    return drop_none(value)


Stripped = Annotated[str, StringConstraints(strip_whitespace=True)]
"""A text that never means the spaces around it, such as an address."""
Argument = Annotated[str, BeforeValidator(_as_text)]
"""An argument of a command. A number is written as its digits, as in `"args": ["--port", 8080]`."""
HeaderName = Annotated[str, _refusing(_header_name_problem)]
HeaderText = Annotated[SecretStr, BeforeValidator(_as_text), _NOT_A_MASK, _refusing(header_problem)]
VariableName = Annotated[str, _refusing(_variable_name_problem)]
VariableText = Annotated[
    SecretStr, BeforeValidator(_as_text), _NOT_A_MASK, _refusing(_variable_problem)
]
Headers = Annotated[dict[HeaderName, HeaderText], BeforeValidator(_without_nulls)]
Variables = Annotated[dict[VariableName, VariableText], BeforeValidator(_without_nulls)]


TOOL_CHOICES = ("auto", "none", "required")
"""The values for `tool_choice` that are not a tool name."""

_MAX_DEPTH = 32


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _checked_json(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"must not be nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict) and all_are(value, str):
        return {name: _checked_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_checked_json(item, depth + 1) for item in value]
    if (
        value is None
        or isinstance(value, str | int)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    raise ValueError(
        "must contain only JSON values: objects, lists, strings, finite numbers, true, false and"
        " null"
    )


class RequestOptions(RemoteConfig):
    """A model request's options. None is not sent, and the provider's default applies.

    Args:
        temperature: Sampling temperature. Not sent to OpenAI's reasoning models, which refuse it.
        max_tokens: An answer's maximum tokens, including thinking.
        top_p: Samples from the likeliest tokens, up to this total probability.
        seed: Makes sampling repeatable, if the provider supports it.
        stop: A string, or strings, at which the answer ends.
        tool_choice: `auto`, `none`, `required`, or a tool's name. A forced choice applies to a
            turn's first step, so that the model can answer afterwards.
        parallel_tool_calls: Whether one answer may call several tools.
        reasoning_effort: How much the model thinks before it answers.
        extra_body: Additional fields in the JSON body, as documented by the provider.
        extra_headers: Additional HTTP headers. Their values are treated as secrets.
    """

    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    seed: int | None = None
    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...] | None, BeforeValidator(_as_tuple)
    ] = None
    tool_choice: str | None = Field(default=None, min_length=1)
    parallel_tool_calls: StrictBool | None = None
    reasoning_effort: ReasoningEffort | None = None
    extra_body: dict[str, Any] | None = None
    extra_headers: dict[HeaderName, HeaderText] | None = Field(default=None, repr=False)

    @field_validator("extra_body")
    @classmethod
    def _check_body(cls, value: Any) -> Any:
        return _checked_json(value)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RequestOptions:
        """Collect one call's options. None means not given.

        A UsageError lists the valid names or values.
        """
        given = drop_none(options)
        if not given:
            return NO_OPTIONS
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
        # Raised outside the handler, because pydantic's error contains the input.
        raise UsageError(
            "\n".join(_in_words(problem["loc"], problem["msg"], options) for problem in problems)
        )

    def given(self) -> dict[str, Any]:
        """Collect the options that are not None, by name. Headers as secrets."""
        values = self.__dict__
        return {name: value for name in OPTION_NAMES if (value := values[name]) is not None}

    def shown(self) -> dict[str, Any]:
        """Collect the given options as plain JSON for a record, without headers and variables'
        values.
        """
        if self is NO_OPTIONS:
            return {}
        given = self.given()
        given.pop("extra_headers", None)
        shown: dict[str, Any] = {}
        for name, value in given.items():
            shown[name] = list(value) if isinstance(value, tuple) else self._hidden(value)
        return shown

    def overlaid(self, other: RequestOptions) -> RequestOptions:
        """Override these options with `other`. Bodies and headers are merged."""
        if other is NO_OPTIONS:
            return self
        changes = other.given()
        sensitive = other._origin.sensitive - self._origin.sensitive
        if not changes and not sensitive:
            return self
        for name in ("extra_body", "extra_headers"):
            if name in changes:
                changes[name] = {**(getattr(self, name) or {}), **changes[name]}
        merged = self.model_copy(update=changes)
        if sensitive:
            merged._origin = replace(self._origin, sensitive=self._origin.sensitive | sensitive)
        return merged

    def without(self, names: Iterable[str]) -> RequestOptions:
        """Copy these options without some."""
        if left_out := dict.fromkeys(names):
            return self.model_copy(update=left_out)
        return self

    def headers(self) -> dict[str, str]:
        """Reveal the extra headers with their values."""
        return revealed_by_name(self.extra_headers or {})

    def _secrets(self, *, sure: bool = False) -> set[str]:
        return super()._secrets(sure=sure) | with_tokens(self.headers().values())


NO_OPTIONS = RequestOptions()
OPTION_NAMES: tuple[str, ...] = tuple(RequestOptions.model_fields)
"""Option names, in display order."""


def _in_words(path: Sequence[str | int], reason: str, options: Mapping[str, Any]) -> str:
    name = str(path[0]) if path else "options"
    if name not in OPTION_NAMES:
        return (
            f"Unknown option {shown(name)}."
            f" {did_you_mean(closest(name, OPTION_NAMES, 1), OPTION_NAMES)}"
        )
    hint = ""
    if name == "reasoning_effort":
        valid = get_args(ReasoningEffort)
        hint = f" {did_you_mean(closest(str(options.get(name)), valid, 1), valid)}"
    words = reason.removeprefix("Value error, ")
    words = re.sub(r"^(?:Input|String) should (?=be|have)", "must ", words)
    where = ".".join(str(part) for part in path if part != "[key]")
    return f"{where}: {words}.{hint}"
