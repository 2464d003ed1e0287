"""The models that `--model` names: those of the session's config, or `PROVIDER:MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.session import Session

_made: WeakKeyDictionary[Session, dict[str, ChatModel]] = WeakKeyDictionary()
"""The models that are not in a session's config, by the text that named them. What is learned about
a model, such as the options that it refuses, is kept with it, so each is made once.
"""


def model_named(session: Session, text: str) -> str | ChatModel:
    """Find the model that a text names.

    A name in the session's config comes first. `PROVIDER:MODEL` is what `%mcp demo --model` takes,
    and needs no config: the key comes from the environment.

    Returns the text itself if it names a model in the config, or none.

    Raises:
        UnknownNameError: There is no such provider.
        ConfigError: Its key is not set.
        MissingDependencyError: Its SDK is not installed.
    """
    if ":" not in text or text in session.config.models:
        return text
    models = _made.setdefault(session, {})
    if text not in models:
        from casual_mcp_nb.config.quick import quick_config
        from casual_mcp_nb.providers.factory import ModelFactory

        config, _ = quick_config(text)
        models[text] = ModelFactory(config).chat_model()
    return models[text]
