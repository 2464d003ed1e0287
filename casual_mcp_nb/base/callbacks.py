"""The defaults of callbacks."""


def ignore(*_: object) -> None:
    """Take no notice of what is told."""


def unchanged(text: str) -> str:
    """Return a text as it is."""
    return text
