"""Every command of the window in one table: its label, its keys, its action, and when it is possible.

Menus, tooltips of buttons and the list of keys are generated from it (shell/menus.py, `attach`, shell/keys_dialog.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QAbstractButton, QMenu, QWidget

from gradstudio.gui import palette_choices
from gradstudio.gui.branches import rewind_dialogs
from gradstudio.gui.export import file_dialogs
from gradstudio.gui.knobs import change_menu, preset_menu, preset_text
from gradstudio.gui.knobs.knob_panel import COMPARING, KnobPanel
from gradstudio.gui.knobs.twins_dialog import TwinsDialog
from gradstudio.gui.services import recent
from gradstudio.gui.services.context import Context
from gradstudio.gui.shell import help_dialogs, tour
from gradstudio.gui.shell.device_menu import DeviceMenu
from gradstudio.gui.shell.gestures import GESTURES
from gradstudio.gui.shell.keys_dialog import KeysDialog
from gradstudio.gui.shell.pages import PAGE_HELP, Page
from gradstudio.gui.shell.projector_view import ProjectorView
from gradstudio.gui.shell.speed_slider import SpeedSlider
from gradstudio.gui.shell.window_columns import Columns
from gradstudio.gui.theme import Mode, theme
from gradstudio.gui.user_settings import TWO_FUTURES
from gradstudio.session.machine.device_search import Machine

if TYPE_CHECKING:
    from gradstudio.gui.plots.plot_stack import PlotStack  # pyqtgraph, for which the first paint does not wait

StandardKey = QKeySequence.StandardKey


@dataclass(frozen=True)
class Command:
    """A single command of the window."""

    id: str
    label: str
    call: Callable[[], object]
    keys: str | StandardKey = ""
    help: str = ""
    enabled: Callable[[], bool] = lambda: True  # evaluated when a menu opens; the keys always work
    checked: Callable[[], bool] | None = None  # for a choice among several
    more_keys: str = ""  # keys that the window handles itself, because a shortcut would take them from text fields

    @property
    def key_names(self) -> str:
        own = QKeySequence(self.keys).toString(QKeySequence.SequenceFormat.NativeText)
        return ", ".join(keys for keys in (self.more_keys, own) if keys)

    @property
    def tooltip(self) -> str:
        return f"{self.help or self.label} ({self.key_names})" if self.key_names else self.help


@dataclass(frozen=True)
class Dynamic:
    """Menu entries that are regenerated each time the menu opens."""

    fill: Callable[[QMenu], object]


@dataclass(frozen=True)
class Submenu:
    label: str
    entries: tuple[Entry, ...]


Entry = Command | Dynamic | Submenu | None  # None is a line between two groups
Menus = dict[str, tuple[Entry, ...]]


@dataclass(frozen=True)
class Table:
    """The menus by title, and the commands by id."""

    menus: Menus
    button_menus: Menus  # of the buttons of the top bar
    commands: dict[str, Command]

    def attach(self, button: QAbstractButton, command: str) -> None:
        """Connect a button to a command, with its tooltip."""
        button.clicked.connect(lambda _=False: self.commands[command].call())
        self.explain(button, command)

    def explain(self, widget: QWidget, command: str) -> None:
        """Give a widget the tooltip of a command that it carries out by other means."""
        widget.setToolTip(self.commands[command].tooltip)
        widget.setAccessibleDescription(self.commands[command].tooltip)

    def keys(self, *commands: str) -> str:
        return ", ".join(self.commands[command].key_names for command in commands)


def table(
    context: Context, *, machine: Machine, columns: Columns, speed: SpeedSlider, knobs: KnobPanel,
    plots: Callable[[], PlotStack], toggle_gallery: Callable[[], object], in_gallery: Callable[[], bool],
    show_plots: Callable[[], bool], projector: ProjectorView,
) -> Table:  # fmt: skip
    """Return every command of the window. `plots` is called when a command needs them: they are created later."""
    edit, export, presets = _edit(context), _export(context), _presets(context)
    gallery = Command(
        "gallery", "Show gallery", toggle_gallery, "Ctrl+L",
        "Shows every preset as a card, with a picture of its run, and which lessons are finished", checked=in_gallery,
    )  # fmt: skip
    devices = (Dynamic(DeviceMenu(context, machine).fill),)
    place = Command("open_place", "Open a place…", partial(context.controls.place_asked.emit, None),
                    help="Lists the runs in the library of another machine: follow one, or copy it home")  # fmt: skip
    quit_ = Command("quit", "Quit", context.parent.close, StandardKey.Quit)
    menus: Menus = {
        "&File": (*presets[:2], *_recent(context), place, None, *export, None, *_course(context), None, quit_),
        "&Edit": edit,
        "&Run": (
            *_run(context, plots), None, *_replay(context, plots), None, *_speed(speed), None,
            Submenu("Device", devices),
        ),
        "&View": (
            *_plots(plots), *_layer(context, plots, show_plots), None, Submenu("Theme and text size", _look()), None,
            *_panels(context, columns, knobs, show_plots), None, *_projector(projector, show_plots),
        ),
        "&Presets": (
            gallery, None, Dynamic(lambda menu: preset_menu.fill(menu, context)), None, edit[2], *presets[:2], None,
            *presets[2:],
        ),
    }  # fmt: skip
    rows = {command.id: command for entries in menus.values() for command in _commands(entries)}
    menus["&Help"] = helps = _help(context, menus, rows, knobs, columns, speed, plots, show_plots)
    rows |= {command.id: command for command in helps}
    return Table(menus, {"preset": menus["&Presets"], "device": devices, "export": export}, rows)


def _recent(context: Context) -> tuple[Submenu, ...]:
    return (
        Submenu("Recent files", (Dynamic(partial(recent.fill_files, context=context)),)),
        Submenu("Recent runs", (Dynamic(partial(recent.fill_runs, context=context)),)),
    )


def _commands(entries: tuple[Entry, ...]) -> Iterator[Command]:
    for entry in entries:
        if isinstance(entry, Submenu):
            yield from _commands(entry.entries)
        elif isinstance(entry, Command):
            yield entry


def _presets(context: Context) -> tuple[Command, ...]:
    return (
        Command("open_preset", "Open preset…", partial(file_dialogs.open_preset, context), StandardKey.Open,
                "Loads a preset from a file"),
        Command("save_preset", "Save knobs as preset…", partial(file_dialogs.save_preset, context), StandardKey.Save,
                "Saves the knobs as they are set as a preset of your own",
                lambda: context.controls.possible.is_trained_here),
        Command("copy_preset", "Copy preset as text", partial(preset_text.copy, context),
                help="Copies the knobs as they are set, as one line to paste into a chat",
                enabled=lambda: context.simulator.run.watched is None),
        Command("paste_preset", "Open preset from text…", partial(preset_text.ask, context),
                help="Loads a preset that somebody has copied as text"),
    )  # fmt: skip


def _export(context: Context) -> tuple[Command, ...]:
    possible = context.controls.possible

    def command(file: str, label: str, help: str, keys: str = "", *, always: bool = False) -> Command:
        enabled = (lambda: context.simulator.run.watched is None) if always else (lambda: possible.has_steps)
        return Command(f"export_{file}", label, partial(file_dialogs.export, context, file), keys, help, enabled)

    return (
        command("report.html", "Export report (HTML)…", "Writes a report of the run for a web browser", "Ctrl+E"),
        command("report.pdf", "Export report (PDF)…", "Writes a report of the run to print"),
        command("train.py", "Export script (train.py)…", "Writes a PyTorch program that repeats the run", always=True),
        command("experiment.toml", "Export experiment (TOML)…", "Writes the knobs and the timeline of the run",
                always=True),
        command("metrics.csv", "Export measurements (CSV)…", "Writes what was measured, one row for each step"),
        Command("export_events", "Export to TensorBoard…", partial(file_dialogs.export_events, context),
                help="Writes an event file of the run into a folder", enabled=lambda: possible.has_steps),
    )  # fmt: skip


def _course(context: Context) -> tuple[Command, ...]:
    # The first paint does not wait for exams and exercises; late_imports.py imports them.
    def files() -> ModuleType:
        from gradstudio.gui.assignment import assignment_files

        return assignment_files

    return (
        Command("exercise", "Do an exercise", lambda: files().show_exercises(context),
                help="Shows the guided exercises: runs to make, questions, and a worksheet to hand in"),
        Command("worksheet", "Open worksheet…", lambda: files().ask_worksheet(context),
                help="Opens the worksheet of an exercise that was begun"),
        Command("take_exam", "Take an exam…", lambda: files().ask_exam(context),
                help="Opens a run whose cause is hidden, from a file: find it, and heal it"),
        Command("make_exam", "Make an exam…", lambda: files().make_exam(context),
                help="Makes an exam of the knobs as they are set, once trials show that the run breaks and a fix holds",
                enabled=lambda: context.controls.possible.is_trained_here),
    )  # fmt: skip


def _edit(context: Context) -> tuple[Entry, ...]:
    simulator = context.simulator
    return (
        Command("undo", "Undo knob change", context.controls.undo, StandardKey.Undo,
                "Undoes the latest change of a knob; a change that has not taken effect yet leaves no trace in the "
                "timeline"),
        Command("redo", "Redo knob change", context.controls.redo, StandardKey.Redo,
                "Sets again the knobs of the change that was undone last", lambda: bool(simulator.undone)),
        Command("reset_knobs", "Reset knobs to preset", context.controls.reset_knobs,
                help="Sets every knob to the preset's value"),
        None,
        Submenu("Knob changes", (Dynamic(partial(change_menu.fill, context=context)),)),
    )  # fmt: skip


def _run(context: Context, plots: Callable[[], PlotStack]) -> tuple[Entry, ...]:
    controls, simulator = context.controls, context.simulator
    possible = controls.possible
    return (
        Command("run", "Run or pause", controls.run_or_pause, "F5",
                "Runs, or pauses after the current step; a run that is over goes on behind its last step",
                lambda: possible.can_run, more_keys="Space"),
        Command("step", "Make one step", controls.step, "F10", "Makes one optimizer step, then pauses",
                lambda: possible.can_step),
        Command("restart", "Restart run", controls.restart, "Ctrl+R",
                "Begins again from step 0 with the knobs as they are set", lambda: possible.has_begun),
        Command("stop", "Stop run", controls.stop, "Ctrl+.", "Ends the run where it stands",
                lambda: possible.can_stop),
        Command("ask_rate", "Change its learning rate…", controls.rate_asked.emit,
                help="Asks the program that trains this run to multiply its learning rate by a factor",
                enabled=lambda: possible.is_trained_elsewhere),
        None,
        *_rewinding(context, plots),
        Submenu("Memory for rewinding", (Dynamic(partial(rewind_dialogs.fill_budgets, simulator)),)),
        None,
        Command("two_futures", "Show two futures", lambda: TWO_FUTURES.set(not TWO_FUTURES.get()),
                help="When a run diverges, tries fixes in the background and draws the best one beside it",
                checked=TWO_FUTURES.get),
        Command("twins", "Start twins…", lambda: TwinsDialog(context).open(), "Ctrl+T",
                "Starts two runs with the same seed and batches, side by side; they differ in one knob",
                lambda: possible.can_twin),
        Command("baseline", "Pin or unpin baseline", controls.baseline_asked.emit, "Ctrl+Shift+B",
                "Keeps this run's curves over the plots of every later run, until it is unpinned",
                lambda: possible.has_steps),
        Command("compare", "Compare with large batch", controls.compare_with_large_batch, "Ctrl+B", COMPARING,
                lambda: possible.is_trained_here and not simulator.run.over),
    )  # fmt: skip


def _rewinding(context: Context, plots: Callable[[], PlotStack]) -> tuple[Command, ...]:
    controls = context.controls
    possible = controls.possible

    def ask_step() -> None:
        rewind_dialogs.ask_step(context, plots().timeline.reach, plots().step_cursor.step)

    def rewind_to_healthy() -> None:
        step, (_, changes) = possible.healthy_step, possible.last_changes
        if step is None:
            ask_step()
        else:
            controls.rewind_without() if changes else controls.rewind(step)

    return (
        Command("rewind", "Rewind to step…", ask_step, "Ctrl+G", "Sets the run back to the start of a step you choose",
                lambda: possible.can_rewind),
        Command("rewind_to_healthy", "Rewind to healthy step", rewind_to_healthy, "Ctrl+Shift+G",
                "Rewinds a run that diverged to its last healthy step, without a change right before it, and any "
                "other run to a step you choose; Rewind here does so at the timeline", lambda: possible.can_rewind),
        Command("skip", "Skip next batches…", partial(rewind_dialogs.ask_skip, context),
                help="Skips batches from the next step on, for example those that caused a loss spike",
                enabled=lambda: possible.is_trained_here),
        Command("rewind_here", "Rewind here", lambda: plots().timeline.rewind_here(), "Ctrl+Shift+H",
                "Sets the run back to the start of the step that is looked at",
                lambda: possible.can_rewind and context.looked.step is not None),
    )  # fmt: skip


def _replay(context: Context, plots: Callable[[], PlotStack]) -> tuple[Command, ...]:
    looked = context.looked
    return (
        Command("replay", "Play or pause replay", lambda: plots().timeline.replay.toggle(), "F6",
                "Plays the run again from the step that is looked at; nothing is trained", lambda: looked.last > 0),
        Command("replay_speed", "Change replay speed", lambda: plots().timeline.replay.next_speed(), "Shift+F6",
                "Plays faster, up to 20x; after that 1x again"),
        Command("look_back", "Look one step back", partial(looked.move, -1),
                help="Shows every panel as of the step before; nothing is rewound",
                enabled=lambda: looked.last > 0, more_keys="Left"),
        Command("look_on", "Look one step on", partial(looked.move, 1), help="Shows every panel as of the next step",
                enabled=lambda: looked.step is not None, more_keys="Right"),
        Command("look_at_now", "Back to newest step", looked.leave, help="Shows every panel as of now again",
                enabled=lambda: looked.step is not None, more_keys="End, Esc"),
    )  # fmt: skip


def _speed(speed: SpeedSlider) -> tuple[Command, ...]:
    return (
        Command("slower", "Slow down", speed.slow_down, "Ctrl+Down", "Makes fewer steps in a second", speed.isEnabled),
        Command("faster", "Speed up", speed.speed_up, "Ctrl+Up", "Makes more steps in a second", speed.isEnabled),
    )


def _plots(plots: Callable[[], PlotStack]) -> tuple[Command, ...]:
    return (
        Command(
            "fit", "Show whole run", lambda: plots().show_whole(), "Home", "Shows every step of the run in the plots"
        ),
        Command(
            "zoom_back",
            "Zoom back",
            lambda: plots().zoom_back(),
            "Alt+Left",
            "Shows the steps that were on view before the latest zoom",
        ),
        Command(
            "zoom_forward",
            "Zoom forward",
            lambda: plots().zoom_forward(),
            "Alt+Right",
            "Shows the steps that Zoom back left",
        ),
        Command(
            "time_axis",
            "Show plots over time",
            lambda: plots().choose_axis("steps" if plots().is_over_time else "time"),
            "Ctrl+Shift+X",
            "Draws all plots over the time that training took, or over steps again",
            checked=lambda: plots().is_over_time,
        ),
        Command(
            "directions",
            "Show directions",
            lambda: plots().toggle_directions(),
            "Ctrl+D",
            "Shows the accuracy on the test set, and the cosines between gradient, clipped gradient and update",
            checked=lambda: plots().has("directions") and plots().directions.isVisible(),
        ),
    )


def _layer(context: Context, plots: Callable[[], PlotStack], show_plots: Callable[[], bool]) -> tuple[Command, ...]:
    def on_view(call: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls this on the visible plots of a layer; if another page covers them, it only
        uncovers them."""

        def carry_out() -> None:
            hidden = not plots().isVisible()
            show_plots()
            context.close_large()
            if not hidden or not plots().layer_open:
                call()

        return carry_out

    return (
        Command(
            "layer",
            "Show layer",
            on_view(lambda: plots().toggle_layer()),
            "Ctrl+9",
            "Shows what is measured of one layer, and its weights, gradient and update at a step",
            checked=lambda: plots().layer_open and plots().isVisible(),
        ),
        Command(
            "previous_layer",
            "Previous layer",
            on_view(lambda: plots().turn_layer(-1)),
            "Alt+Up",
            "Shows the page of the layer above",
        ),
        Command(
            "next_layer",
            "Next layer",
            on_view(lambda: plots().turn_layer(1)),
            "Alt+Down",
            "Shows the page of the layer below",
        ),
    )


def _look() -> tuple[Entry, ...]:
    def use(mode: Mode, label: str) -> Command:
        return Command(f"theme_{mode}", label, partial(theme.set_mode, mode), checked=lambda: theme.mode == mode)

    return (
        use("system", "Follow system theme"),
        use("light", "Use light theme"),
        use("dark", "Use dark theme"),
        None,
        Command("larger_text", "Enlarge text", lambda: theme.set_zoom(theme.zoom * 1.1), StandardKey.ZoomIn),
        Command("smaller_text", "Shrink text", lambda: theme.set_zoom(theme.zoom / 1.1), StandardKey.ZoomOut),
        Command("normal_text", "Reset text size", lambda: theme.set_zoom(1.0), "Ctrl+0"),
    )


def _panels(context: Context, columns: Columns, knobs: KnobPanel, show_plots: Callable[[], bool]) -> tuple[Entry, ...]:
    def page(name: Page, keys: str) -> Command:
        def toggle() -> None:
            columns.toggle_page(name, only_show=show_plots())  # it is not visible behind the gallery

        shown = partial(columns.shows, name)
        return Command(f"page_{name}", f"Show {name}", toggle, keys, PAGE_HELP[name], checked=shown)

    def find_knob() -> None:
        show_plots()
        knobs.start_search()

    return (
        Command("find_knob", "Find knob", find_knob, StandardKey.Find, "Searches the knobs"),
        Command("knobs", "Show knobs", lambda: columns.toggle_knobs(only_show=show_plots()), "Ctrl+1",
                "Shows the form of the knobs at the left", checked=knobs.isVisible),
        page("diagnosis", "Ctrl+2"),
        page("lesson", "F4"),
        page("code", "Ctrl+3"),
        page("runs", "Ctrl+4"),
        page("branches", "Ctrl+5"),
        page("gauges", "Ctrl+6"),
        page("memory", "Ctrl+7"),
        page("map", "Ctrl+8"),
        Command("full_screen", "Show full screen", partial(_toggle_full_screen, context.parent), "F11",
                "Gives the window the whole screen", checked=context.parent.isFullScreen),
        Command("reset_layout", "Reset layout", columns.reset, help="Shows every column, as wide as at first"),
    )  # fmt: skip


def _projector(projector: ProjectorView, show_plots: Callable[[], bool]) -> tuple[Entry, ...]:
    def toggle() -> None:
        show_plots()
        projector.toggle()

    def change_card() -> None:
        show_plots()
        projector.change_card()

    return (
        Command("projector", "Show on projector", toggle, "F9",
                "Shows only the plots and one card, in large type and high contrast; leaving it changes nothing",
                checked=lambda: projector.on),
        Command("projector_card", "Change projector card", change_card, "Shift+F9",
                "Shows the findings in place of the lesson on the projector, or the lesson again",
                lambda: projector.on),
    )  # fmt: skip


def _help(
    context: Context,
    menus: Menus,
    rows: dict[str, Command],
    knobs: KnobPanel,
    columns: Columns,
    speed: SpeedSlider,
    plots: Callable[[], PlotStack],
    show_plots: Callable[[], bool],
) -> tuple[Command, ...]:
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
        Command(palette_choices.OWN, "Find anything…",
                lambda: palette_choices.open_palette(context, rows.values(), knobs, show_plots), "Ctrl+K",
                "Searches all commands, knobs, presets, runs and gestures, and carries out the one you choose"),
        Command("list_keys", "List keys and gestures", show_keys, StandardKey.HelpContents),
        Command("about", "About GradStudio", partial(help_dialogs.show_about, context.parent)),
    )  # fmt: skip


def _keys(menus: Menus) -> dict[str, list[tuple[str, str]]]:
    """Return the keys of each menu's commands beside their labels, each command once."""
    told: dict[str, list[tuple[str, str]]] = {}
    seen: set[str] = set()
    for title, entries in menus.items():
        commands = [each for each in _commands(entries) if each.key_names and each.id not in seen]
        seen.update(each.id for each in commands)
        told[title.replace("&", "")] = [(each.key_names, each.label) for each in commands]
    return told


def _toggle_full_screen(window: QWidget) -> None:
    window.showNormal() if window.isFullScreen() else window.showFullScreen()
