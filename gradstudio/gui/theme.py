"""The light and the dark theme: colours, fonts and the style of every widget. The values of the colours are in
core/colors.py. Custom-painted widgets listen to `theme.changed`; parts of the window with Qt's own widgets are passed
to `theme.apply_style` (styled_parts.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Literal

from PySide6.QtCore import QObject, Qt, QTemporaryDir, QTimer, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon, QPainter, QPalette, QPixmap
from PySide6.QtWidgets import QApplication, QWidget

from gradstudio.core.colors import DARK, DARK_PROJECTED, LIGHT, LIGHT_PROJECTED
from gradstudio.core.files import RESOURCES
from gradstudio.gui import user_settings
from gradstudio.gui.styled_parts import StyledParts

Mode = Literal["system", "light", "dark"]
POINTS = 9.75  # 13 px at 96 dots an inch
PROJECTED = 1.5  # initial zoom on a projector
MOST_PROJECTED = 2.2


class Theme(QObject):
    """The look in force. `mode` is the user's choice: light, dark, or like the system; `zoom` scales every text.
    `projected`: large type and high contrast, for as long as the projector view lasts."""

    changed = Signal()  # every visible part has the new look, and is not painted yet

    def __init__(self) -> None:
        super().__init__()
        self.mode: Mode = "system"
        self.zoom = 1.0
        self.projected = False
        self.colors = LIGHT
        self._wanted = False  # another change while the previous one is carried out
        self._files = QTemporaryDir()
        self._icons: dict[tuple[str, int], QIcon] = {}  # by name and colour; a theme change needs most of them again
        self._parts = StyledParts()
        self._parts.dressed.connect(self._on_dressed)

    @property
    def dark(self) -> bool:
        return self.colors in (DARK, DARK_PROJECTED)

    def start(self, app: QApplication) -> None:
        for font in sorted((RESOURCES / "fonts").glob("*.otf")):
            QFontDatabase.addApplicationFont(str(font))
        self.restore()
        app.setStyle("Fusion")
        app.styleHints().colorSchemeChanged.connect(lambda _: self.apply())
        self.apply()

    def restore(self) -> None:
        """Read the mode and the text size from the settings file."""
        modes: dict[str, Mode] = {"system": "system", "light": "light", "dark": "dark"}
        self.mode = modes[user_settings.THEME.get()]
        self.zoom = user_settings.ZOOM.get()

    def set_mode(self, mode: Mode) -> None:
        self.mode = mode
        user_settings.THEME.set(mode)
        self.apply()

    def set_zoom(self, zoom: float) -> None:
        if self.projected:
            self.zoom = min(max(zoom, 1.0), MOST_PROJECTED)
        else:
            self.zoom = min(max(zoom, user_settings.LEAST_ZOOM), user_settings.MOST_ZOOM)
            user_settings.ZOOM.set(self.zoom)
        self.apply()

    def project(self, projected: bool) -> None:
        """Use large type and high contrast, or the look that was chosen before. Nothing is stored."""
        if projected != self.projected:
            self.projected = projected
            self.restore()
            if projected:
                self.zoom = PROJECTED
            self.apply()

    @property
    def curve_width(self) -> int:
        """Pixels of a curve on the screen; 0 stands for one pixel, which Qt draws fastest."""
        return 2 if self.projected else 0

    @property
    def is_settled(self) -> bool:
        """Whether everything visible has the requested look."""
        return not self._parts.at_work and not self._wanted

    def apply_style(self, part: QWidget, restyle: Callable[[], object] = lambda: None) -> None:
        """Style this part of the window from now on: a widget with its children. `restyle` is called after each change,
        for anything that Qt does not style, once the part is visible."""
        self._parts.add(part, restyle)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Collect the parts passed to `apply_style` in this context, and style them at its end: faster for parts that
        are put into others until then. Text measured meanwhile must be measured again."""
        with self._parts.together():
            yield

    def each_together(self, steps: Iterator[None]) -> Iterator[None]:
        """Advance `steps`, and style what each of them passes to `apply_style` at its end."""
        left = True
        while left:
            with self.together():
                left = next(steps, self) is not self
            if left:
                yield

    def apply(self) -> None:
        """Apply the requested look within some turns of the event loop."""
        if self._parts.busy:  # a wheel requests more looks in a second than are possible
            self._wanted = True
            return
        self._wanted = False
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        system = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        dark = self.mode == "dark" or (self.mode == "system" and system)
        if self.projected:
            self.colors = DARK_PROJECTED if dark else LIGHT_PROJECTED
        else:
            self.colors = DARK if dark else LIGHT
        app.setFont(self.font())
        app.setPalette(self._palette())
        self._parts.change(self._style())

    def _on_dressed(self) -> None:
        self.changed.emit()
        if self._wanted:
            QTimer.singleShot(0, self, self.apply)

    def font(self, size: float = 1.0, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
        """Return the program's font at `size` times its normal size, with tabular digits."""
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
        """Return an icon of resources/icons in one of the theme's colours."""
        color = self.color(role)
        if (name, color.rgb()) not in self._icons:
            icon = QIcon(self._draw(name, color))
            icon.addPixmap(self._draw(name, self.color("disabled")), QIcon.Mode.Disabled)
            self._icons[name, color.rgb()] = icon
        return self._icons[name, color.rgb()]

    @staticmethod
    def _draw(name: str, color: QColor) -> QPixmap:
        drawn = QIcon(str(RESOURCES / "icons" / f"{name}.svg")).pixmap(32, 32)
        with QPainter(drawn) as painter:
            painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
            painter.fillRect(drawn.rect(), color)
        return QPixmap(drawn)

    def _colored_icon(self, name: str, role: str) -> str:
        """Return the path of an icon in one of the theme's colours, because a style sheet can only name a file."""
        color = getattr(self.colors, role)
        path = Path(self._files.path()) / f"{name}-{color[1:]}.svg"
        path.write_text((RESOURCES / "icons" / f"{name}.svg").read_text().replace("#000", color))
        return path.as_posix()

    def _style(self) -> str:
        """Return the style sheet of resources/theme.qss with colours and sizes filled in."""
        sizes = {
            "small": POINTS * self.zoom * 0.88,
            "tiny": POINTS * self.zoom * 0.8,
            "number_width": round(62 * self.zoom),
            "long_width": round(100 * self.zoom),
        }
        roles = {"chevron": "dim", "chevron_up": "dim", "menu": "dim", "check": "on_accent"}
        icons = {name: self._colored_icon(name, role) for name, role in roles.items()}
        return Template((RESOURCES / "theme.qss").read_text()).substitute(asdict(self.colors), **sizes, **icons)

    def _palette(self) -> QPalette:
        palette, roles = QPalette(), QPalette.ColorRole
        table = {
            roles.Window: "background", roles.WindowText: "text", roles.Base: "panel",
            roles.AlternateBase: "background",
            roles.Text: "text", roles.Button: "panel", roles.ButtonText: "text", roles.ToolTipBase: "panel",
            roles.ToolTipText: "text",
            roles.PlaceholderText: "dim", roles.Highlight: "accent", roles.HighlightedText: "on_accent",
            roles.Link: "accent", roles.Mid: "line",
        }  # fmt: skip
        for role, name in table.items():
            palette.setColor(role, self.color(name))
        for role in (roles.WindowText, roles.Text, roles.ButtonText):
            palette.setColor(QPalette.ColorGroup.Disabled, role, self.color("dim", 140))
        return palette


theme = Theme()
