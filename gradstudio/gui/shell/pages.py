"""The pages of the window: their titles, their purposes, and where each is shown."""

from __future__ import annotations

from typing import Literal

Page = Literal["diagnosis", "lesson", "branches", "code", "runs", "gauges", "memory", "map"]
PAGES: dict[Page, str] = {
    "diagnosis": "Diagnosis",
    "lesson": "Lesson",
    "branches": "Branches",
    "code": "Code",
    "runs": "Runs",
    "gauges": "Gauges",
    "memory": "Memory",
    "map": "Map",
}
MORE: tuple[Page, ...] = ("gauges", "memory")  # in the right column, behind the tab More
LARGE = frozenset[Page](("code", "map"))  # in the middle, in place of the plots; any other in the right column
PAGE_HELP: dict[Page, str] = {
    "diagnosis": "Shows what happened, why, and what to do about it",
    "lesson": "Shows the lesson of the preset: what to expect, what to try, and what comes of it",
    "branches": "Shows the branches of this run, and the change that each began with",
    "code": "Shows the knobs as a plain PyTorch program",
    "runs": "Shows every run that was ever made, to find, open and compare",
    "gauges": "Shows what is measured on demand: exponents against fp16, sharpness, noise, overshoot, activations",
    "memory": "Shows what a step takes of memory, where its peak is, and what would lower it",
    "map": "Shows where training holds over two knobs; each cell is a run",
}
STORED_AS: dict[Page, str] = {**{page: str(page) for page in PAGES}, "diagnosis": "words"}  # names in the settings
