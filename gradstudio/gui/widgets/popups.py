"""Dialogs and menus for a single question: each is created here, and freed once it is closed.

Qt keeps a dialog or a menu as long as its parent, and with it all its widgets and the references of its slots; a file
dialog also keeps a thread and two descriptors. tests/gui/test_nothing_is_left.py checks that no other file creates one.
Not here: the menus of the menu bar and of buttons, which stay as long as the window."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRegularExpression, Qt, QTimer
from PySide6.QtGui import QIcon, QRegularExpressionValidator
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QInputDialog,
    QLineEdit,
    QMenu,
    QMessageBox,
    QPushButton,
    QWidget,
)

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import set_role

WIDE = (800, 480)  # px of a file dialog: its columns are not cut
LOOK = 50  # ms between two checks whether a question of a closed dialog is answered


class TemporaryDialog(QDialog):
    """A dialog of the program's own, for one question."""

    def __init__(self, parent: QWidget, title: str) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        _take_in(self)


class _Describer(QObject):
    """Gives the parts of a dialog that Qt creates itself a name and a description, and no desktop icons, when it is
    shown: they are created only then."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QDialog):
            _describe(watched)
        return False


def _describe(dialog: QDialog) -> None:
    boxes = dialog.findChildren(QDialogButtonBox)
    accepting = (QDialogButtonBox.ButtonRole.AcceptRole, QDialogButtonBox.ButtonRole.YesRole)
    for box in boxes:
        for button in box.buttons():
            button.setIcon(QIcon())
            goes_on = box.buttonRole(button) in accepting and len(box.buttons()) > 1
            if not button.accessibleDescription() and not button.toolTip():
                does = f"Goes on with what this dialog says: {dialog.windowTitle()}"
                button.setAccessibleDescription(does if goes_on else "Closes this dialog, and changes nothing")
            if goes_on and not any(other.isDefault() for other in box.findChildren(QPushButton) if other is not button):
                set_role(button, "primary")
    for combo in dialog.findChildren(QComboBox):
        if (line := combo.lineEdit()) is not None:
            line.setAccessibleName(combo.accessibleName())
            line.setAccessibleDescription(combo.accessibleDescription() or combo.toolTip())
    if isinstance(dialog, QInputDialog):
        for field in (*dialog.findChildren(QAbstractSpinBox), *dialog.findChildren(QLineEdit)):
            field.setAccessibleName(dialog.windowTitle())
            field.setAccessibleDescription(dialog.labelText())


def file_dialog(parent: QWidget, title: str, folder: str, kinds: str = "") -> QFileDialog:
    """Return a dialog that asks for a file of these kinds, such as `Presets (*.toml);;All files (*)`."""
    dialog = QFileDialog(parent, title, folder, kinds)
    dialog.resize(*WIDE)
    # If the desktop has no file dialog, Qt's own could also rename and delete files: neither is wanted, and Qt warns
    # about a name that the file system rejects as if the program were at fault.
    dialog.setOption(QFileDialog.Option.ReadOnly)
    if name := dialog.findChild(QLineEdit, "fileNameEdit"):  # no file system accepts a NUL, and Qt warns about one
        name.setValidator(QRegularExpressionValidator(QRegularExpression("[^\\x00]*"), name))
    _take_in(dialog)
    return dialog


def input_dialog(parent: QWidget, title: str, question: str) -> QInputDialog:
    """Return a dialog that asks for one value."""
    dialog = QInputDialog(parent)
    dialog.setWindowTitle(title)
    dialog.setLabelText(question)
    _take_in(dialog)
    return dialog


def message_box(parent: QWidget, title: str, text: str) -> QMessageBox:
    """Return a dialog that shows a rich text."""
    box = QMessageBox(parent)
    box.setWindowTitle(title)
    box.setTextFormat(Qt.TextFormat.RichText)
    box.setText(text)
    _take_in(box)
    return box


def context_menu(parent: QWidget) -> QMenu:
    """Return an empty menu to fill and to show at one place."""
    menu = QMenu(parent)
    menu.aboutToHide.connect(menu.deleteLater)  # however it is hidden; first the chosen entry is carried out
    return menu


def _take_in(dialog: QDialog) -> None:
    """Style a dialog, and free it once it is closed."""
    theme.apply_style(dialog)
    dialog.installEventFilter(_Describer(dialog))
    # Not WA_DeleteOnClose: a file dialog that asks whether to replace a file waits in that question, which is its
    # child, and would be deleted there with it.
    dialog.finished.connect(lambda: _free(dialog))


def _free(dialog: QDialog) -> None:
    if QApplication.activePopupWidget() or dialog.findChildren(QMessageBox):  # a box lives as long as it is awaited
        QTimer.singleShot(LOOK, dialog, lambda: _free(dialog))
    elif not dialog.isVisible():
        dialog.deleteLater()
