"""The content of the command palette: every command, knob, preset, run of the library, and gesture."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

import shiboken6

from gradstudio.core import presets
from gradstudio.gui import user_settings
from gradstudio.gui.knobs.knob_panel import KnobPanel
from gradstudio.gui.services import recent
from gradstudio.gui.services.context import Context
from gradstudio.gui.shell.command_palette import Choice, CommandPalette
from gradstudio.gui.shell.gestures import GESTURES
from gradstudio.session.library.run_entries import Entry, searchable_text
from gradstudio.session.library.store import Library
from gradstudio.session.words import run_texts

OWN = "palette"  # id of the command that opens the palette, which it does not offer


class Command(Protocol):
    """The interface of a command of the window. gui/commands/, which has its class, imports this file."""

    @property
    def id(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def key_names(self) -> str: ...
    @property
    def call(self) -> Callable[[], object]: ...
    @property
    def enabled(self) -> Callable[[], bool]: ...


def open_palette(
    context: Context, commands: Iterable[Command], knobs: KnobPanel, show_plots: Callable[[], object]
) -> None:
    """Open the palette. Its runs are read in the library's thread, and appear a moment later."""
    commands = list(commands)
    choices = [*_commands(commands), *_knobs(context, knobs, show_plots), *_presets(context, show_plots)]
    latest = [name for name, _ in user_settings.RECENT_CHOICES.get()]
    palette = CommandPalette(context.parent, [*choices, *_gestures(commands)], latest, _remember)
    palette.show()

    def add(entries: list[Entry]) -> None:
        if shiboken6.isValid(palette) and palette.isVisible():
            palette.add(_runs(context, entries, show_plots))

    if context.library.path.exists():
        context.library.ask(Library.entries, add)


def _remember(choice: Choice) -> None:
    recent.remember(user_settings.RECENT_CHOICES, choice.name)


def _commands(commands: Iterable[Command]) -> list[Choice]:
    return [
        Choice("command", each.label, each.call, each.key_names, each.help, each.enabled())
        for each in commands
        if each.id != OWN
    ]


def _knobs(context: Context, knobs: KnobPanel, show_plots: Callable[[], object]) -> list[Choice]:
    def reveal(name: str) -> None:
        show_plots()
        knobs.reveal(name, context.simulator)

    applies = context.simulator.requested.applies
    return [
        Choice("knob", name, partial(reveal, name), about=f"{knob.label}: {knob.help}", possible=applies(name))
        for name, knob in knobs.rows.knobs.items()
    ]


def _presets(context: Context, show_plots: Callable[[], object]) -> list[Choice]:
    def load(preset: presets.Preset) -> None:
        show_plots()
        context.controls.open_preset(preset.path or preset.id)

    choices: list[Choice] = []
    for path in presets.available():
        with suppress(presets.PresetError):  # the menu of the presets says why one cannot be read
            preset = presets.read(path)
            choices.append(Choice("preset", preset.title, partial(load, preset), about=preset.summary))
    return choices


def _gestures(commands: Iterable[Command]) -> list[Choice]:
    show_keys = next(each.call for each in commands if each.id == "list_keys")
    return [
        Choice("help", what, show_keys, f"{gesture} · {topic[:1].lower()}{topic[1:]}", f"{gesture} {topic}")
        for topic, pairs in GESTURES.items()
        for gesture, what in pairs
    ]


def _runs(context: Context, entries: list[Entry], show_plots: Callable[[], object]) -> list[Choice]:
    def show(run: str) -> None:
        show_plots()
        context.controls.open_asked.emit(run)

    newest, now = sorted(entries, key=lambda entry: entry.started, reverse=True), time.time()
    return [
        Choice("run", f"{entry.title}, {run_texts.outcome(entry)[0]}", partial(show, entry.id),
               run_texts.when(entry.started, now), searchable_text(entry), named=entry.id)
        for entry in newest
    ]  # fmt: skip
