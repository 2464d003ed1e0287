"""What the parts of a config have in common: strict fields, and values that are shown masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr, field_serializer

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.secret import Secrets, can_be_masked, certain, redacted

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, le=86_400)]


_MAY_HOLD_SECRETS = ("command", "args", "cwd", "url", "base_url", "extra_body")


@dataclass(frozen=True)
class ConfigOrigin:
    """Where a config came from: given as the validation context, and kept beside the fields, never among them.

    Args:
        path: The file; None for a config made in Python.
        sensitive: Values of variables that were put into fields which are not secret by their type.
        notes: What the person should know about how the file was read.
        key_variable: Of a client whose key does not stand in the config: the variable that it was taken from.
    """

    # Two configs that say the same are equal, wherever they came from.
    path: Path | None = field(default=None, compare=False)
    sensitive: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    key_variable: str | None = field(default=None, compare=False)


class BaseConfig(BaseModel):
    """A part of a config: unknown keys are errors, and it never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    _origin: ConfigOrigin = PrivateAttr(default=ConfigOrigin())

    def model_post_init(self, context: Any, /) -> None:
        """Keep where the config came from."""
        if isinstance(context, ConfigOrigin):
            self._origin = context


class RemoteConfig(BaseConfig):
    """A thing at an address, which can hold the value of a variable: shown and dumped with that value masked."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled: the secrets would be in the bytes, and from there in a cache or on another machine."""
        raise UsageError(
            f"A {type(self).__name__} is not pickled: its keys would be in the bytes.",
            hint="Hand on the path of the config, and call load_config there.",
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
        """Every value to mask in text; those too short or too common to be told from other text are left out."""
        return Secrets(filter(can_be_masked, self._secrets()))

    def high_confidence_secrets(self) -> Secrets:
        """Return those of `secrets` that are more than settings.

        They are masked in the results of tools too, where a time zone or a year from `env` may rightly appear.
        """
        return Secrets(filter(can_be_masked, self._high_confidence_secrets()))

    def _secrets(self) -> set[str]:
        """Every value that is, or can hold, a secret, whatever its length."""
        return set(self._origin.sensitive)

    def _high_confidence_secrets(self) -> set[str]:
        return {value for value in self._origin.sensitive if certain("", value)}


def _as_text(value: Any) -> Any:
    """Numbers and booleans as they are written, since hosts take them in `env` and `headers`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("is not a name that a header can have")
    return name


def header_problem(value: str) -> str | None:
    """Why a text cannot be the value of an HTTP header, or None; the text is no part of the reason.

    The HTTP libraries would refuse it too: in the middle of a request, and with the text in the message.
    """
    if "\r" in value or "\n" in value:
        return "holds a line break, which a header cannot have"
    if not value.isascii():
        return "holds a character that is not ASCII, which a header cannot have"
    return None if value.replace("\t", "").isprintable() else "holds a control character, which a header cannot have"


def _header_text(secret: SecretStr) -> SecretStr:
    if reason := header_problem(secret.get_secret_value()):
        raise ValueError(reason)
    return secret


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not a name that an environment variable can have")
    return name


def _variable_text(secret: SecretStr) -> SecretStr:
    if "\0" in secret.get_secret_value():
        raise ValueError("holds a NUL character, which an environment variable cannot have")
    return secret


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderText = Annotated[SecretStr, BeforeValidator(_as_text), AfterValidator(_header_text)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableText = Annotated[SecretStr, BeforeValidator(_as_text), AfterValidator(_variable_text)]
