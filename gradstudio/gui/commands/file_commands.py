"""The commands that open and save files: presets, recent ones, reports and tables, and those of the course."""

from __future__ import annotations

from functools import partial
from types import ModuleType

from gradstudio.gui.commands.command import Command, Dynamic, StandardKey, Submenu
from gradstudio.gui.export import file_dialogs
from gradstudio.gui.knobs import preset_text
from gradstudio.gui.services import recent
from gradstudio.gui.services.context import Context


def presets(context: Context) -> tuple[Command, ...]:
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


def recently_opened(context: Context) -> tuple[Submenu, ...]:
    return (
        Submenu("Recent files", (Dynamic(partial(recent.fill_files, context=context)),)),
        Submenu("Recent runs", (Dynamic(partial(recent.fill_runs, context=context)),)),
    )


def export(context: Context) -> tuple[Command, ...]:
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


def course(context: Context) -> tuple[Command, ...]:
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
