"""Detect and mask secrets, in text and in errors. Record errors without secrets."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic import SecretStr

from casual_mcp_nb.base.iterables import attributes, drop_none
from casual_mcp_nb.errors import CasualMcpError, uninitialized

MASK = "**********"
"""The replacement for a secret, which reveals nothing, not even its length."""

_MASKED = re.compile(r"(?<!\*)\*{10}(?!\*)")
_SHORTEST = 4
COMMON = frozenset({"true", "false", "none", "null", "oauth"})
"""Values that are never secrets."""
_NAME_OF_SECRET = re.compile(r"key|token|secret|pass|pwd?|auth|sig|cred|cookie", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|passw|auth)[\w-]*", re.IGNORECASE)
_SHORT_OPTION = re.compile(r"-[akpstwAKPSTW]")
"""Short options such as `-k VALUE`: may be a key, a count or a port, so the value decides."""
_HEADER_OPTION = re.compile(r"-H|--?headers?", re.IGNORECASE)
_HEADER = re.compile(r"(?P<name>[\w-]+):\s*(?P<value>.+)", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)[=:]\s*(?P<value>.+)", re.DOTALL)
_TOKEN = re.compile(
    r"\b(?:(?:sk|pk|rk)[-_]|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|figd_|hf_|AIza|AKIA|eyJ)[A-Za-z0-9._=-]{11,}[A-Za-z0-9_=-]"
)
"""Recognisable keys: OpenAI, Stripe, GitHub, GitLab, Slack, Figma, Hugging Face, Google, AWS, and
JWTs.
"""
_LOOKS_SECRET = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])(?:[^\s/\\:]{8,}|(?![/~.]|\w+:[/\\])\S{20,})")
_FLAG = re.compile(r"[A-Za-z_-]{0,16}|\d{1,3}")
_AFTER_SCHEME = re.compile(r"://\S+")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*\Z")
MAX_SCHEME = 32
_RANDOM = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_=-]{20,}")


class Secrets(Set[str]):
    """Secret values whose repr shows nothing, so that tracebacks with local variables never contain
    them.

    It does not derive from `frozenset`, because traceback tools print those whatever their repr is.
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
        """Unite these with other values."""
        return Secrets(self._values.union(*others))


class Mask:
    """Replaces secrets in text, even where they are encoded.

    Text without secrets is returned unchanged.

    A form can only be in a text that has the character it needs (`%` for percent-encoding, for
    example), so ordinary text is searched for the secrets themselves and no more: one scan in C for
    each. Each form is searched separately, so the time is linear in the text's length.
    """

    __slots__ = ("_needs", "_run", "_wanted", "longest", "plain")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values: set[str] = set()
        for secret in secrets:
            values |= {secret, secret.strip()}
        self.plain = frozenset(filter(can_be_masked, values))
        forms: dict[str, str] = {}
        for value in self.plain:
            forms |= _forms(value)
        # The longest come first, so that masking a part does not reveal the rest of a longer
        # secret.
        self._wanted = sorted(forms.items(), key=lambda item: (-len(item[0]), item[0]))
        self.longest = len(self._wanted[0][0]) if self._wanted else 0
        shortest = min((len(form) for form, marker in self._wanted if marker == _RUN), default=0)
        self._run = b"a" * shortest
        self._needs: dict[tuple[bool, ...], tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def __repr__(self) -> str:
        return "<mask>"

    def __call__(self, text: str) -> str:
        """Replace every secret in a text by `MASK`."""
        if self._wanted:
            for form in self._possible(text):
                if form in text:
                    text = text.replace(form, MASK)
        return text

    def is_in(self, text: str) -> bool:
        """Check whether a text has a secret in it."""
        return bool(self._wanted) and any(form in text for form in self._possible(text))

    def _possible(self, text: str) -> tuple[str, ...]:
        """Select the forms that can be in a text, by the characters in it."""
        has_run = bool(self._run) and self._run in text.encode("ascii", "replace").translate(_RUNS)
        present = ("%" in text, "&" in text, "\\" in text, "+" in text, has_run)
        if present not in self._needs:
            markers = {"", *compress(_MARKERS, present)}
            self._needs[present] = tuple(form for form, marker in self._wanted if marker in markers)
        return self._needs[present]


_RUN = "run"
"""Marks a form that is a long run of letters and digits: base64 and hexadecimal."""
_MARKERS = ("%", "&", "\\", "+", _RUN)
_RUNS = bytes(
    ord("a") if chr(byte) in string.ascii_letters + string.digits + "+/-_" else ord(" ")
    for byte in range(256)
)
_MIN_RUN = 8
"""Minimum length for a match inside base64. Shorter ones occur by chance."""


def holds_mask(text: str) -> bool:
    """Check whether a text contains a masked secret.

    A longer row of asterisks is something else.
    """
    return _MASKED.search(text) is not None


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in `text` with `MASK`, even where they are encoded, except those too short or
    too common.
    """
    return mask_of(secrets)(text)


def mask_of(secrets: Iterable[str]) -> Mask:
    """Create a mask for these secrets, cached for the next call."""
    return _mask_of(frozenset(secrets))


@lru_cache(maxsize=256)
def _mask_of(secrets: frozenset[str]) -> Mask:
    return Mask(secrets)


@lru_cache(maxsize=1024)
def _forms(value: str) -> dict[str, str]:
    """List the forms in which a value occurs in text, each with the character without which it
    cannot.
    """
    forms: dict[str, str] = {}
    written = dict.fromkeys((*_escaped_in_json(value), *_in_urls(value), *_in_html(value)))
    # Structured values are searched as JSON, which escapes once more.
    for form in (*written, *(json.dumps(form, ensure_ascii=False)[1:-1] for form in written)):
        forms.setdefault(
            form, next((each for each in _MARKERS[:-1] if each in form and each not in value), "")
        )
    data = value.encode("utf-8", "replace")
    # A whole value is found in base64 even if it would be too short inside a longer text.
    runs = [
        *(run for run in _as_runs(data) if len(run) >= _MIN_RUN),
        base64.b64encode(data).decode().rstrip("="),
    ]
    forms |= dict.fromkeys(runs, _RUN)
    forms[value] = ""
    return forms


def _escaped_in_json(value: str) -> Iterator[str]:
    """Yield a value as in JSON, in JSON within JSON, and in that again.

    Also as encoders for web pages write it.
    """
    for ascii_only in (True, False):
        text = value
        for _ in range(3):
            text = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            yield from (
                text,
                text.replace("/", "\\/"),
                re.sub("[<>&']", lambda match: f"\\u{ord(match[0]):04x}", text),
            )
    yield "".join(f"\\u{ord(character):04x}" for character in value)


def _in_urls(value: str) -> Iterator[str]:
    quoted = [quote(value, safe=safe, errors="replace") for safe in ("/", "")] + [
        quote_plus(value, errors="replace")
    ]
    for text in (*quoted, "".join(f"%{byte:02X}" for byte in value.encode("utf-8", "replace"))):
        yield from (text, re.sub("%..", lambda match: match[0].lower(), text), quote(text, safe=""))


def _in_html(value: str) -> Iterator[str]:
    for text in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        escaped = html.escape(text)
        yield from (
            escaped,
            html.escape(text, quote=False),
            escaped.replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        )
    yield "".join(f"&#{ord(character)};" for character in value)
    yield "".join(f"&#x{ord(character):x};" for character in value)


def _as_runs(data: bytes) -> Iterator[str]:
    """Yield bytes as hexadecimal, and the base64 characters that do not depend on their
    neighbours.
    """
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        sure = encoded[(8 * before + 5) // 6 : 8 * (before + len(data)) // 6]
        yield from (sure, sure.replace("+", "-").replace("/", "_"))


def can_be_masked(value: str) -> bool:
    """Check whether `value` is long and unusual enough to mask in any text."""
    return len(value) >= _SHORTEST and value.lower() not in COMMON


NO_SECRETS = Mask()
"""Masks nothing."""


def certain(name: str, value: str) -> bool:
    """Check whether a value is a secret beyond doubt, rather than a setting such as a time zone.

    That follows from its name, or from its being long, with letters and digits, and neither a path
    nor a URL.
    """
    return bool(_NAME_OF_SECRET.search(name) or _LOOKS_SECRET.fullmatch(value))


def revealed_by_name(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    """Reveal secrets by name, such as those of headers or of an environment."""
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def revealed(secrets: Iterable[SecretStr | None]) -> set[str]:
    """Reveal those secrets that are not None."""
    return {secret.get_secret_value() for secret in secrets if secret is not None}


def url_secrets(url: str | None) -> set[str]:
    """Find the secrets in a URL: the password, keys and tokens in its query, and anything that
    looks random.

    Each is returned verbatim, decoded, and as a request encodes user and password.
    """
    try:
        parts = urlsplit(url or "")
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return set()
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    secrets = {password, *random_parts(parts.path)}
    for name, equals, value in pairs:
        if _NAME_OF_SECRET.search(name):
            secrets.add(value)
        # Without a name it is a flag such as `readonly`, or a key.
        if not equals and not _FLAG.fullmatch(name):
            secrets.add(name)
        secrets.update(random_parts(f"{name}/{value}"))
    if password:
        # httpx decodes both before encoding them; this is what a server may echo.
        secrets.add(base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode())
    return secrets | set(map(unquote, secrets))


def header_secrets(value: str) -> set[str]:
    """List a secret header's forms: whole, without the scheme, and decoded from `Basic`."""
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
    """List headers' secret values and parts: "Bearer x" as a whole, and x."""
    parts: set[str] = set()
    for value in values:
        if value.strip():
            parts |= header_secrets(value)
    return parts


def option_secrets(args: Iterable[str]) -> Iterator[str]:
    """Yield the command-line arguments that are secret by name or by form.

    For example `--token x`, `--api-key=x`, `-k x`, `-e API_KEY=x`, `--header "X-Key: x"`, a
    password in a URL, or a recognisable token.
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

    The `://` is searched for first: trying each letter in a long word as a scheme's start would
    take quadratic time.
    """
    for match in _AFTER_SCHEME.finditer(text):
        scheme = _SCHEME.search(text[max(0, match.start() - MAX_SCHEME) : match.start()])
        if scheme:
            yield scheme[0] + match[0]


def _is_key(option: str, value: str) -> bool:
    """Check whether a short option's value is a key.

    With `-k` even a short one, unless it is a word, number or path.
    """
    if _LOOKS_SECRET.fullmatch(value):
        return True
    return option == "-k" and not re.fullmatch(
        r"-.*|[\d.,]+\w?|[a-z]{1,11}|.*[/\\].*", value, re.DOTALL
    )


def _assigned(before: str, arg: str) -> Iterator[str]:
    """Yield the value from a `NAME=value` or header argument whose name means that it is secret."""
    is_header = bool(_HEADER_OPTION.fullmatch(before))
    pattern = _HEADER if is_header else _ASSIGNMENT
    match = pattern.fullmatch(arg)
    if not match or not _NAME_OF_SECRET.search(match["name"]) or match["value"].startswith("//"):
        return
    if is_header:
        yield from header_secrets(match["value"])
    else:
        yield match["value"]


def random_parts(path: str) -> list[str]:
    """Find path segments that look like tokens: long, with digits and letters."""
    return _RANDOM.findall(path)


_WORD_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORD = re.compile(
    r"api_?key|auth|authorization|bearer|cookies?|credentials?|jwt|otp|pass|pass(?:code|phrase|wd|words?)|pin|pwd|secrets?|"
    r"(?:j|php)?sess(?:ion)?id|sid|token"
)
_SECRET_PAIRS: Mapping[str, re.Pattern[str]] = {
    "key": re.compile(
        r"access|account|api|auth|client|encryption|functions?|master|private|shared|signing|subscription"
    ),
    "session": re.compile(r"id|key"),
}
"""Pairs of words that together mean a secret."""
_PERHAPS = frozenset({"key", "keys", "session", "sig", "signature", "tokens"})
"""Words in names whose value is a secret only if it looks like one."""
_ABOUT_SECRETS = re.compile(
    r"at|count|enabled|endpoint|expir(?:es|y)|in|length|limit|max|methods?|min|name|policy|progress|required|scope|size|supported|"
    r"ttl|type|uri|url|usage"
)
"""Last words in names for facts about a secret, such as `token_type`."""
_PAGES = frozenset({"continuation", "next", "page", "progress", "sync"})
_TYPES = frozenset(
    {"array", "boolean", "integer", "number", "object", "optional", "required", "string"}
)
_SCHEMAS = frozenset({"inputSchema", "outputSchema", "requestedSchema"})
_AFTER_WORD = re.compile(
    r"(?i)\b(?P<scheme>bearer|basic|dpop|token)(?P<gap>"
    r" {1,3})(?=\S{0,4096}\d)[A-Za-z0-9._~+/=-]{8,}"
)
_QUERY = re.compile(r"(?P<before>[?&;#])(?P<name>[\w.%~\[\]-]{1,64})=(?P<value>[^&#;\s\"'<>\\]+)")
_USER = re.compile(r"://[^\s/@:\"'<>]{0,256}:[^\s/@\"'<>]{1,1024}@")
_NAMED = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{0,63})(?P<gap>\\{0,8}[\"']?\s{0,3}[:=]\s{0,3}\\{0,8}[\"']?(?:(?i:bearer|basic|dpop|token)\s{1,3})?)"
    r"(?P<value>[^\s\"'\\,;&<>{}\[\]()]{4,})"
)
_IN_HEADERS = frozenset({"cookie", "key", "session", "sig", "signature"})
_IN_QUERIES = frozenset({"assertion", "code", "code_verifier", "state"})
_SCHEMES = frozenset({"basic", "bearer", "digest", "dpop", "token"})
_MAX_SUSPECTS = 200
_LONG_ENOUGH = 8


def names_secret(name: str, value: str = "") -> bool:
    """Check whether an argument, header or other name means a secret, rather than a fact about one.

    A name such as `key` means a secret only if the value looks like one.
    """
    words = [word.lower() for word in _WORD_OF_NAME.findall(name[:200])]
    present = set(words)
    if (
        not words
        or _ABOUT_SECRETS.fullmatch(words[-1])
        or (words[-1] == "token" and present & _PAGES)
    ):
        return False
    if any(map(_SECRET_WORD.fullmatch, words)):
        return True
    if any(
        word in present and any(map(other.fullmatch, words))
        for word, other in _SECRET_PAIRS.items()
    ):
        return True
    return bool(present & _PERHAPS and _LOOKS_SECRET.fullmatch(value))


class Suspects:
    """Masks probable secrets that are in no config, by name or by form.

    Text has keys, tokens in URLs, and values after names such as `password`; JSON has members, and
    HTTP has headers. Long values are also collected, to be masked where nothing but the value
    itself reveals them: `collected` is their mask.
    """

    def __init__(self) -> None:
        self._values: set[str] = set()

    @property
    def collected(self) -> Mask:
        """The mask for collected values."""
        return Mask(self._values)

    def text(self, text: str) -> str:
        """Mask the suspects in a text. JSON is parsed."""
        if text[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
                if (masked := self.value(value)) != value:
                    return json.dumps(masked, ensure_ascii=False)
        if tokens := _TOKEN.findall(text):
            for token in tokens:
                self._collect(token)
            text = _TOKEN.sub(MASK, text)
        if "://" in text:
            text = _USER.sub(f"://{MASK}@", text)
        if "=" in text:
            text = _QUERY.sub(self._in_query, text)
        if "=" in text or ":" in text:
            text = _NAMED.sub(self._named, text)
        return _AFTER_WORD.sub(rf"\g<scheme>\g<gap>{MASK}", text) if " " in text else text

    def value(self, value: Any, name: str = "", in_schema: bool = False) -> Any:
        """Mask the suspects in a JSON value that is called `name` where it is.

        A schema's properties are not values.
        """
        match value:
            case str():
                if name and names_secret(name, value):
                    self._collect(value)
                    return MASK
                return self.text(value)
            case dict():
                is_secret = bool(name) and not in_schema and names_secret(name)
                masked = {}
                for key, item in value.items():
                    shown = self.text(str(key))
                    own = name if is_secret else str(key)
                    masked[shown] = self.value(item, own, in_schema or key in _SCHEMAS)
                return masked
            case list() | tuple():
                return [self.value(item, name, in_schema) for item in value]
            case bool() | None:
                return value
            case int() | float():
                return MASK if name and names_secret(name) else value
        return self.other(value, name)

    def other(self, value: Any, name: str) -> Any:
        """Mask the suspects in a value that JSON lacks.

        It has none, unless a subclass has such values.
        """
        return value

    def credential(self, name: str, value: str) -> str | None:
        """Mask an HTTP header with credentials, except the scheme, or return None for others."""
        words = {word.lower() for word in _WORD_OF_NAME.findall(name)}
        if not (names_secret(name, value) or words & _IN_HEADERS):
            return None
        for part in re.split(r"[;,\s]+", value):
            self._collect(part.partition("=")[2] if "cookie" in words else part)
        scheme, blank, _ = value.strip().partition(" ")
        return f"{scheme} {MASK}" if blank and scheme.lower() in _SCHEMES else MASK

    def url(self, url: str) -> str:
        """Mask the suspects in an HTTP address, see `url_secrets`."""
        for part in sorted(filter(can_be_masked, url_secrets(url)), key=len, reverse=True):
            self._collect(part)
            url = url.replace(part, MASK)
        return self.text(url)

    def _in_query(self, match: re.Match[str]) -> str:
        name, value = unquote(match["name"]), match["value"]
        if not (
            names_secret(name, value)
            or (name.lower() in _IN_QUERIES and _LOOKS_SECRET.fullmatch(value))
        ):
            return match[0]
        self._collect(value)
        self._collect(unquote(value))
        return f"{match['before']}{match['name']}={MASK}"

    def _named(self, match: re.Match[str]) -> str:
        value = match["value"]
        if (
            value.lower() in COMMON | _TYPES
            or value.startswith("//")
            or not names_secret(match["name"], value)
        ):
            return match[0]
        self._collect(value)
        return f"{match['name']}{match['gap']}{MASK}"

    def _collect(self, value: str) -> None:
        if (
            len(value) >= _LONG_ENOUGH
            and MASK not in value
            and can_be_masked(value)
            and len(self._values) < _MAX_SUSPECTS
        ):
            self._values.add(value)


E = TypeVar("E", bound=CasualMcpError)
MAX_CAUSE = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """An error's fields, for programs, or None for those that do not concern it.

    For `kind` see `CasualMcpError.kind`. `retryable` is whether the same request can succeed if
    repeated, in `retry_after` seconds. Support asks for the `request_id`. The headers are those
    about limits, delays and ids.
    """

    kind: str
    retryable: bool = False
    server: str | None = None
    tool: str | None = None
    client: str | None = None
    model: str | None = None
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Collect the fields that have a value, for JSON."""
        named = drop_none(attributes(self, self.__slots__))
        return {name: value for name, value in named.items() if value != {}}


def failure_of(error: BaseException | None) -> Failure | None:
    """Read an error's fields, or return None if it is not from this package."""
    if not isinstance(error, CasualMcpError):
        return None
    names = [name for name in Failure.__slots__ if hasattr(error, name)]
    return Failure(**attributes(error, names))


class MaskedError(Exception):
    """Replaces another library's error whose text contains a secret or is very long.

    Its text is that error's class and the first part of its text, masked.
    """

    @classmethod
    def of(cls, error: BaseException, masked: str) -> MaskedError:
        """Create the substitute for an error, from its masked text."""
        line = " ".join(masked.split())
        return cls(
            f"{type(error).__name__}: {line[:MAX_CAUSE]}{'…' if len(line) > MAX_CAUSE else ''}"
        )


def masked_error(error: E, secrets: Collection[str]) -> E:
    """Mask secrets in an error's message and fields.

    Returns an error of the same kind, or the same error if it has none.
    """
    mask = mask_of(secrets)
    message = mask(str(error))
    fields = {name: masked_value(value, mask) for name, value in vars(error).items()}
    if message == str(error) and fields == vars(error):
        return error
    copy = cast("E", uninitialized(type(error), (message,)))
    vars(copy).update(fields)
    copy.__cause__ = None
    if error.__cause__ is not None:
        copy.__cause__ = MaskedError.of(error.__cause__, mask(str(error.__cause__)))
    return copy


def masked_value(value: Any, mask: Mask) -> Any:
    """Mask secrets in all texts in a value, also those that are names in it, and leave its
    numbers.
    """
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {mask(str(name)): masked_value(each, mask) for name, each in value.items()}
        case list() | tuple():
            return type(value)(masked_value(each, mask) for each in value)
    return value
