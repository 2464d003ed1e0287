"""What an arm's model sees, as a hash: the same hash means that a run need not be made again.

A case's expectations, id, cluster and tags are not in it, since the model does not see them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.named_address import without_credentials
from casual_mcp_nb.base.secret import Mask
from casual_mcp_nb.base.tool import servers_of
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.system_prompt import prompt_source
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.registry import raw_address_of

_IN_VIEW = ("model", "tool_set", "discovery", "strategy", "delivery")
"""Options whose effect is in the view or the model."""


def setup_key(
    chat: McpToolChat,
    view: ToolView,
    model: ChatModel,
    options: TurnOptions,
    mask: Mask,
    others: str | None,
) -> str:
    """Hash all that an arm's runs depend on: the model and where it is, the tools and where they
    are, the texts.

    Args:
        chat: The arm's chat.
        view: What it offers.
        model: Its model.
        options: Its turns' options.
        mask: Removes secrets from a text.
        others: The arm's name for its own servers, since those in this process have no address.
    """
    given = options.given
    system, template = prompt_source(
        given.get("system"), given.get("template"), model.template, chat.system
    )
    servers = {}
    for name in servers_of(view.included):
        config = chat.server_manager.config_of(name)
        servers[name] = _server(config, mask) if config else ["in-process", others]
    deferred = [json.dumps(tool.definition, sort_keys=True) for tool in view.deferred]
    return hash_of(
        {
            "provider": model.provider,
            "client": model.client_name,
            "address": without_credentials(raw_address_of(model.client)),
            "model": model.model,
            "request": model.with_options(options.request).sendable(tools=True).options.shown(),
            "options": {name: value for name, value in given.items() if name not in _IN_VIEW},
            "system": system,
            "template": None if system is not None else chat.templates.source(template),
            "selection": view.selection.model_dump(
                mode="json", exclude={"servers", "tools_off", "tool_set", "delivery"}
            ),
            "delivery": chat.deliveries.of(view, model),
            "loaded": view.definitions,
            "deferred": sorted(deferred),
            "instructions": view.instructions,
            "servers": servers,
        }
    )


def run_key(setup: str, case: ToolUseCase, place: int, repeat: int) -> str:
    """Hash a run: its arm's set-up, the messages, which of several cases with these messages, and
    the repeat.
    """
    return hash_of([setup, case.messages, place, repeat])


def _server(config: ServerConfig, mask: Mask) -> Any:
    """Describe where a server is, without its secrets."""
    if config.bundled is not None:
        return {"bundled": config.bundled, "args": [mask(str(each)) for each in config.args]}
    if config.url is not None:
        return {"url": without_credentials(str(config.url))}
    return {
        "command": config.command,
        "args": [mask(str(each)) for each in config.args],
        "cwd": config.cwd,
    }


def hash_of(value: Any) -> str:
    """Hash a value that has a form in JSON.

    A function counts with its code, since its address differs in each process.
    """
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _plain(part: Any) -> Any:
    if isinstance(part, Mapping):
        return dict(part)
    if not callable(part):
        return str(part)
    name = getattr(part, "__qualname__", None) or type(part).__name__
    code = getattr(part, "__code__", None)
    if code is None:
        return name
    constants = [repr(each) for each in code.co_consts if not hasattr(each, "co_code")]
    return [name, code.co_code.hex(), constants, code.co_names]
