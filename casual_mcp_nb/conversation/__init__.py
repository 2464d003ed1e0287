"""Conversations: their turns' events, values derived from them, their JSON, their store, and their views."""
