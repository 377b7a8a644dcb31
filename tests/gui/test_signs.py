"""Every sign that the window writes is in its font: elsewhere there may be no other, and a box would stand in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QRawFont
from PySide6.QtWidgets import QApplication

import gradstudio
from gradstudio.gui.theme import RESOURCES

ROOT = Path(gradstudio.__file__).parent
FONTS = sorted((RESOURCES / "fonts").glob("*.otf"))
FILES = [path for room in ("gui", "session/words", "session/course") for path in sorted((ROOT / room).rglob("*.py"))]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines and texts of a file, but for docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


@pytest.mark.parametrize("font", FONTS, ids=lambda font: font.stem)
def test_every_sign_is_in_the_bundled_font(qapp: QApplication, font: Path) -> None:
    raw = QRawFont(str(font), 13.0)
    assert raw.isValid() and raw.supportsCharacter(ord("a")) and not raw.supportsCharacter(0x21D5)
    missing = {
        (path.name, line, sign)
        for path in FILES
        for line, text in texts(path)
        for sign in text
        if not sign.isascii() and not raw.supportsCharacter(ord(sign))
    }
    assert not missing
