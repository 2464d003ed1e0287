"""Detect and mask secret values in text."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

MASK = "**********"
"""The replacement for a secret, which reveals nothing, not even its length."""

_SHORTEST = 4
COMMON = frozenset({"true", "false", "none", "null", "oauth"})
"""Values that are never secrets."""
_NAME_OF_SECRET = re.compile(r"key|token|secret|pass|pwd|auth|sig|cred|cookie", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|passw|auth)[\w-]*", re.IGNORECASE)
_SHORT_OPTION = re.compile(r"-[akpstwAKPSTW]")
"""Short options such as `-k VALUE`: may be a key, a count or a port, so the value decides."""
_HEADER_OPTION = re.compile(r"-H|--?headers?", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)[=:]\s*(?P<value>.+)", re.DOTALL)
_TOKEN = re.compile(
    r"\b(?:(?:sk|pk|rk)[-_]|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|figd_|hf_|AIza|AKIA|eyJ)[A-Za-z0-9._=-]{11,}[A-Za-z0-9_=-]"
)
"""Recognisable keys: those of OpenAI, Stripe, GitHub, GitLab, Slack, Figma, Hugging Face, Google, AWS, and JWTs."""
_LOOKS_SECRET = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])(?:[^\s/\\:]{8,}|(?![/~.]|\w+:[/\\])\S{20,})")
_AFTER_SCHEME = re.compile(r"://\S+")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*\Z")
MAX_SCHEME = 32
_RANDOM = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_=-]{20,}")


class Secrets(Set[str]):
    """A set of secret values whose repr shows nothing, so that tracebacks with local variables never contain them.

    Not a subclass of `frozenset`: traceback tools print the contents of those, whatever their repr is.

    Args:
        values: The values.
    """

    __slots__ = ("_values",)
    __hash__ = Set._hash

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)

    def __contains__(self, value: object) -> bool:
        return value in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return "<secrets>"

    def union(self, *others: Iterable[str]) -> Secrets:
        """Return the union with other values."""
        return Secrets(self._values.union(*others))


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with each of the secrets replaced by `MASK`.

    Args:
        text: Any text.
        secrets: Values to hide, except those too short or too common to distinguish from other text.
    """
    for form in forms_of(secrets):
        text = text.replace(form, MASK)
    return text


def forms_of(secrets: Iterable[str]) -> list[str]:
    """Return the forms in which secrets occur in text: verbatim, stripped, and as encoded in JSON and URLs.

    The longest come first, so that a secret that is part of another leaves nothing of the longer one.
    """
    return sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)


@lru_cache(maxsize=1024)
def _forms(secret: str) -> frozenset[str]:
    values = filter(can_be_masked, {secret, secret.strip()})
    return frozenset(form for value in values for form in (value, *_written(value)))


def _written(value: str) -> Iterator[str]:
    for text in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield from (text, text.replace("/", "\\/"))
    yield from (quote(value, errors="replace"), quote(value, safe="", errors="replace"))


def can_be_masked(value: str) -> bool:
    """Return whether `value` is long and unusual enough to mask in any text."""
    return len(value) >= _SHORTEST and value.lower() not in COMMON


def certain(name: str, value: str) -> bool:
    """Return whether a value is a secret beyond doubt, rather than a setting such as a time zone.

    That follows from its name, or from its being long, with letters and digits, and neither a path nor a URL.
    """
    return bool(_NAME_OF_SECRET.search(name) or _LOOKS_SECRET.fullmatch(value))


def revealed(secrets: Iterable[SecretStr | None]) -> set[str]:
    """Return the values of the secrets that are not None."""
    return {secret.get_secret_value() for secret in secrets if secret is not None}


def url_secrets(url: str | None) -> set[str]:
    """Return the secrets in a URL: the password, keys and tokens in its query, and anything that looks random.

    Each is returned verbatim, decoded, and as a request encodes user and password.
    """
    try:
        parts = urlsplit(url or "")
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return set()
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    named = [value for name, _, value in pairs if _NAME_OF_SECRET.search(name)]
    unnamed = [part for name, _, value in pairs for part in random_parts(f"{name}/{value}")]
    secrets = {password, *named, *unnamed, *random_parts(parts.path)}
    if password:
        # httpx decodes both before encoding them; this is what a server may echo.
        secrets.add(base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode())
    return secrets | {unquote(value) for value in secrets}


def header_secrets(value: str) -> set[str]:
    """Return the forms of a secret header value: whole, without the scheme, and decoded from `Basic`."""
    words = value.split()
    secrets = {value, *words[-1:]}
    if len(words) == 2 and words[0].lower() == "basic":
        try:
            plain = base64.b64decode(words[1], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return secrets
        secrets |= {plain, plain.partition(":")[2]}
    return secrets


def with_tokens(values: Iterable[str]) -> set[str]:
    """Return the secret values of headers and their secret parts: "Bearer x" as a whole, and x."""
    return {part for value in values if value.strip() for part in header_secrets(value)}


def option_secrets(args: Iterable[str]) -> Iterator[str]:
    """Yield the parts of a command line that are secret by name or by form.

    For example `--token x`, `--api-key=x`, `-k x`, `-e API_KEY=x`, `--header "X-Key: x"`, a password in a URL, or a
    recognisable token.
    """
    before = ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and _OPTION.fullmatch(name):
            yield value
        elif (_OPTION.fullmatch(before) and not arg.startswith("-")) or (
            _SHORT_OPTION.fullmatch(before) and _is_key(before, arg)
        ):
            yield arg
        elif _SHORT_OPTION.fullmatch(arg[:2]) and len(arg) > 2 and _LOOKS_SECRET.fullmatch(arg[2:]):
            yield arg[2:]
        else:
            yield from _assigned(before, arg)
        yield from _TOKEN.findall(arg)
        for address in _addresses(arg):
            yield from url_secrets(address)
        before = arg


def _addresses(text: str) -> Iterator[str]:
    """Yield the URLs in a text.

    The `://` is searched for first: trying each letter of a long word as the start of a scheme would take quadratic time.
    """
    for match in _AFTER_SCHEME.finditer(text):
        scheme = _SCHEME.search(text[max(0, match.start() - MAX_SCHEME) : match.start()])
        if scheme:
            yield scheme[0] + match[0]


def _is_key(option: str, value: str) -> bool:
    """Return whether a short option's value is a key; with `-k` even a short one, unless it is a word, number or path."""
    if _LOOKS_SECRET.fullmatch(value):
        return True
    return option == "-k" and not re.fullmatch(r"-.*|[\d.,]+\w?|[a-z]{1,11}|.*[/\\].*", value, re.DOTALL)


def _assigned(before: str, arg: str) -> Iterator[str]:
    """Return the value of a `NAME=value` or header argument whose name says that it is secret."""
    header = bool(_HEADER_OPTION.fullmatch(before))
    match = re.fullmatch(r"(?P<name>[\w-]+):\s*(?P<value>.+)", arg, re.DOTALL) if header else _ASSIGNMENT.fullmatch(arg)
    if match and _NAME_OF_SECRET.search(match["name"]) and not match["value"].startswith("//"):
        yield from header_secrets(match["value"]) if header else (match["value"],)


def random_parts(path: str) -> list[str]:
    """Return the parts of a path that look like tokens: long, with digits and letters."""
    return _RANDOM.findall(path)
