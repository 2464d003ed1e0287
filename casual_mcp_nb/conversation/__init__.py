"""Conversations: the events of their turns, what is derived from them, their JSON, where they are saved, and their views."""
