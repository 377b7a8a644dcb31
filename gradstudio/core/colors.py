"""The colours of the window and of reports, light and dark, each named after its meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Colors:
    background: str
    panel: str
    plot: str
    line: str
    grid: str
    text: str
    dim: str
    disabled: str  # what a button says that cannot be pressed now
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

# Colours of overlays: Okabe and Ito's and some between them, dark or light enough for a line, and none that has a
# meaning in a plot (accent, good, bad).
SERIES_LIGHT = ("#C07F00", "#B0508A", "#5A4FCF", "#7A4B1E", "#7A7A00", "#4D5563")
SERIES_DARK = ("#E69F00", "#E48FC0", "#A79BFF", "#C99A6B", "#F0E442", "#C9D0DA")
