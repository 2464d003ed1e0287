"""Count tokens with a provider's own vocabulary, if it is on this machine. Nothing is ever fetched."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from casual_mcp_nb.providers.registry import spec_of
from casual_mcp_nb.types.tokens import sampled

if TYPE_CHECKING:
    from casual_mcp_nb.providers.chat_model import ChatModel

# The URLs of tiktoken's vocabularies, which determine their names in its cache, and their hashes; otherwise it fetches them.
_SOURCE = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
_HASHES = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}


def counter_for(model: ChatModel) -> Callable[[str], int] | None:
    """Create a function that counts tokens as this model does, or None if that needs a network.

    The first call takes up to a second: call it on another thread.

    Args:
        model: The model. OpenAI's are counted by tiktoken, if it is installed and its vocabulary is cached.
    """
    if not spec_of(model.provider).counted_by_tiktoken:
        return None
    try:
        import tiktoken
        from tiktoken.registry import ENCODINGS

        name = tiktoken.encoding_name_for_model(model.model)
        encoding = ENCODINGS.get(name) or (tiktoken.get_encoding(name) if _is_here(name) else None)
    except (ImportError, KeyError, ValueError, OSError):
        return None
    if encoding is None:
        return None
    return lambda text: round(sampled(text, lambda part: len(encoding.encode_ordinary(part))))


def _is_here(name: str) -> bool:
    """Check whether tiktoken has this vocabulary in its cache, complete."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    file = Path(folder) / hashlib.sha1(_SOURCE.format(name=name).encode()).hexdigest()
    if not folder or name not in _HASHES or not file.is_file():
        return False
    return hashlib.sha256(file.read_bytes()).hexdigest() == _HASHES[name]
