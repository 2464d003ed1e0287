"""Conversations: the events of their turns, values derived from them, their JSON, their store, and their views."""
