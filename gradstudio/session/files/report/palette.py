"""The colours of a report, for matplotlib and for the page."""

from __future__ import annotations

from dataclasses import asdict

from gradstudio.core import colors

# Beside the colours of the window those of runs in one figure: the first in the accent colour, like a single run.
SERIES = tuple(f"series-{index}" for index in range(8))


def _series(plain: colors.Colors, others: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(SERIES, (plain.accent, *others, plain.text), strict=True))


LIGHT = {**asdict(colors.LIGHT), **_series(colors.LIGHT, colors.SERIES_LIGHT)}
DARK = {**asdict(colors.DARK), **_series(colors.DARK, colors.SERIES_DARK)}

# Lines on and off, in points; one per run, so that none is identified by its colour alone.
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (7, 3),
    (2, 2),
    (8, 3, 2, 3),
    (12, 4),
    (6, 2, 2, 2, 2, 2),
    (3, 5),
    (14, 2, 3, 2),
)
PARENT_DASH = (7.0, 4.0)
LETTERS = "ABCDEFGH"
Look = tuple[str, tuple[float, ...]]  # name of a colour, and the dash


def looks(count: int, *, journey: bool = False) -> list[Look]:
    """Return colour and dash of `count` runs in one figure. In a journey the last run looks like the current run in the
    window, and the one before it like its parent: grey and dashed."""
    pairs = [(name, DASHES[index]) for index, name in enumerate(SERIES[:count])]
    return [*pairs[1 : count - 1], ("dim", PARENT_DASH), pairs[0]] if journey and count > 1 else pairs


# matplotlib needs a concrete colour, the page a variable: figures are drawn in these, which are then replaced by the
# variables.
SENTINELS = {name: f"#0c1b{index:02x}" for index, name in enumerate(LIGHT, 16)}
VARIABLES = {SENTINELS[name]: f"var(--{name})" for name in LIGHT}
