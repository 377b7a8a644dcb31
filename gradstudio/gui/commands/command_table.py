"""The table of all commands: its menus, and the list of keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from gradstudio import __version__
from gradstudio.core.text import strong
from gradstudio.gui import command_palette_choices
from gradstudio.gui.commands import file_commands as file
from gradstudio.gui.commands import run_commands as run
from gradstudio.gui.commands import view_commands as view
from gradstudio.gui.commands.command import Command, Dynamic, Menus, StandardKey, Submenu, Table, commands_of
from gradstudio.gui.knobs import preset_menu
from gradstudio.gui.knobs.knob_panel import KnobPanel
from gradstudio.gui.services.context import Context
from gradstudio.gui.shell import tour
from gradstudio.gui.shell.device_menu import DeviceMenu
from gradstudio.gui.shell.gestures import GESTURES
from gradstudio.gui.shell.keys_dialog import KeysDialog
from gradstudio.gui.shell.projector_view import ProjectorView
from gradstudio.gui.shell.speed_slider import SpeedSlider
from gradstudio.gui.shell.window_columns import Columns
from gradstudio.gui.widgets import popups
from gradstudio.session.machine.device_search import Machine

if TYPE_CHECKING:
    from gradstudio.gui.plots.plot_stack import PlotStack  # pyqtgraph, for which the first paint does not wait


def table(
    context: Context, *, machine: Machine, columns: Columns, speed: SpeedSlider, knobs: KnobPanel,
    plots: Callable[[], PlotStack], toggle_gallery: Callable[[], object], in_gallery: Callable[[], bool],
    show_plots: Callable[[], bool], projector: ProjectorView,
) -> Table:  # fmt: skip
    """Return every command of the window. `plots` is called when a command needs them: they are created later."""
    edit, export, presets = run.edit(context), file.export(context), file.presets(context)
    gallery = Command(
        "gallery", "Show gallery", toggle_gallery, "Ctrl+L",
        "Shows every preset as a card, with a picture of its run, and which lessons are finished", checked=in_gallery,
    )  # fmt: skip
    devices = (Dynamic(DeviceMenu(context, machine).fill),)
    place = Command("open_place", "Open a place…", partial(context.controls.place_asked.emit, None),
                    help="Lists the runs in the library of another machine: follow one, or copy it home")  # fmt: skip
    quit_ = Command("quit", "Quit", context.parent.close, StandardKey.Quit)
    menus: Menus = {
        "&File": (
            *presets[:2], *file.recently_opened(context), place, None, *export, None, *file.course(context), None, quit_
        ),
        "&Edit": edit,
        "&Run": (
            *run.run(context, plots), None, *run.replay(context, plots), None, *run.speed(speed), None,
            Submenu("Device", devices),
        ),
        "&View": (
            *view.plots(plots), *view.layer(context, plots, show_plots), None,
            Submenu("Theme and text size", view.look()), None, *view.panels(context, columns, knobs, show_plots), None,
            *view.projector(projector, show_plots),
        ),
        "&Presets": (
            gallery, None, Dynamic(lambda menu: preset_menu.fill(menu, context)), None, edit[2], *presets[:2], None,
            *presets[2:],
        ),
    }  # fmt: skip
    rows = {command.id: command for entries in menus.values() for command in commands_of(entries)}
    menus["&Help"] = helps = _help(context, menus, rows, knobs, columns, speed, plots, show_plots)
    rows |= {command.id: command for command in helps}
    return Table(menus, {"preset": menus["&Presets"], "device": devices, "export": export}, rows)


def _help(
    context: Context, menus: Menus, rows: dict[str, Command], knobs: KnobPanel, columns: Columns, speed: SpeedSlider,
    plots: Callable[[], PlotStack], show_plots: Callable[[], bool],
) -> tuple[Command, ...]:  # fmt: skip
    def show_keys() -> None:
        KeysDialog(context.parent, _keys(menus) | GESTURES).open()

    def begin_tour() -> None:
        show_plots()
        if not knobs.isVisible():
            columns.toggle_knobs()
        columns.show_page("diagnosis")
        top, side = speed.parentWidget(), columns.widget(2)
        assert top is not None and side is not None
        tour.begin(context.parent, knobs, top, plots(), side)

    return (
        Command("tour", "Take the tour", begin_tour,
                help="Shows in four steps what is where: knobs, run, plots and diagnosis"),
        Command(command_palette_choices.OWN, "Find anything…",
                lambda: command_palette_choices.open_palette(context, rows.values(), knobs, show_plots), "Ctrl+K",
                "Searches all commands, knobs, presets, runs and gestures, and carries out the one you choose"),
        Command("list_keys", "List keys and gestures", show_keys, StandardKey.HelpContents),
        Command("about", "About GradStudio", partial(_show_about, context.parent)),
    )  # fmt: skip


def _keys(menus: Menus) -> dict[str, list[tuple[str, str]]]:
    """Return the keys of each menu's commands beside their labels, each command once."""
    told: dict[str, list[tuple[str, str]]] = {}
    seen: set[str] = set()
    for title, entries in menus.items():
        commands = [each for each in commands_of(entries) if each.key_names and each.id not in seen]
        seen.update(each.id for each in commands)
        told[title.replace("&", "")] = [(each.key_names, each.label) for each in commands]
    return told


def _show_about(parent: QWidget) -> None:
    text = (
        f"<p style='font-size: large'>{strong(f'GradStudio {__version__}')}</p>"
        "<p>A flight simulator for training stability. It trains a real PyTorch model in front of you, lets you break "
        "the training on purpose, and shows why it broke.</p>"
        "<p>Handwritten digits: UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, CC BY 4.0. "
        "Font: Inter, SIL Open Font License 1.1.</p>"
    )
    popups.message_box(parent, "About GradStudio", text).open()
