"""The pages of the window's right side: their names, titles and keys."""

from __future__ import annotations

from typing import Literal

Page = Literal["words", "branches", "code", "runs", "gauges"]
PAGES: dict[Page, tuple[str, str]] = {
    "words": ("Words", "What is happening, and the lesson (Ctrl+2)"),
    "branches": ("Branches", "What branched from this run, and what changed at each fork (Ctrl+5)"),
    "code": ("Code", "The knobs as a plain PyTorch program (Ctrl+3)"),
    "runs": ("Runs", "Every run that was ever made: find, open, compare (Ctrl+4)"),
    "gauges": ("Gauges", "What is measured while one looks: exponents against fp16, sharpness, noise, overshoot, activations (Ctrl+6)"),
}
