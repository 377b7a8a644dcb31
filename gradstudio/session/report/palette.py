"""The colours of a report as matplotlib and the page need them."""

from __future__ import annotations

from dataclasses import asdict

from gradstudio.core import colors

LIGHT, DARK = asdict(colors.LIGHT), asdict(colors.DARK)

# matplotlib wants a colour that it can read, the page a variable: figures are drawn in these, which then give way to the variables.
SENTINELS = {name: f"#0c1b{index:02x}" for index, name in enumerate(LIGHT, 16)}
VARIABLES = {SENTINELS[name]: f"var(--{name})" for name in LIGHT}
