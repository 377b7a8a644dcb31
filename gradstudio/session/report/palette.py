"""The colours of a report, light and dark, each by what it means."""

from __future__ import annotations

LIGHT = {
    "background": "#f4f5f7",
    "panel": "#ffffff",
    "plot": "#ffffff",
    "line": "#dfe2e7",
    "grid": "#edeff2",
    "text": "#1d2330",
    "dim": "#626b7a",
    "accent": "#0072B2",
    "bad": "#C2410C",
    "good": "#00795a",
    "warning": "#9a6700",
}

DARK = {
    "background": "#14171c",
    "panel": "#1c2027",
    "plot": "#1c2027",
    "line": "#2f353f",
    "grid": "#262b33",
    "text": "#e8ebf0",
    "dim": "#98a2b3",
    "accent": "#56B4E9",
    "bad": "#ff8a5c",
    "good": "#3ddc9f",
    "warning": "#f0c14b",
}

# matplotlib wants a colour that it can read, the page a variable: figures are drawn in these, which then give way to the variables.
SENTINELS = {name: f"#0c1b{index:02x}" for index, name in enumerate(LIGHT, 16)}
VARIABLES = {SENTINELS[name]: f"var(--{name})" for name in LIGHT}
