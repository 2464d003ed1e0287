"""Conversations that outlive their process, in one SQLite file, and cassettes: recorded answers of models and servers."""

from casual_mcp_nb.store.cassette import Cassette
from casual_mcp_nb.store.conversations import ConversationStore, SavedTurns, store_path

__all__ = ["Cassette", "ConversationStore", "SavedTurns", "store_path"]
