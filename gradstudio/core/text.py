"""Figures as a physicist writes them: 0.82, 39, 3.9e4, never 39164.22762."""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 3) -> str:
    """A figure of so many significant digits: 0.82, 39, 3.9e4, 6e-8, NaN, Inf; a dash for None."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        text = f"{value:.{digits}g}"
        return f"{value:.0f}" if "e" in text else text
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def one_line(text: str) -> str:
    """A text on one line without control characters, whatever it quotes: an error shown in a terminal or a label."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(base: int, exponent: int) -> str:
    """'10⁻³'."""
    return f"{base}{str(exponent).translate(_RAISED)}"


def plural(count: int, one: str, many: str) -> str:
    """'1 step' or '3 steps'."""
    return f"{count:,} {one if count == 1 else many}"


def short_name(name: str, longest: int) -> str:
    """A layer's dotted name in so many letters: all but the last part by their initials where it is too long
    ('b.1.a.query.weight' for blocks.1.attention.query.weight), and cut in the middle where that does not do."""
    parts = name.split(".")
    for whole in range(len(parts) - 1, 0, -1):  # parts at the end that stay as they are
        shorter = ".".join([*(part if part.isdigit() else part[:1] for part in parts[:-whole]), *parts[-whole:]])
        if len(name) > longest >= len(shorter):
            return shorter
    return name if len(name) <= longest else f"{name[: longest // 2 - 1]}…{name[-(longest - longest // 2) :]}"
