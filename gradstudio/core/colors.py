"""The colours of the window and of reports, light and dark, each named after its meaning."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Colors:
    background: str
    panel: str
    plot: str
    line: str
    grid: str
    text: str
    dim: str
    disabled: str  # text of a disabled button
    accent: str
    on_accent: str
    tint: str  # the accent, faint enough to write on
    bad: str
    good: str
    warning: str


LIGHT = Colors(
    background="#f4f5f7", panel="#ffffff", plot="#ffffff", line="#dfe2e7", grid="#edeff2", text="#1d2330",
    dim="#626b7a", disabled="#8d95a3",
    accent="#0072B2", on_accent="#ffffff", tint="#e3f0f8", bad="#C2410C", good="#00795a", warning="#9a6700",
)  # fmt: skip
DARK = Colors(
    background="#14171c", panel="#1c2027", plot="#171a20", line="#2f353f", grid="#262b33", text="#e8ebf0",
    dim="#98a2b3", disabled="#656d7b",
    accent="#56B4E9", on_accent="#0c1116", tint="#14303f", bad="#ff8a5c", good="#3ddc9f", warning="#f0c14b",
)  # fmt: skip

# For a projector, which lifts black and washes out faint colours: text has a contrast of at least 7:1 to the ground.
LIGHT_PROJECTED = replace(
    LIGHT, background="#ffffff", line="#8d95a3", grid="#d5d9df", text="#000000", dim="#333a46", disabled="#626b7a",
    accent="#00527f", tint="#d3e7f4", bad="#8f2a00", good="#00543e", warning="#6b4700",
)  # fmt: skip
DARK_PROJECTED = replace(
    DARK, background="#000000", panel="#0b0d10", plot="#000000", line="#7c8697", grid="#343b46", text="#ffffff",
    dim="#d3d9e3", disabled="#98a2b3",
    accent="#7fcbff", on_accent="#000000", tint="#0f2a3a", bad="#ffab8a", good="#6df0bd", warning="#ffd769",
)  # fmt: skip

# Colours of overlays: Okabe and Ito's and some in between, dark or light enough for a line, and none that already has a
# meaning in a plot (accent, good, bad).
SERIES_LIGHT = ("#C07F00", "#B0508A", "#5A4FCF", "#7A4B1E", "#7A7A00", "#4D5563")
SERIES_DARK = ("#E69F00", "#E48FC0", "#A79BFF", "#C99A6B", "#F0E442", "#C9D0DA")
