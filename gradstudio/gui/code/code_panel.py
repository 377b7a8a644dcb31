"""The page Code: the knobs as a plain PyTorch program, with marks at the lines of every knob that differs from the
preset."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.core.knobs import value_text, values_text
from gradstudio.core.presets import Preset
from gradstudio.core.text import plural
from gradstudio.gui.code.code_view import ChangedLines, CodeView, changed_lines
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.session.simulator import Simulator

CAPTION = "The knobs as plain PyTorch: prints step, loss and grad_norm, repeats the run."
OF_RESTART = "The program of a restart. “Export script” in the Export menu writes this run{}."
OF_LOG = "This training is known from its log alone, and this is what it tells."
OF_SCRIPT = "The training of this script was watched. Its text stays in its own file; this is what is known of it."
SAVING = "Runs by itself: python train.py."
COPIED = 1500  # ms for which the button confirms that it has copied
MAY_BREAK = "\u200b"  # a zero-width space, at which a long name may break


class CodePanel(QWidget):
    save_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.caption = role_label("", "dim", wordWrap=True)
        self.view = CodeView()
        self.view.setAccessibleName("Program")
        self.setFocusProxy(self.view)
        self.note = role_label("", "note", textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self.copy = QPushButton("Copy")
        self.copy.setToolTip("Copies the whole program to the clipboard")
        self.copy.clicked.connect(self._copy)
        self.save = QPushButton("Save as train.py…")
        self.save.clicked.connect(self.save_asked)
        for button in (self.copy, self.save):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._shown: Experiment | None = None
        self._preset: Preset | None = None
        self._base, self._base_text = Experiment(), ""  # of the preset
        self._marks = ChangedLines()
        foot = in_row((self.note, 1), self.copy, self.save, margins=(12, 6, 12, 8))
        column = in_column(of=self, margins=NO_MARGINS, spacing=6)
        self.caption.setContentsMargins(12, 0, 12, 0)
        column.addWidget(self.caption)
        column.addWidget(self.view, 1)
        column.addLayout(foot)
        for part in (self.caption, self.note, self.copy, self.save):
            theme.apply_style(part)
        self._say(CAPTION, f"{SAVING} Export writes the program of the run as it went, with its changes.")

    @property
    def text(self) -> str:
        return self.view.toPlainText()

    def refresh(self, simulator: Simulator) -> None:
        """Show the program of the current knobs; do nothing while the page is hidden."""
        if not self.isVisible():
            return
        watched = simulator.run.watched
        for button in (self.copy, self.save):
            button.setEnabled(watched is None)
        if watched is not None:
            self._show_script(watched)
            return
        self._describe_program(simulator)
        experiment, preset, before = simulator.requested, simulator.preset, self._shown
        if experiment is before and preset is self._preset:
            return
        other, was = preset is not self._preset, self.text
        self._shown, self._preset = experiment, preset
        text = simulator.script()
        if before is None or other:
            self._base = preset.experiment
            self._base_text = text if experiment == self._base else simulator.script_of_preset()
        self._marks = changed_lines(self._base_text, text)
        latest = ChangedLines() if before is None or other else changed_lines(was, text)
        self.view.show_code(text, self._marks, latest.to_look_at(text))
        if before is None or other:
            self.view.show_loop()
        self._show_changes()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_changes()

    def _show_script(self, watched: WatchedScript) -> None:
        """Show the facts about a watched script, whose text is not stored."""
        about = OF_LOG if watched.log else OF_SCRIPT
        self._say(about, about)
        self.note.setText("")
        self._shown = self._preset = None
        text = "\n".join(f"# {name}: {value}" for name, value in watched.all_facts)
        if text != self.text:
            self.view.show_code(text, ChangedLines())

    def _describe_program(self, simulator: Simulator) -> None:
        """Say whether the program repeats the run. It does not if a knob was changed after the run began, because its
        only timeline is the preset's."""
        run = simulator.run
        own = any(change not in run.planned for change in list(run.timeline))
        if simulator.has_begun and (own or simulator.requested != run.experiment):
            changes = f" with its {plural(len(run.timeline), 'change', 'changes')}" if run.timeline else " as it began"
            caption = OF_RESTART.format(changes)
            self._say(caption, f"{SAVING} {caption}")
        else:
            self._say(CAPTION, f"{SAVING} Export writes the program of the run as it went, with its changes.")

    def _say(self, caption: str, about_file: str) -> None:
        if caption != self.caption.text():
            self.caption.setText(caption)
            self.view.setAccessibleDescription(caption)
            self.save.setToolTip(about_file)

    def _show_changes(self) -> None:
        """Say which knobs the marks are for, by name if the names fit beside the buttons."""
        new = differing_values(self._base, self._shown) if self._shown else {}
        self.note.setToolTip(values_text(new, "\n"))
        if len(new) == 1:
            [(name, value)] = new.items()
            self.note.setText(self._marks_text(f"{name} {value_text(self._base[name])} → {value_text(value)}"))
            return
        named = self._marks_text(", ".join(f"{name} {value_text(value)}" for name, value in new.items()))
        self.note.setText(named if self._fits(named) else self._marks_text(f"{len(new)} knobs"))

    def _marks_text(self, what: str) -> str:
        """Return the text after the symbol of the marks, with places to break."""
        if not what:
            return ""
        sign = "■ " if self._marks.lines else "▶ "
        text = f"{what}: no line changed" if self._marks.first is None else sign + what
        return text.replace("_", "_" + MAY_BREAK).replace(".", "." + MAY_BREAK)

    def _fits(self, text: str) -> bool:
        """Return whether a text takes at most two lines."""
        metrics = self.note.fontMetrics()
        room = QRect(0, 0, self.note.width(), 1000)
        return metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, text).height() <= 2 * metrics.lineSpacing()

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.text)
        self.copy.setText("Copied")
        QTimer.singleShot(COPIED, self.copy, lambda: self.copy.setText("Copy"))
