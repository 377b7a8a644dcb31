"""The tooltip of a knob."""

from __future__ import annotations

from html import escape

from gradstudio.core.knobs import Knob, value_text
from gradstudio.core.text import strong


def knob_tooltip(knob: Knob, note: str = "") -> str:
    """Return the effect of the knob, a note on it, its allowed values, and when it takes effect, as rich text."""
    when = "acts at the next step" if knob.live else "acts on restart"
    more = f"<p>{escape(note[0].upper() + note[1:])}.</p>" if note else ""
    return (
        f"<p>{strong(knob.name)}<br>{escape(knob.help)}</p>{more}<p>{escape(knob.accepted)}; default "
        f"{escape(value_text(knob.default))}; {when}</p>"
    )
