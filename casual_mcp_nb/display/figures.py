"""Matplotlib figures that show themselves in Jupyter."""

from __future__ import annotations

import io
from typing import Any


def figure_of_size(width: float, height: float) -> Any:
    """Make a matplotlib figure that is drawn as a cell's value, also before `%matplotlib inline`.

    A plain `Figure` that pyplot has not made shows only its size until then.

    Args:
        width: In inches.
        height: In inches.

    Raises:
        ImportError: matplotlib is not installed.
    """
    return _shown_figure()(figsize=(width, height), layout="constrained")


def _shown_figure() -> Any:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):  # type: ignore[misc, unused-ignore]
        """A figure with a picture for Jupyter."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", bbox_inches="tight")
            return picture.getvalue()

    return ShownFigure
