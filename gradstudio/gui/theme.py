"""Colours, light and dark, and the style of every widget. Widgets that paint themselves listen to `theme.changed`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyqtgraph as pg
from PySide6.QtCore import QObject, QSettings, Qt, QTemporaryDir, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon, QPainter, QPalette, QPixmap
from PySide6.QtWidgets import QApplication

from gradstudio.core.files import RESOURCES

Mode = Literal["system", "light", "dark"]
POINTS = 9.75  # 13 px at 96 dots an inch


@dataclass(frozen=True)
class Colors:
    background: str
    panel: str
    plot: str
    line: str
    grid: str
    text: str
    dim: str
    accent: str
    on_accent: str
    tint: str  # the accent, faint enough to write on
    bad: str
    good: str
    warning: str


LIGHT = Colors(
    "#f4f5f7", "#ffffff", "#ffffff", "#dfe2e7", "#edeff2", "#1d2330", "#626b7a", "#0072B2", "#ffffff", "#e3f0f8", "#C2410C", "#00795a", "#9a6700"
)
DARK = Colors(
    "#14171c", "#1c2027", "#171a20", "#2f353f", "#262b33", "#e8ebf0", "#98a2b3", "#56B4E9", "#0c1116", "#14303f", "#ff8a5c", "#3ddc9f", "#f0c14b"
)


class Theme(QObject):
    """The look in force. `mode` follows the system or a person's choice; `zoom` scales every text."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.mode: Mode = "system"
        self.zoom = 1.0
        self.colors = LIGHT
        self._files = QTemporaryDir()

    @property
    def dark(self) -> bool:
        return self.colors is DARK

    def start(self, app: QApplication) -> None:
        for font in sorted((RESOURCES / "fonts").glob("*.otf")):
            QFontDatabase.addApplicationFont(str(font))
        settings = QSettings()
        mode = settings.value("theme", "system")
        self.mode = mode if mode in ("system", "light", "dark") else "system"
        try:
            self.zoom = min(max(float(settings.value("zoom", 1.0)), 0.7), 2.5)
        except (TypeError, ValueError):
            self.zoom = 1.0
        app.setStyle("Fusion")
        app.styleHints().colorSchemeChanged.connect(lambda _: self.apply())
        self.apply()

    def set_mode(self, mode: Mode) -> None:
        self.mode = mode
        QSettings().setValue("theme", mode)
        self.apply()

    def set_zoom(self, zoom: float) -> None:
        self.zoom = min(max(zoom, 0.7), 2.5)
        QSettings().setValue("zoom", self.zoom)
        self.apply()

    def apply(self) -> None:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        system = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        self.colors = DARK if self.mode == "dark" or (self.mode == "system" and system) else LIGHT
        app.setStyleSheet("")  # under a style sheet every change of font or palette would dress all widgets anew
        app.setFont(self.font())
        app.setPalette(self._palette())
        app.setStyleSheet(_style(self.colors, self.zoom, self._colored("chevron", "dim"), self._colored("check", "on_accent")))
        pg.setConfigOptions(background=self.colors.plot, foreground=self.colors.dim, antialias=False)
        self.changed.emit()

    def font(self, size: float = 1.0, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
        """The program's font at `size` times its normal size, with figures of one width."""
        font = QFont("Inter")
        font.setPointSizeF(POINTS * size * self.zoom)
        font.setWeight(weight)
        font.setFeature(QFont.Tag("tnum"), 1)
        return font

    def color(self, role: str, alpha: int = 255) -> QColor:
        color = QColor(getattr(self.colors, role))
        color.setAlpha(alpha)
        return color

    def icon(self, name: str, role: str = "text") -> QIcon:
        """An icon of resources/icons in one of the theme's colours."""
        drawn = QIcon(str(RESOURCES / "icons" / f"{name}.svg")).pixmap(32, 32)
        painter = QPainter(drawn)
        painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
        painter.fillRect(drawn.rect(), self.color(role))
        painter.end()
        return QIcon(QPixmap(drawn))

    def _colored(self, name: str, role: str) -> str:
        """The path of an icon in one of the theme's colours: a style sheet can only name a file."""
        color = getattr(self.colors, role)
        path = Path(self._files.path()) / f"{name}-{color[1:]}.svg"
        path.write_text((RESOURCES / "icons" / f"{name}.svg").read_text().replace("#000", color))
        return path.as_posix()

    def _palette(self) -> QPalette:
        palette, roles = QPalette(), QPalette.ColorRole
        table = {
            roles.Window: "background", roles.WindowText: "text", roles.Base: "panel", roles.AlternateBase: "background",
            roles.Text: "text", roles.Button: "panel", roles.ButtonText: "text", roles.ToolTipBase: "panel", roles.ToolTipText: "text",
            roles.PlaceholderText: "dim", roles.Highlight: "accent", roles.HighlightedText: "on_accent", roles.Link: "accent", roles.Mid: "line",
        }  # fmt: skip
        for role, name in table.items():
            palette.setColor(role, self.color(name))
        for role in (roles.WindowText, roles.Text, roles.ButtonText):
            palette.setColor(QPalette.ColorGroup.Disabled, role, self.color("dim", 140))
        return palette


def _style(c: Colors, zoom: float, chevron: str, check: str) -> str:
    small, tiny = POINTS * zoom * 0.88, POINTS * zoom * 0.8
    return f"""
    QMainWindow, QDialog {{ background: {c.background}; }}
    QMenuBar {{ background: {c.panel}; color: {c.dim}; padding: 2px 8px; }}
    QMenuBar::item {{ padding: 3px 8px; border-radius: 4px; background: transparent; }}
    QMenuBar::item:selected {{ background: {c.tint}; color: {c.text}; }}
    QMenu {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.line}; padding: 4px; }}
    QMenu::item {{ padding: 5px 24px 5px 24px; border-radius: 4px; }}
    QMenu::item:selected {{ background: {c.tint}; color: {c.text}; }}
    QMenu::item:disabled {{ color: {c.dim}; }}
    QMenu::separator {{ height: 1px; background: {c.line}; margin: 4px 8px; }}
    QToolTip {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.line}; padding: 5px; }}
    #panel {{ background: {c.panel}; }}
    #left {{ background: {c.panel}; border-right: 1px solid {c.line}; }}
    #right {{ background: {c.panel}; border-left: 1px solid {c.line}; }}
    #top {{ background: {c.panel}; border-top: 1px solid {c.line}; border-bottom: 1px solid {c.line}; }}
    #figures {{ background: {c.panel}; border-top: 1px solid {c.line}; }}
    #card {{ background: {c.plot}; border: 1px solid {c.line}; border-radius: 7px; }}
    #rule {{ background: {c.line}; border: none; }}
    QLabel {{ background: transparent; }}
    QLabel[role="title"] {{ font-weight: 600; }}
    QLabel[role="heading"] {{ color: {c.dim}; font-weight: 600; font-size: {small}pt; }}
    QLabel[role="dim"] {{ color: {c.dim}; font-size: {small}pt; }}
    QLabel[role="fixed"] {{ color: {c.dim}; }}
    QLabel[role="note"] {{ color: {c.dim}; font-size: {tiny}pt; }}
    QLabel[role="waiting"] {{ color: {c.warning}; font-size: {tiny}pt; }}
    QLabel[role="error"] {{ color: {c.bad}; font-size: {tiny}pt; }}
    QScrollArea {{ border: none; background: transparent; }}
    QScrollArea > QWidget > QWidget {{ background: transparent; }}
    QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
    QScrollBar::handle:vertical {{ background: {c.line}; border-radius: 3px; min-height: 32px; margin: 2px; }}
    QScrollBar::handle:vertical:hover {{ background: {c.dim}; }}
    QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {{ background: none; height: 0; width: 0; }}
    QSplitter::handle {{ background: transparent; }}
    QPushButton, QToolButton {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.line}; border-radius: 6px; padding: 5px 12px; }}
    QPushButton:hover, QToolButton:hover {{ border-color: {c.accent}; }}
    QPushButton:focus, QToolButton:focus {{ border-color: {c.accent}; }}
    QPushButton:pressed, QToolButton:pressed {{ background: {c.tint}; }}
    QPushButton:disabled, QToolButton:disabled {{ color: {c.dim}; border-color: {c.line}; background: {c.background}; }}
    QPushButton[role="primary"] {{ background: {c.accent}; color: {c.on_accent}; border-color: {c.accent}; font-weight: 600; }}
    QPushButton[role="primary"]:hover, QPushButton[role="primary"]:focus {{ border-color: {c.dim}; }}
    QPushButton[role="flat"] {{ border: none; padding: 1px 4px; color: {c.dim}; background: transparent; font-size: {small}pt; }}
    QPushButton[role="flat"]:hover, QPushButton[role="flat"]:focus {{ color: {c.accent}; }}
    QPushButton[role="group"] {{ border: none; padding: 0; text-align: left; background: transparent; font-weight: 600; }}
    QPushButton[role="group"]:hover, QPushButton[role="group"]:focus {{ color: {c.accent}; }}
    QPushButton[role="remedy"] {{ padding: 3px 9px; font-size: {small}pt; }}
    QToolButton::menu-indicator {{ image: none; }}
    QPushButton::menu-indicator {{ image: none; }}
    QPushButton[role="segment"] {{ border-radius: 0; padding: 3px 0; border: none; border-right: 1px solid {c.line}; font-size: {small}pt; }}
    QPushButton[role="segment"]:hover {{ color: {c.accent}; }}
    QPushButton[role="segment"]:focus {{ text-decoration: underline; }}
    QPushButton[role="segment"]:checked {{ background: {c.accent}; color: {c.on_accent}; font-weight: 600; }}
    #segments {{ border: 1px solid {c.line}; border-radius: 5px; }}
    QLineEdit {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.line}; border-radius: 5px; padding: 3px 7px; selection-background-color: {c.accent}; }}
    QLineEdit:focus {{ border-color: {c.accent}; }}
    QLineEdit[wrong="true"] {{ border-color: {c.bad}; color: {c.bad}; }}
    QComboBox {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.line}; border-radius: 5px; padding: 3px 22px 3px 8px; }}
    QComboBox#small {{ padding: 0 18px 0 6px; border-color: transparent; color: {c.dim}; font-size: {small}pt; }}
    QComboBox:focus, QComboBox:hover, QComboBox#small:hover, QComboBox#small:focus {{ border-color: {c.accent}; }}
    QComboBox:disabled, QLineEdit:disabled {{ color: {c.dim}; background: {c.background}; }}
    QComboBox::drop-down {{ border: none; width: 18px; }}
    QComboBox::down-arrow {{ image: url({chevron}); width: 10px; height: 10px; }}
    QComboBox QAbstractItemView {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.line}; selection-background-color: {c.tint};
        selection-color: {c.text}; outline: none; padding: 2px; }}
    QCheckBox {{ spacing: 7px; background: transparent; }}
    QCheckBox::indicator {{ width: 15px; height: 15px; border: 1px solid {c.dim}; border-radius: 4px; background: {c.panel}; }}
    QCheckBox::indicator:hover, QCheckBox::indicator:focus {{ border-color: {c.accent}; }}
    QCheckBox::indicator:checked {{ background: {c.accent}; border-color: {c.accent}; image: url({check}); }}
    QSlider::groove:horizontal {{ height: 4px; background: transparent; }}
    QSlider::add-page:horizontal {{ background: {c.line}; border-radius: 2px; }}
    QSlider::sub-page:horizontal {{ background: {c.accent}; border-radius: 2px; }}
    QSlider::handle:horizontal {{ background: {c.panel}; border: 2px solid {c.accent}; width: 9px; height: 9px; margin: -5px 0; border-radius: 6px; }}
    QSlider::handle:horizontal:focus {{ background: {c.accent}; }}
    QSlider::sub-page:horizontal:disabled {{ background: {c.line}; }}
    #message {{ background: {c.tint}; border-bottom: 1px solid {c.line}; }}
    #message[tone="bad"] {{ border-left: 4px solid {c.bad}; }}
    #message[tone="good"] {{ border-left: 4px solid {c.good}; }}
    """


theme = Theme()
