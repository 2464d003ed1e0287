"""Conversations that outlive their process, saved event by event in one SQLite file."""

from casual_mcp_nb.store.conversations import ConversationStore, SavedTurns, store_path

__all__ = ["ConversationStore", "SavedTurns", "store_path"]
