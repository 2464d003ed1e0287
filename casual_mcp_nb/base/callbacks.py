"""The default of a callback."""


def ignore(*_: object) -> None:
    """Take no notice of what is told."""
