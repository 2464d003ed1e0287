"""Model request options, set on a model in the config or for one call."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, StrictBool, ValidationError, field_validator

from casual_mcp_nb.base.config_base import HeaderName, HeaderText, RemoteConfig
from casual_mcp_nb.base.model_options import ReasoningEffort
from casual_mcp_nb.base.secret import revealed, with_tokens
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown

TOOL_CHOICES = ("auto", "none", "required")
"""The values for `tool_choice` that are not a tool name."""

_MAX_DEPTH = 32


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _checked_json(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"must not be nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _checked_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_checked_json(item, depth + 1) for item in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError("must contain only JSON values: objects, lists, strings, finite numbers, true, false and null")


class RequestOptions(RemoteConfig):
    """A model request's options. None is not sent, and the provider's default applies.

    Args:
        temperature: Sampling temperature. Not sent to OpenAI's reasoning models, which refuse it.
        max_tokens: An answer's maximum tokens, including thinking.
        top_p: Samples from the likeliest tokens, up to this total probability.
        seed: Makes sampling repeatable, if the provider supports it.
        stop: A string, or strings, at which the answer ends.
        tool_choice: `auto`, `none`, `required`, or a tool's name. A forced choice applies to a turn's first step, so
            that the model can answer afterwards.
        parallel_tool_calls: Whether one answer may call several tools.
        reasoning_effort: How much the model thinks before it answers.
        extra_body: Additional fields in the JSON body, as documented by the provider.
        extra_headers: Additional HTTP headers. Their values are treated as secrets.
    """

    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    seed: int | None = None
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...] | None, BeforeValidator(_as_tuple)] = None
    tool_choice: str | None = Field(default=None, min_length=1)
    parallel_tool_calls: StrictBool | None = None
    reasoning_effort: ReasoningEffort | None = None
    extra_body: dict[str, Any] | None = None
    extra_headers: dict[HeaderName, HeaderText] | None = Field(default=None, repr=False)

    _check_body = field_validator("extra_body")(lambda value: _checked_json(value))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RequestOptions:
        """Collect one call's options. None means not given. A UsageError lists the valid names or values."""
        given = {name: value for name, value in options.items() if value is not None}
        if not given:
            return NO_OPTIONS
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
        # Raised outside the handler, because pydantic's error contains the input.
        raise UsageError("\n".join(_in_words(problem["loc"], problem["msg"], options) for problem in problems))

    def given(self) -> dict[str, Any]:
        """Collect the options that are not None, by name. Headers as secrets."""
        values = self.__dict__
        return {name: value for name in OPTION_NAMES if (value := values[name]) is not None}

    def shown(self) -> dict[str, Any]:
        """Collect the given options as plain JSON for a record, without headers and variables' values."""
        if self is NO_OPTIONS:
            return {}
        given = self.given()
        given.pop("extra_headers", None)
        return {name: list(value) if isinstance(value, tuple) else self._hidden(value) for name, value in given.items()}

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
        left_out = dict.fromkeys(names)
        return self.model_copy(update=left_out) if left_out else self

    def headers(self) -> dict[str, str]:
        """Reveal the extra headers with their values."""
        return {name: value.get_secret_value() for name, value in (self.extra_headers or {}).items()}

    def _secrets(self) -> set[str]:
        return super()._secrets() | with_tokens(revealed((self.extra_headers or {}).values()))

    def _high_confidence_secrets(self) -> set[str]:
        return super()._high_confidence_secrets() | with_tokens(revealed((self.extra_headers or {}).values()))


NO_OPTIONS = RequestOptions()
OPTION_NAMES: tuple[str, ...] = tuple(RequestOptions.model_fields)
"""Option names, in display order."""


def _in_words(path: Sequence[str | int], reason: str, options: Mapping[str, Any]) -> str:
    name = str(path[0]) if path else "options"
    if name not in OPTION_NAMES:
        return f"Unknown option {shown(name)}. {did_you_mean(closest(name, OPTION_NAMES, 1), OPTION_NAMES)}"
    valid = get_args(ReasoningEffort) if name == "reasoning_effort" else ()
    hint = f" {did_you_mean(closest(str(options.get(name)), valid, 1), valid)}" if valid else ""
    words = re.sub(
        r"^(?:Value error, |(?:Input|String) should (?=(?:be|have)))",
        lambda match: "must " if "should" in match[0] else "",
        reason,
    )
    where = ".".join(str(part) for part in path if part != "[key]")
    return f"{where}: {words}.{hint}"
