"""The commands in a config and the addresses that get its keys, and whether the person has accepted
them.

Accepted configs are remembered in the user's config folder. Each file there is about one config or
folder and is replaced as a whole, so that concurrent programs cannot damage each other's. It holds
no values, only hashes with a separate key. A file that cannot be read, or that others could have
written, counts as absent: the person is asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import REGISTRY, ClientConfig, Config, ModelConfig, ServerConfig
from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.files import part_file, read_private
from casual_mcp_nb.base.ip_addresses import host_in, is_this_computer
from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.providers.registry import spec_of

TrustState = Literal["harmless", "trusted", "new", "changed"]
"""`harmless` starts nobody else's programs and sends no key elsewhere.

`trusted` is unchanged since it was accepted.
"""

_PLAIN = re.compile(r"[\w@%+=:,./*~<>()\[\]{} -]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class TrustEntry(Displayable):
    """A server or client in a config, or the config's own settings.

    `facts` tell in full what it would start or send where, with secrets masked. `changed` are the
    labels of facts that changed since it was accepted.
    """

    kind: Literal["config", "server", "client"]
    name: str
    facts: tuple[tuple[str, str], ...]
    state: TrustState
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trust(DisplayableList[TrustEntry], items="entries"):
    """The programs that a config would start and the hosts its keys would go to.

    The config's settings come first.

    `required` is whether the person must accept it before anything starts. If not, `why` is the
    reason. `on_accept` remembers the answer.
    """

    source: str
    entries: tuple[TrustEntry, ...] = field(default=(), repr=False)
    required: bool = False
    why: str = ""
    on_accept: Callable[[], None] = field(default=ignore, repr=False, compare=False)

    @property
    def text(self) -> str:
        """What is asked about, in lines, with nothing cut. The names of the others come first."""
        lines: list[str] = []
        for state in ("harmless", "trusted"):
            others = [entry for entry in self.entries if entry.state == state]
            if others:
                names = ", ".join(f"{entry.kind} {exact_word(entry.name)}" for entry in others)
                lines.append(f"{state}: {names}")
        for entry in self.entries:
            if entry.state not in ("harmless", "trusted"):
                lines += (title_of(entry), lines_of(entry))
        return "\n".join(lines)

    def accept(self) -> None:
        """Accept it as it is now.

        That is remembered for this file, on this computer, until something in it changes.
        """
        self.on_accept()


def title_of(entry: TrustEntry) -> str:
    """Describe an entry: its kind, and whether it was accepted."""
    state = f"changed: {', '.join(entry.changed)}" if entry.changed else entry.state
    return f"{entry.kind} {exact(entry.name)} ({state})"


def lines_of(entry: TrustEntry) -> str:
    """Format an entry's facts, one per line. Changes are marked with `*`."""
    lines = []
    for label, text in entry.facts:
        mark = " "
        if label in entry.changed:
            mark = "*"
        lines.append(f"{mark} {label:12} {text}")
    return "\n".join(lines)


def exact(text: str) -> str:
    """Format a text so that it cannot be mistaken for another one: as it is if it is plain ASCII on
    one line, else as JSON.
    """
    if _PLAIN.fullmatch(text) and text == text.strip():
        return text
    return json.dumps(text)


def exact_word(text: str) -> str:
    """Format a word of a command or a name in a list so that it is clear where it ends, see
    `exact`.
    """
    if " " not in text and exact(text) == text:
        return text
    return json.dumps(text)


VERSION = 1
MAX_BYTES = 1_000_000
_PROTECTING = frozenset(
    {"approval", "tools", "pinned tools", "instructions", "strict", "store", "registry", "apps"}
)
"""Labels of protective settings: removing one needs consent even if everything else is harmless."""
_SECRET_ENDINGS = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PAT",
    "CREDENTIAL",
    "CREDENTIALS",
)


def store_folder() -> Path:
    """Locate the store's folder: in `XDG_CONFIG_HOME`, in `APPDATA` on Windows, or in
    `~/.config`.
    """
    variable = "APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME"
    base = os.environ.get(variable, "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return root / "casual_mcp_nb" / "trust"


class TrustStore:
    """Remembers accepted settings, servers and clients."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where it is remembered."""
        return self._folder or store_folder()

    def entries(
        self, config: Config, listed_at: str = "", typed_in: str = ""
    ) -> tuple[TrustEntry, ...]:
        """List a config's settings, servers and clients, each compared with the file's accepted
        version.

        Args:
            config: The config.
            listed_at: Identifies its server in a catalog or registry, if it has no file.
            typed_in: Where the person may have typed it. What they typed there is accepted, unless
                it is in a file.
        """
        key = listed_at or config.path
        record = self._read(key) if key else None
        typed = self._read(_typed(typed_in)) if typed_in else None
        compared: list[TrustEntry] = []
        for entry in _described(config):
            result = _compared(entry, record)
            if typed is not None and result.state != "trusted" and not _is_in_file(entry, config):
                as_typed = _compared(entry, typed)
                if as_typed.state == "trusted":
                    result = as_typed
            compared.append(result)
        return tuple(entry for entry in compared if entry.facts)

    def accept(self, config: Config, listed_at: str = "") -> None:
        """Remember a config file, or a server that was found, as it would start now."""
        key = listed_at or config.path
        if key is None:
            return
        salt = secrets.token_hex(32)
        accepted = {entry.key: entry.facts.hashes(salt) for entry in _described(config)}
        described = {"found": listed_at} if listed_at else {"config": _text_of(key)}
        self._write(key, {**described, "salt": salt, "accepted": accepted})

    def accept_typed(self, config: Config, typed_in: str) -> None:
        """Remember what a person typed somewhere, beside what they typed there before."""
        key = _typed(typed_in)
        accepted, salt = _accepted_in(self._read(key))
        salt = salt or secrets.token_hex(32)
        merged = {**accepted}
        for entry in _described(config):
            if not entry.is_harmless:
                merged[entry.key] = entry.facts.hashes(salt)
        if merged != accepted:
            self._write(key, {"typed": typed_in, "salt": salt, "accepted": merged})

    def accept_folder(self, folder: Path) -> None:
        """Remember that every config in a folder, and in those below it, is the person's own."""
        self._write(folder, {"folder": str(folder.resolve())})

    def accepted_folder(self, path: Path) -> Path | None:
        """Find the accepted folder around a config, or None."""
        for folder in path.resolve().parents:
            record = self._read(folder) or {}
            if record.get("folder") == str(folder):
                return folder
        return None

    def accept_address(self, key: str) -> None:
        """Remember that a server may use an address for its sign-in."""
        self._write(f"address: {key}", {"address": key})

    def accepts_address(self, key: str) -> bool:
        """Check whether the person has accepted an address of a server's sign-in."""
        record = self._read(f"address: {key}") or {}
        return record.get("address") == key

    def _file(self, key: Path | str) -> Path:
        digest = hashlib.sha256(_text_of(key).encode("utf-8", "surrogateescape")).hexdigest()
        return self.folder / f"{digest[:40]}.json"

    def _read(self, path: Path | str) -> dict[str, Any] | None:
        record = _record_in(self._file(path))
        return record if record.get("version") == VERSION else None

    def _write(self, path: Path | str, record: dict[str, Any]) -> None:
        file = self._file(path)
        version = _record_in(file).get("version")
        if isinstance(version, int) and version > VERSION:
            raise UsageError(
                f"{shown(file)} was written by a later version of casual_mcp_nb, which remembers"
                " more.",
                hint="Update the package, or pass trust=True.",
            )
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with part_file(file, 0o600) as output:
                output.write(json.dumps({"version": VERSION, **record}, indent=1).encode())
        except OSError as error:
            raise UsageError(
                f"{shown(file)} cannot be written: {error.strerror}.",
                hint="Pass trust=True instead.",
            ) from None


def _record_in(file: Path) -> dict[str, Any]:
    """Read a file of the store, of whatever version. A damaged or missing one is empty."""
    try:
        record = json.loads(read_private(file, MAX_BYTES, secret=False))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _accepted_in(record: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
    """Read what a record says was accepted, and the salt of its hashes. A damaged one is empty."""
    saved = record or {}
    accepted, salt = saved.get("accepted"), saved.get("salt")
    if isinstance(accepted, dict) and isinstance(salt, str) and salt:
        return accepted, salt
    return {}, ""


def _text_of(key: Path | str) -> str:
    # No path begins like the other texts.
    return f"found: {key}" if isinstance(key, str) else str(key.resolve())


def _typed(place: str) -> str:
    return f"typed in {place}"


_Asked = Mapping[str, tuple[str, ...]]
"""What an entry asks the person to type, by where it goes."""


class _Facts:
    """What an entry would start or send, by label, in the order in which it is shown.

    Attributes:
        values: What hashes are made of.
        texts: What a person reads, empty for what is not set.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.texts: dict[str, str] = {}

    def add(self, label: str, value: Any, text: str) -> None:
        self.values[label] = value
        self.texts[label] = text

    def add_if(self, is_set: object, label: str, value: Any, text: str) -> None:
        """Add a fact only if it is set: configs accepted before it existed stay accepted."""
        self.texts[label] = ""
        if is_set:
            self.add(label, value, text)

    def hashes(self, salt: str) -> dict[str, str]:
        hashes: dict[str, str] = {}
        for label, value in self.values.items():
            text = json.dumps([label, value], sort_keys=True).encode("utf-8", "replace")
            made = hashlib.blake2b(text, key=salt.encode()[:64], digest_size=32)
            hashes[label] = made.hexdigest()
        return hashes


class _Described(NamedTuple):
    """A server, a client, or the config's own settings, as they are now."""

    kind: Literal["config", "server", "client"]
    name: str
    facts: _Facts
    is_harmless: bool

    @property
    def key(self) -> str:
        """Where its accepted version is in a record."""
        return f"{self.kind} {self.name}"


def _is_in_file(entry: _Described, config: Config) -> bool:
    if entry.kind == "server":
        return config.servers[entry.name].file is not None
    return config.path is not None


def _compared(entry: _Described, record: Mapping[str, Any] | None) -> TrustEntry:
    accepted, salt = _accepted_in(record)
    before = accepted.get(entry.key)
    changed: tuple[str, ...] = ()
    state: TrustState = "new"
    if isinstance(before, dict):
        now = entry.facts.hashes(salt)
        labels = dict.fromkeys([*now, *before])
        changed = tuple(label for label in labels if now.get(label) != before.get(label))
        state = "changed" if changed else "trusted"
    if entry.is_harmless and state != "trusted" and not _PROTECTING.intersection(changed):
        state, changed = "harmless", ()
    shown_texts = dict(entry.facts.texts)
    for label in changed:
        if not shown_texts.get(label):
            shown_texts[label] = "not set any more"
    rows = tuple((label, text) for label, text in shown_texts.items() if text)
    return TrustEntry(entry.kind, entry.name, rows, state, changed)


def _described(config: Config) -> Iterator[_Described]:
    """Describe the config's settings, its servers and its clients.

    What a config may change without a question is listed with the reasons in
    `tests/config/test_trust_coverage.py`.
    """
    asked = config.questions
    config = config.before_typing()
    harmless = not config.strict and config.registry == REGISTRY
    file = config.path.name if config.path else ""
    yield _Described("config", file, _of_config(config, asked), harmless)
    for name, server in config.servers.items():
        asked = server.questions
        server = server.before_typing()
        variables = config.variables_of("servers", name)
        harmless = not asked and _is_harmless_server(server, variables)
        yield _Described("server", name, _of_server(server, variables, asked), harmless)
    for name, client in config.clients.items():
        asked = client.questions
        client = client.before_typing()
        models: dict[str, ModelConfig] = {}
        for model, row in config.models.items():
            if row.client == name:
                models[model] = row.before_typing()
                for path, questions in row.questions.items():
                    asked[f"{model}: {path}"] = questions
        used = list(config.variables_of("clients", name))
        for model in models:
            used += config.variables_of("models", model)
        variables = tuple(dict.fromkeys(used))
        harmless = not asked and _is_harmless_client(client, variables, models)
        yield _Described("client", name, _of_client(client, variables, models, asked), harmless)


def _of_config(config: Config, asked: _Asked) -> _Facts:
    facts = _Facts()
    facts.add_if(asked, "asks for", asked, _asked_for(asked))
    facts.add_if(config.strict, "strict", True, "yes")
    store = "nowhere: conversations are not saved"
    if config.store:
        store = exact(config.store)
    facts.add_if(config.store is not None, "store", config.store, store)
    other = config.registry != REGISTRY
    facts.add_if(other, "registry", config.registry, exact(config.registry))
    facts.add_if(not config.apps, "apps", False, "no, pages of servers are not shown")
    return facts


def _of_server(server: ServerConfig, variables: tuple[str, ...], asked: _Asked) -> _Facts:
    masked = server.in_question()
    env: dict[str, str | None] = {}
    for name, value in server.env.items():
        env[name] = None if _is_secret(name) else value.get_secret_value()
    folder = masked["cwd"]
    if server.command and not server.cwd:
        folder = Path.cwd()
    roots = " ".join(exact_word(str(root)) for root in masked["roots"])
    sign_in = ""
    if server.auth is not None:
        sign_in = "oauth" if server.auth.get_secret_value() == "oauth" else "token"
    settings = server.sign_in and server.sign_in.facts
    tools = f"all except {_names(server.exclude_tools)}"
    if server.include_tools is not None:
        tools = f"only {_names(server.include_tools) or 'none'}"
    limits_tools = server.include_tools is not None or server.exclude_tools
    approval = str(server.approval or "")
    if isinstance(server.approval, Mapping):
        approval = json.dumps(server.approval)
    apps = "no, its pages are not shown"
    if server.apps:
        apps = "yes, its pages are shown"
    facts = _Facts()
    facts.add("command", server.command, _exact_or_empty(masked["command"], exact_word))
    facts.add("bundled", server.bundled, _exact_or_empty(server.bundled))
    facts.add("arguments", server.args, " ".join(map(exact_word, masked["args"])))
    facts.add("folder", server.cwd, _exact_or_empty(folder))
    facts.add_if(server.roots, "shared folders", server.roots, roots)
    facts.add("environment", env, _names(env))
    facts.add("address", server.url, _exact_or_empty(masked["url"]))
    facts.add("transport", server.transport, server.transport or "")
    facts.add("headers", sorted(server.headers), _names(server.headers))
    facts.add("sign-in", sign_in, sign_in)
    facts.add_if(settings, "sign-in settings", settings, json.dumps(settings))
    facts.add("variables", sorted(variables), _names(variables))
    facts.add_if(asked, "asks for", asked, _asked_for(asked))
    facts.add_if(limits_tools, "tools", [server.include_tools, server.exclude_tools], tools)
    facts.add("approval", server.approval, approval)
    pinned = "yes, a changed tool is blocked until you accept the change"
    facts.add_if(server.pin_tools, "pinned tools", True, pinned)
    ignored = "no, kept out of the system prompt"
    facts.add_if(not server.instructions, "instructions", False, ignored)
    facts.add_if(server.sampling, "sampling", True, "yes, it may ask for your model's answers")
    facts.add_if(server.apps is not None, "apps", server.apps, apps)
    facts.add("enabled", server.enabled, "")
    if not server.enabled:
        facts.texts["enabled"] = "no, not started unless you turn it on"
    return facts


_SENT = {
    "hosted tools": "hosted_tools",
    "request fields": "extra_body",
    "models' headers": "extra_headers",
}
"""What can send a conversation or a key elsewhere: the labels, and the fields of a model."""


def _of_client(
    client: ClientConfig,
    variables: tuple[str, ...],
    models: Mapping[str, ModelConfig],
    asked: _Asked,
) -> _Facts:
    spec = spec_of(client.provider)
    key = "none" if client.key_state == "not set" else client.key_variable or "in the config"
    address = "the provider's own"
    if client.base_url:
        address = str(client.in_question()["base_url"])
    elif spec.homes:
        address = f"https://{spec.homes[0]}"
    elif not spec.is_language_model:
        address = "none"
    facts = _Facts()
    facts.add("provider", client.provider, exact(client.provider))
    facts.add("address", client.base_url, exact(address))
    facts.add("key", key, exact(key))
    facts.add("headers", sorted(client.headers), _names(client.headers))
    facts.add("variables", sorted(variables), _names(variables))
    facts.add_if(asked, "asks for", asked, _asked_for(asked))
    for label, part in _SENT.items():
        by_model: dict[str, Iterable[str]] = {}
        for name, model in models.items():
            if sent := getattr(model, part):
                # The values of headers may be secret.
                by_model[name] = sorted(sent) if part == "extra_headers" else sent
        names = _names(dict.fromkeys(chain.from_iterable(by_model.values())))
        facts.add_if(by_model, label, by_model, names)
    called = [model.model for model in models.values()]
    facts.add_if(called and _finds_keys(client), "models", sorted(called), _names(called))
    facts.add_if(client.cassette, "cassette", client.cassette, _exact_or_empty(client.cassette))
    return facts


def _asked_for(asked: _Asked) -> str:
    """Describe where what the person types will go: `env.TOKEN (token)`."""
    return ", ".join(f"{exact_word(path)} ({_names(each)})" for path, each in asked.items())


def _exact_or_empty(value: object, form: Callable[[str], str] = exact) -> str:
    return form(str(value)) if value else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(exact_word, names))


def _is_secret(name: str) -> bool:
    """Check whether a variable's value may change without being noticed, as tokens do: it holds a
    key by its name.
    """
    return name.upper().rpartition("_")[2] in _SECRET_ENDINGS


def _is_harmless_server(server: ServerConfig, variables: tuple[str, ...]) -> bool:
    own = (
        server.args
        or server.env
        or server.cwd
        or server.approval
        or server.roots
        or server.sampling
    )
    bundled = BUNDLED.get(server.bundled or "")
    return bundled is not None and bundled.credentials is None and not (own or variables)


def _is_harmless_client(
    client: ClientConfig, variables: tuple[str, ...], models: Mapping[str, ModelConfig]
) -> bool:
    """Check whether a client sends nothing from the environment except a provider's own key to that
    provider.
    """
    if (
        client.headers
        or variables
        or any(row.hosted_tools or row.extra_body or row.extra_headers for row in models.values())
    ):
        return False
    # The config chooses the client's name, and with it a variable that may be anybody's.
    own_key = client.key_variable in (None, spec_of(client.provider).key_variable)
    if not client.base_url:
        return own_key and not (
            _finds_keys(client) and any("://" in row.model for row in models.values())
        )
    local = is_this_computer(host_in(client.base_url))
    return local and client.key_variable is None and not _finds_keys(client)


def _finds_keys(client: ClientConfig) -> bool:
    """Check whether the provider looks for keys by itself, as LiteLLM does by its models' names."""
    spec = spec_of(client.provider)
    return spec.is_language_model and spec.key_variable is None
