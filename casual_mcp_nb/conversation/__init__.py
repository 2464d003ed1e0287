"""Conversations: events and everything derived from them, JSON, storage, and views."""
