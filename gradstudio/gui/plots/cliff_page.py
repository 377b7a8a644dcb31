"""The cliff: the loss around the weights before a step, with an interpretation in words. Why look: a step that ends on
the other side of a steep wall is why a run diverges, and why a max_norm saves it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QSizePolicy, QWidget

from gradstudio.core.cliff import ACROSS, DOWN, LEFT, UP, Cliff, landing_at, shortens
from gradstudio.core.text import number
from gradstudio.gui.drawing import axes
from gradstudio.gui.drawing.color_bar import ColorBar
from gradstudio.gui.plots.cliff_picture import CliffPicture, cell_at
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row

SECOND = {
    "update": "the part of the update across the gradient",
    "previous update": "the part of the update before across the gradient",
    "random": "a random direction across the gradient",
}
HARDLY = "max_norm hardly changes the length of this update: momentum, or a division by the gradient's size, sets it."
COARSE = f"Each pass took long: {{}} × {{}} of {ACROSS} × {UP} cells are measured."


class CliffPage(QFrame):
    """The picture, the words beside it, and in the head the step and a button to measure it."""

    asked = Signal()  # the user wants to see the step now, though the run is training

    def __init__(self) -> None:
        super().__init__()
        self.picture = CliffPicture()
        self._measuring = False  # finer cells are to come
        self.words, self.note, self.legend = QLabel(), QLabel(), QLabel()
        for label in (self.words, self.note, self.legend):
            label.setProperty("role", "dim")
        for label in (self.words, self.note):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.words.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        self.words.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        self.note.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.legend.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.legend.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.look = QPushButton("Look now")
        self.look.setProperty("role", "small")
        self.look.setToolTip("Measures the loss around the weights before the newest step, beside the run")
        self.look.clicked.connect(self.asked)
        self.head = QWidget()
        in_row((self.legend, 1), self.look, of=self.head, margins=NO_MARGINS)
        body = in_row(margins=(6, 0, 10, 0), spacing=8)
        self.bar = ColorBar()
        body.addWidget(self.picture)
        body.addWidget(self.bar)
        body.addWidget(self.words, 1)
        in_column((self.note, 1), (body, 1), of=self, margins=(1, 0, 1, 3))
        self.picture.preview_changed.connect(self._say)
        self.show_cliff(None, "", 1.0, clips=False)

    def show_cliff(self, cliff: Cliff | None, note: str, max_norm: float, *, clips: bool) -> None:
        """Show a slice, or a note in its place; with a slice the note is in the head."""
        self._measuring = bool(note)
        self.picture.show_cliff(cliff, max_norm, clips=clips)
        for widget, shown in ((self.picture, True), (self.bar, True), (self.words, True), (self.note, False)):
            widget.setVisible((cliff is not None) == shown)
        if cliff is not None:
            levels, logs = self.picture.levels
            self.bar.show_levels(levels, "loss", "loss", linear=not logs)
        step = f"step {cliff.step:,}" if cliff is not None else ""
        told = " · ".join(filter(None, (step, note))) if cliff is not None else ""
        for label, text in ((self.note, note), (self.legend, told)):
            if text != label.text():
                label.setText(text)
        self._say()

    def redraw(self) -> None:
        self.picture.redraw()
        self.bar.setFixedWidth(round(axes.RIGHT_WIDTH * theme.zoom))
        self.bar.update()
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Give the picture the width that its cells need, but leave room for the words."""
        most = round(0.6 * (self.width() - self.bar.width()))
        self.picture.setFixedWidth(min(self.picture.width_for(self.height() - 6), most))

    # ---- inside

    def _say(self) -> None:
        cliff = self.picture.cliff
        text = self._in_words(cliff) if cliff is not None else ""
        if text != self.words.text():
            self.words.setText(text)
            self.picture.setAccessibleDescription(text)

    def _in_words(self, cliff: Cliff) -> str:
        parts = [f"The update of step {cliff.step:,} takes the loss of its batch from {number(cliff.loss)} to "
                 f"{number(cliff.end)}."]  # fmt: skip
        if beyond := _beyond(cliff):
            parts[0] += f" It ends outside, {number(beyond)} times as far as the picture shows."
        picture = self.picture
        chosen = picture.preview if picture.preview is not None else picture.max_norm
        if cliff.landings and not shortens(cliff):
            parts.append(HARDLY)
        elif (landing := landing_at(cliff, chosen)) is not None:
            if picture.preview is None and not picture.clips:
                parts.append(f"Dashed: max_norm {number(chosen)}, not in use. Drag the circle to clip.")
            elif chosen >= cliff.grad_norm:
                parts.append(f"max_norm {number(chosen)} is above the gradient norm {number(cliff.grad_norm)}.")
            else:
                parts.append(f"With max_norm {number(chosen)} it ends at a loss of {number(landing.loss)}.")
        if picture.pointer is not None and (cell := cell_at(cliff, *picture.pointer)) is not None:
            missing = "not measured yet" if self._measuring else "not measured"
            value = number(float(cliff.losses[cell])) if cliff.known[cell] else missing
            parts.append(f"Under the pointer: loss {value}.")
        if not cliff.whole and not self._measuring:
            parts.append(COARSE.format(len(cliff.columns), len(cliff.rows)))
        parts.append(
            f"To the right: minus the gradient. Upwards: {SECOND[cliff.second]}. Numbers are lengths of the update, "
            f"which is {number(cliff.unit)} long."
        )
        return "\n".join(parts)


def _beyond(cliff: Cliff) -> float:
    """Return by what factor the update exceeds the picture; 0 if it ends within."""
    x, y = (abs(each) / cliff.cell for each in cliff.update)
    times = max(x / (ACROSS - LEFT - 0.5 if cliff.update[0] > 0 else LEFT + 0.5), y / (UP - DOWN - 0.5))
    return times if times > 1 else 0.0
