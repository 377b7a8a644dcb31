"""Provenance: the operation in which the first NaN or Inf was born, what led up to it, and on demand the operations
that it passed through."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QPushButton

from gradstudio.core.provenance import Operation, Provenance
from gradstudio.core.text import number
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.running.investigation import heading, sentence


class ProvenanceCard(QFrame):
    opened = Signal()  # the operations are shown now

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._shown: Provenance | None = None
        self.title, self.text, self.led_up, self.chain = QLabel(), QLabel(), QLabel(), QLabel()
        self.title.setProperty("role", "title")
        for label in (self.text, self.led_up):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.chain.setTextFormat(Qt.TextFormat.RichText)
        self.led_up.setProperty("role", "dim")
        self.more = QPushButton()
        self.more.setProperty("role", "remedy")
        self.more.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.more.setCheckable(True)
        self.more.setToolTip("Lists the operations that the value passed through, with their inputs and outputs")
        self.more.toggled.connect(self._show_chain)
        self.more.toggled.connect(lambda shown: shown and self.opened.emit())
        column = in_column(of=self, margins=(15, 9, 11, 10), spacing=5)
        for label in (self.title, self.text, self.led_up):
            label.setWordWrap(True)
            column.addWidget(label)
        column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.chain)
        for label in (self.text, self.led_up, self.chain):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.chain.setWordWrap(True)
        theme.changed.connect(self._write_chain)
        self._show_chain(False)
        self.hide()

    def show_provenance(self, birth: Provenance | None) -> None:
        if birth is self._shown:
            return
        self._shown = birth
        self.setVisible(birth is not None)
        if birth is not None:
            self.title.setText(heading(birth))
            self.text.setText(sentence(birth))
            self.led_up.setText(birth.led_up)
            self.led_up.setVisible(bool(birth.led_up))
            self.setAccessibleName(f"{heading(birth)}. {sentence(birth)} {birth.led_up}")
            self._show_chain(self.more.isChecked())
            self._write_chain()

    def _show_chain(self, shown: bool) -> None:
        count = len(self._shown.chain) if self._shown else 0
        self.more.setText("Hide the operations" if shown else f"Show the operations ({count})")
        self.chain.setVisible(shown)

    def _write_chain(self) -> None:
        if self._shown is not None:
            self.chain.setText(
                "".join(_line(operation, first=index == 0) for index, operation in enumerate(self._shown.chain))
            )


def _line(operation: Operation, *, first: bool) -> str:
    """Return an operation as rich text: its place, its name, its input and its output."""
    c = theme.colors
    of = (
        f" of {operation.of.removesuffix('0').removesuffix('Backward')}"
        if operation.of and "::" not in operation.of
        else ""
    )
    where = escape(f"{operation.phase}{of}{f' · {operation.module}' if operation.module else ''}")
    name = escape(operation.name.removeprefix("aten."))
    text = (
        f"{_values(operation.taken_largest, operation.taken_nan, operation.taken_inf)} → "
        f"{_values(operation.given_largest, operation.given_nan, operation.given_inf)}"
    )
    color = c.bad if first else c.text
    return (
        f"<p style='margin: 0 0 5px 0'><span style='color:{c.dim}'>{where}</span><br><b "
        f"style='color:{color}'>{name}</b> &nbsp;{escape(text)}</p>"
    )


def _values(largest: float, nan: int, inf: int) -> str:
    odd = ", ".join(f"{count:,} {name}" for count, name in ((nan, "NaN"), (inf, "Inf")) if count)
    up_to = f"up to {number(largest)}" if largest == largest else ""
    return " and ".join(part for part in (up_to, odd) if part) or "nothing"
