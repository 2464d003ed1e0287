"""`${NAME}` in the values of a config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.config.problems import KeyPath, Problem

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_HELD_AS_TEXT = {"clients": {"base_url"}, "models": {"extra_body"}, "servers": {"command", "args", "cwd", "url"}}
_NO_SECRETS = frozenset({"HOME", "LANG", "PATH", "PWD", "SHELL", "TEMP", "TMP", "TMPDIR", "USER", "USERNAME", "USERPROFILE"})


@dataclass
class Substitution:
    """Replaces variables and keeps what it did.

    Args:
        environ: Values by name.
        problems: Variables that are not set, what is no variable, and texts that cannot be encoded.
        sensitive: Values that went into fields which are not secret by their type.
    """

    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    sensitive: set[str] = field(default_factory=set)

    def apply(self, value: Any, at: KeyPath = ()) -> Any:
        """`value` with `${NAME}` and `${NAME:-default}` replaced in every text of it; `$${` becomes `${`.

        Args:
            value: A text, an object or a list; anything else is returned as it is. Keys are left alone.
            at: Its key path.
        """
        if isinstance(value, dict):
            for key in value:
                self._check(key, (*at, key))
            return {key: self.apply(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.apply(item, (*at, index)) for index, item in enumerate(value)]
        return self._text(value, at) if isinstance(value, str) else value

    def _text(self, text: str, at: KeyPath) -> str:
        return self._check(_REFERENCE.sub(lambda match: self._replacement(match, at), text), at)

    def _check(self, text: str, at: KeyPath) -> str:
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.problems.append(Problem(at, "must be a text of valid Unicode"))
        return text

    def _replacement(self, match: re.Match[str], at: KeyPath) -> str:
        if match["escaped"]:
            return match["escaped"]
        body = _BODY.fullmatch(match["body"])
        if body is None or not match["end"] or "${" in match["body"]:
            self.problems.append(Problem(at, "this is no variable; write ${NAME}, ${NAME:-default}, or $${ for the text ${"))
            return ""
        name, default = body["name"], body["default"]
        value = self.environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            self.problems.append(Problem(at, f"the environment variable {name} is not set"))
            return ""
        if name not in _NO_SECRETS and len(at) > 2 and at[2] in _HELD_AS_TEXT.get(str(at[0]), ()):
            self.sensitive.add(value)
        return value


def expanded(values: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str]:
    """The entries of a `.env` file, each `${NAME}` replaced from the environment and the entries above.

    An entry that refers to something that is not set is left out, so that whoever needs it hears that it is missing.
    """
    known: dict[str, str] = {}
    for name, value in values.items():
        substitution = Substitution({**known, **environ})
        text = substitution.apply(value)
        if text is not None and not substitution.problems:
            known[name] = text
    return known
