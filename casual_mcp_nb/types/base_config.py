"""Base classes of config sections: strict fields, and values that are masked when shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr, field_serializer

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.secret import Secrets, can_be_masked, certain, redacted

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, le=86_400)]


_MAY_HOLD_SECRETS = ("command", "args", "cwd", "roots", "url", "base_url", "extra_body")


@dataclass(frozen=True)
class ConfigOrigin:
    """Where a config came from: passed as validation context, and stored outside the fields.

    Args:
        path: The file; None for a config made in Python.
        sensitive: Values of variables inserted into fields whose type is not secret.
        notes: Remarks for the user about how the file was read.
        key_variable: The variable that a client's key came from, if the key is not in the config.
        variables: The names of the variables that were inserted, by section and name of the entry.
    """

    # Configs with the same content are equal, wherever they came from.
    path: Path | None = field(default=None, compare=False)
    sensitive: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    key_variable: str | None = field(default=None, compare=False)
    variables: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, compare=False)


_IN_PYTHON = ConfigOrigin()


class BaseConfig(BaseModel):
    """A section of a config: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    # As a factory, because pydantic copies a default deeply for each instance, and options are made for each request.
    _origin: ConfigOrigin = PrivateAttr(default_factory=lambda: _IN_PYTHON)

    def model_post_init(self, context: Any, /) -> None:
        """Remember where the config came from."""
        if isinstance(context, ConfigOrigin):
            self._origin = context


class RemoteConfig(BaseConfig):
    """A section with a URL, which can contain a variable's value: that value is masked when shown or dumped."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse pickling: the secrets would end up in the bytes, and so in a cache or on another machine."""
        raise UsageError(
            f"A {type(self).__name__} is not pickled: its keys would be in the bytes.",
            hint="Pass the path of the config instead, and call load_config there.",
        )

    @field_serializer(*_MAY_HOLD_SECRETS, check_fields=False)
    def _dumped(self, value: Any) -> Any:
        return self._hidden(value)

    def __iter__(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        for name, value in super().__iter__():
            yield name, self._hidden(value) if name in _MAY_HOLD_SECRETS else value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, self._hidden(value) if name in _MAY_HOLD_SECRETS else value

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._hidden(item) for item in value)
        if isinstance(value, dict):
            return {name: self._hidden(item) for name, item in value.items()}
        return redacted(value, self._secrets()) if isinstance(value, str) else value

    def secrets(self) -> Secrets:
        """Return every value to mask in text, except those too short or too common to distinguish from other text."""
        return Secrets(filter(can_be_masked, self._secrets()))

    def high_confidence_secrets(self) -> Secrets:
        """Return those of `secrets` that are not just settings.

        They are also masked in tool results, where a time zone or a year from `env` may legitimately appear.
        """
        return Secrets(filter(can_be_masked, self._high_confidence_secrets()))

    def _secrets(self) -> set[str]:
        """Yield every value that is, or can contain, a secret, whatever its length."""
        return set(self._origin.sensitive)

    def _high_confidence_secrets(self) -> set[str]:
        return {value for value in self._origin.sensitive if certain("", value)}


def _as_text(value: Any) -> Any:
    """Convert numbers and booleans to text, because hosts accept them in `env` and `headers`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("is not a valid header name")
    return name


def header_problem(value: str) -> str | None:
    """Return why a string cannot be the value of an HTTP header, or None; the reason does not contain the string.

    The HTTP libraries would also refuse it, but in the middle of a request, and with the string in the message.
    """
    if "\r" in value or "\n" in value:
        return "contains a line break, which a header cannot have"
    if not value.isascii():
        return "contains a character that is not ASCII, which a header cannot have"
    return None if value.replace("\t", "").isprintable() else "contains a control character, which a header cannot have"


def _header_text(secret: SecretStr) -> SecretStr:
    if reason := header_problem(secret.get_secret_value()):
        raise ValueError(reason)
    return secret


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not a valid name for an environment variable")
    return name


def _variable_text(secret: SecretStr) -> SecretStr:
    if "\0" in secret.get_secret_value():
        raise ValueError("contains a NUL character, which an environment variable cannot have")
    return secret


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderText = Annotated[SecretStr, BeforeValidator(_as_text), AfterValidator(_header_text)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableText = Annotated[SecretStr, BeforeValidator(_as_text), AfterValidator(_variable_text)]
