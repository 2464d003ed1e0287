"""The engine's model interface, recorded or replayed where there is a cassette."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.files import part_file
from casual_mcp_nb.cassettes import Plain
from casual_mcp_nb.cassettes.format import ModelEntry
from casual_mcp_nb.cassettes.interaction import model_request
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.providers._bound_model import BoundModel
from casual_mcp_nb.providers._offered import with_real_names
from casual_mcp_nb.providers.limits import (
    OnEvent,
    RateLimitWait,
    RequestAdapted,
    RequestEvent,
    RetryScheduled,
)
from casual_mcp_nb.providers.registry import (
    Definition,
    Definitions,
    is_at_home,
    raw_address_of,
    spec_of,
    spec_of_kind,
)

if TYPE_CHECKING:
    from casual_llm import ChatOptions, Model, Tool
    from casual_llm.messages import AssistantMessage, ChatMessage

    from casual_mcp_nb.cassettes.recorder import Recorder
    from casual_mcp_nb.cassettes.replayer import Replayer
    from casual_mcp_nb.providers.registry import ProviderSpec
    from casual_mcp_nb.providers.spending import Account


_EVENTS: Mapping[str, Any] = {
    "retry": RetryScheduled,
    "wait": RateLimitWait,
    "adapted": RequestAdapted,
}


async def taped(
    tape: Recorder | Replayer,
    model: BoundModel,
    native: bool,
    messages: Sequence[ChatMessage],
    tools: Definitions,
    found_tools: Definitions,
    on_event: OnEvent | None,
    ask: Callable[[OnEvent | None], Awaitable[ModelResponse]],
) -> ModelResponse:
    """Answer a request: from the model, recorded, or from the recording.

    `ask` sends it, with the function that hears its events.
    """
    if tape.replays:
        name = tape.model_name(model.name, model.model)
        request = model_request(name, messages, tools, found_tools)
        tell = partial(_tell, tell=on_event or ignore)
        response: ModelResponse = await tape.play("model", request, tell)
        return response
    tape.models.setdefault(model.name, _entry_of(model, native))
    recording = tape.start("model", model_request(model.name, messages, tools, found_tools))

    def happened(event: str | RequestEvent) -> None:
        recording.event(_plain(event))
        if on_event is not None:
            on_event(event)

    try:
        # Without a receiver, nothing is streamed.
        answer = await ask(happened if on_event is not None else None)
    except BaseException as error:
        recording.failed(error)
        raise
    recording.answered(answer)
    return answer


def _plain(event: str | RequestEvent) -> Plain:
    if isinstance(event, str):
        return event
    (name,) = (name for name, kind in _EVENTS.items() if isinstance(event, kind))
    return {name: asdict(event)}


def _tell(event: Plain, tell: OnEvent) -> None:
    if isinstance(event, str):
        tell(event)
        return
    for name, kind in _EVENTS.items():
        if name in event:
            # In a file that somebody edited, fields can be missing.
            with suppress(TypeError):
                tell(kind(**event[name]))


def _entry_of(model: BoundModel, native: bool) -> ModelEntry:
    price: dict[str, Any] = {}
    if model.price:
        price = model.price.model_dump(mode="json", exclude_defaults=True)
    return ModelEntry(
        model=model.model,
        client=model.client_name,
        provider=model.provider,
        context_window=model.context_window,
        defers_natively=native,
        options=model.own_options.without(["extra_body"]).shown(),
        price=price,
    )


class _AskedThroughChat:
    """A client for a model whose class has its own `chat`, which would be bypassed otherwise."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Any]:
        # Its `chat` takes tools in casual-llm's own form.
        tools = [_of_casual_llm(offered["function"]) for offered in options.extra.get("tools", ())]
        extra = {**options.extra}
        extra.pop("tools", None)
        extra.pop("tool_choice", None)
        message = await self._model.chat(
            messages=messages, options=dataclasses.replace(options, tools=tools, extra=extra)
        )
        return message, self._model.get_usage()


def _of_casual_llm(definition: Definition) -> Tool:
    """Convert a definition to casual-llm's form, which has no place for `$defs`."""
    from casual_llm import Tool
    from fastmcp.utilities.json_schema import dereference_refs

    name, description = definition["name"], definition["description"]
    schema = definition["parameters"]
    try:
        if "$defs" in schema:
            schema = dereference_refs(schema)
        return Tool.from_input_schema(name, description, schema)
    except (TypeError, ValueError):
        # It cannot hold this schema; the call is checked all the same.
        return Tool(name=name, description=description)


GATEWAYS_VERSION = 1
"""The version of the file of gateways. The first files have none."""
MAX_GATEWAYS = 200
FORGOTTEN_AFTER = 7 * 24 * 3_600.0
"""Seconds after which a gateway is tried again: it can have been updated."""


def gateways_path() -> Path:
    """Find the file that remembers which gateways load deferred tools: in the user's cache
    folder.
    """
    from platformdirs import user_cache_path

    return user_cache_path("casual_mcp_nb", appauthor=False) / "gateways.json"


def _gateways() -> dict[str, tuple[bool, float]]:
    """Read the unexpired entries by a hash of address, model and API.

    An unreadable file counts as empty, and so does one of a later version.
    """
    document = _gateways_document()
    try:
        entries = document["gateways"] if "version" in document else document
        tried = {str(key): (bool(native), float(at)) for key, (native, at) in entries.items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}
    now = time.time()
    return {key: entry for key, entry in tried.items() if 0 <= now - entry[1] < FORGOTTEN_AFTER}


def _gateways_document() -> Mapping[str, Any]:
    """Read the file of gateways as it is, or nothing if it cannot be read."""
    try:
        document = json.loads(gateways_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _remember_gateway(key: str, native: bool) -> None:
    """Remember whether a gateway loads deferred tools, and forget the oldest entries.

    Nothing depends on it, so a folder that cannot be written is ignored. A file of a later version
    stays as it is.
    """
    version = _gateways_document().get("version")
    if isinstance(version, int) and version > GATEWAYS_VERSION:
        return
    entries = {**_gateways(), key: (native, time.time())}

    def tried_at(name: str) -> float:
        return entries[name][1]

    newest = sorted(entries, key=tried_at, reverse=True)[:MAX_GATEWAYS]
    document = {"version": GATEWAYS_VERSION, "gateways": {name: entries[name] for name in newest}}
    path = gateways_path()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_file(path, 0o600) as file:
            file.write(json.dumps(document).encode())


class ChatModel(BoundModel):
    """A model bound to its client: the engine's only interface to providers.

    See `BoundModel` for its arguments.
    """

    @classmethod
    def of(cls, model: Model, name: str | None = None) -> ChatModel:
        """Bind a model that the user created: any `casual_llm.Model`, even with a custom client.

        Its options are used, but not its own usage tracking. An object whose class has its own
        `chat` is asked through that, and counts itself.
        """
        from casual_llm import Model

        if getattr(type(model), "chat", None) is not Model.chat:
            client: Any = _AskedThroughChat(model)
            return cls(
                client, getattr(model, "name", None) or type(model).__name__, name=name or ""
            )
        options = model.default_options
        if model.system_message_handling and not (options and options.system_message_handling):
            from casual_llm import ChatOptions

            options = dataclasses.replace(
                options or ChatOptions(), system_message_handling=model.system_message_handling
            )
        return cls(model._client, model.name, name=name or "", default_options=options)

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        tools: Definitions = (),
        *,
        found_tools: Definitions | None = None,
        before: str | None = None,
        on_event: OnEvent | None = None,
        stream: bool = True,
        account: Account | None = None,
        tokens: int | None = None,
    ) -> ModelResponse:
        """Send a request to the model, with retries. See `Retries`.

        Args:
            messages: The whole conversation, the system message first.
            tools: The offered definitions with `name`, `description` and `parameters`, sent
                unchanged.
            found_tools: None to send all definitions in `tools`. Otherwise the provider loads
                deferred tools itself: these are the definitions that the searches in `messages`
                have found so far, in that order, and `tools` are those that are always loaded, with
                the search.
            before: The id of the response before, so that the provider can explain why its cache
                was missed.
            on_event: Called with the events before the answer is complete: its text in chunks if
                the provider streams, `RetryScheduled` before another attempt's delay,
                `RateLimitWait` before a delay for the client's limits, and `RequestAdapted` if the
                request is repeated in another form.
            stream: False requests the answer in one piece.
            account: What it counts for, see `Account`. None counts it nowhere. A replay takes
                nothing.
            tokens: The request's estimated size, or None to estimate it here.

        Returns:
            The answer with its own usage.

        Raises:
            NativeDeferralError: With `found_tools`, the provider cannot load deferred tools itself.
            ProviderError: The provider cannot be reached, refused the request, or returned an
                unusable response. See its subclasses. After text was passed to `on_event`, it is an
                `IncompleteStreamError` with that text.
            SpendLimitError: It could pass a spend limit. It was not sent.
        """
        from casual_mcp_nb.providers._model_request import ModelRequest

        async def ask(on_event: OnEvent | None) -> ModelResponse:
            request = ModelRequest(
                self, [*messages], tools, found_tools, on_event, stream, before, account, tokens
            )
            return await request.answer()

        if self.tape is None:
            return await ask(on_event)
        native = self.defers_natively or self.tries_natively
        return await taped(
            self.tape, self, native, messages, tools, found_tools or (), on_event, ask
        )

    def with_real_names(self, message: AssistantMessage) -> AssistantMessage:
        """Give the arguments of calls that were found in a text the names that the tools' servers
        know.
        """
        last = self.facts.refused_tools.last
        if last is None:
            return message
        return with_real_names(message, last.offered.renamed)

    def with_options(self, options: RequestOptions) -> ChatModel:
        """Copy this model with other options. The facts learnt about it are shared."""
        merged = self.options.overlaid(options)
        if merged is self.options:
            return self
        changed = copy.copy(self)
        changed.options = merged
        changed.__dict__.pop("wanted", None)
        return changed

    def taped(self, tape: Recorder | Replayer) -> ChatModel:
        """Copy this model with a cassette that records its answers, or answers in its place."""
        changed = copy.copy(self)
        changed.tape = tape
        if tape.replays:
            entry = tape.models.get(tape.model_name(self.name, self.model))
            changed.native_deferral = entry.defers_natively if entry else None
            if entry and self.provider == "replay":
                changed.provider, changed.client_name = entry.provider, entry.client
        return changed

    def unforced(self) -> ChatModel:
        """Copy this model without a forced tool choice, so that it can answer."""
        if self.wanted.tool_choice in (None, "auto", "none"):
            return self
        return self.with_options(RequestOptions(tool_choice="auto"))

    def without_hosted_tools(self) -> ChatModel:
        """Copy this model without tools that its provider runs, which send their input
        elsewhere.
        """
        changed = copy.copy(self)
        changed.hosted_tools = ()
        return changed

    @property
    def spec(self) -> ProviderSpec:
        """Its provider's spec, even for a custom client."""
        return spec_of_kind(type(self.client)) or spec_of(self.provider)

    @property
    def defers_natively(self) -> bool:
        """Whether the provider is known to load this model's deferred tools itself.

        That depends on the model's name at the provider's own address. Elsewhere, on the client's
        `native_deferral`. It is false once the model has refused.
        """
        if self.wire.offer_found is None or self.facts.refuses_deferral:
            return False
        if self.native_deferral is not None:
            return self.native_deferral
        return self.spec.defers(self.model) and is_at_home(self.client, self.spec.homes)

    @property
    def tries_natively(self) -> bool:
        """Whether to ask a gateway to load deferred tools: it is not known yet whether it can, or
        it could before.

        True only for a model that can, at another address than its provider's, and if the config
        does not say.
        """
        if not self._is_behind_a_gateway or self.facts.refuses_deferral:
            return False
        native, _ = _gateways().get(self._gateway, (True, 0))
        return native

    def remember_native(self, native: bool) -> None:
        """Remember for a while whether the gateway between this model and us supports native
        deferral.
        """
        if not self._is_behind_a_gateway:
            return
        self.facts.refuses_deferral = not native
        entry = _gateways().get(self._gateway)
        if entry is None or entry[0] is not native:
            _remember_gateway(self._gateway, native)

    @property
    def _is_behind_a_gateway(self) -> bool:
        if self.wire.offer_found is None or self.native_deferral is not None:
            return False
        spec = self.spec
        return (
            spec.defers(self.model)
            and bool(raw_address_of(self.client))
            and not is_at_home(self.client, spec.homes)
        )

    @property
    def _gateway(self) -> str:
        # An address can have credentials.
        facts = f"{raw_address_of(self.client)} {self.model} {self.wire.name}"
        return hashlib.sha256(facts.encode()).hexdigest()

    def __repr__(self) -> str:
        return (
            f"<ChatModel {self.name!r}: {self.model!r} of client {self.client_name!r}"
            f" ({self.provider})>"
        )
