"""The gestures of the mouse in the window, and keys that a widget handles only while it has the focus, by topic."""

from __future__ import annotations

from gradstudio.gui.widgets.list_keys import LIST_KEYS

GESTURES: dict[str, tuple[tuple[str, str], ...]] = {
    "On a plot": (
        ("Drag or click the timeline", "Look at that step"),
        ("Drag the max_norm line", "Set clipping.max_norm"),
        ("Wheel, drag", "Zoom and move along the steps"),
        ("+, -, Page up, Page down", "Zoom and move along the steps"),
        ("Double click", "Show whole run"),
        ("Double click on title, Enter", "Show the plot alone"),
        ("Left, Right", "Look at the step before, the step after"),
        ("Menu key, Shift+F10", "Copy or save its figure and its data"),
    ),
    "On the layers": (
        ("Up, Down", "Read the layer above, the layer below"),
        ("Click, Enter", "Open the page of that layer"),
    ),
    "On a layer's page": (
        ("Up, Down", "Show the layer above, the layer below"),
        ("Click, Enter", "Look into that step"),
        ("Escape", "Show all plots"),
    ),
    "On a map": (("Click, Enter on a cell", "Open that cell as a run"), ("Drag the cross", "Set its two knobs")),
    "On a run or branch": tuple(LIST_KEYS.values()),
}
