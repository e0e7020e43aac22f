"""The paper that pictures are drawn on: measured in inches from its upper left corner, with its inks and letters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.writing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
INK, QUIET, TRUNK = "#22252a", "#5f656e", "#4a505a"
REAL_PANEL, STRIPE = "#eceef1", "#f5f6f8"

# Text in points, lengths in inches.
TEXT, SMALL, SMALLEST = 12.0, 10.5, 8.0
EDGE = 0.15  # free space around the picture, and between columns
GAP = 0.02  # around an image


def need_matplotlib() -> None:
    """Raise unless matplotlib is there; called before anything slow is computed."""
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError as error:
        raise ImportError("pictures are drawn with matplotlib; install it with: pip install 'treevae[view]'") from error


def blank(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """An empty figure of a width and height, and its axes, whose units are inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0))
    return figure, axes


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the form that the file's suffix names; the file is there whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with replacing(path, part):
        figure.savefig(part, format=path.suffix.lower().removeprefix("."))


def write(axes: Axes, x: float, y: float, text: str, **style: Any) -> Any:
    """The text as it is written, in the middle of its line; signs that mean mathematics elsewhere mean themselves."""
    usual: dict[str, Any] = {"color": INK, "fontsize": TEXT, "va": "center", "parse_math": False}
    return axes.text(x, y, text, **usual | style)


def write_within(axes: Axes, x: float, y: float, text: str, width: float, **style: Any) -> None:
    """Write the text smaller, or cut short, where it would be wider than ``width``."""
    text = " ".join(text.split())
    written = write(axes, x, y, text, **style)
    if (wide := _inches(axes, written)) > width:
        written.set_fontsize(max(written.get_fontsize() * width / wide, SMALLEST))
    while _inches(axes, written) > width and len(text) > 1:
        text = text[:-1].rstrip()
        written.set_text(text + "…")


def write_list(axes: Axes, x: float, y: float, words: Sequence[str], width: float, between: str, **style: Any) -> None:
    """Write as many of the words, from the first on, as fit into ``width``; the first in any case, as it fits."""
    for n in range(len(words), 1, -1):
        written = write(axes, x, y, between.join(words[:n]), **style)
        if _inches(axes, written) <= width:
            return
        written.remove()
    for word in words[:1]:
        write_within(axes, x, y, word, width, **style)


def draw_images(
    axes: Axes, images: np.ndarray, corner: Callable[[int], tuple[float, float]], cell: tuple[float, float]
) -> None:
    """Draw image i with its upper left ``corner(i)`` in a cell of a width and height, with a gap around it."""
    for i, image in enumerate(images):
        (x, y), (width, height) = corner(i), cell
        extent = (x + GAP, x + width - GAP, y + height - GAP, y + GAP)
        axes.imshow(image, extent=extent, aspect="auto", zorder=2)


def draw_ground(axes: Axes, x: float, y: float, width: float, height: float, tone: Any) -> None:
    """Draw the rounded ground of a panel."""
    from matplotlib.patches import FancyBboxPatch

    box = f"round,pad={GAP},rounding_size=0.05"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=box, facecolor=tone, linewidth=0))


def pale(colour: np.ndarray) -> np.ndarray:
    """A light tone of an RGB colour."""
    return 0.68 + 0.32 * colour


def percent(share: float) -> str:
    """The share in whole per cent."""
    rounded = f"{100 * share:.0f} %"
    return "<1 %" if share > 0 and rounded == "0 %" else rounded


def _inches(axes: Axes, written: Any) -> float:
    return written.get_window_extent().width / axes.figure.dpi
