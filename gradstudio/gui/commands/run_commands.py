"""The commands of a run: its knobs, training, rewinding, replay and speed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gradstudio.gui.branches import rewind_dialogs
from gradstudio.gui.commands.command import Command, Dynamic, Entry, StandardKey, Submenu
from gradstudio.gui.knobs import change_menu
from gradstudio.gui.knobs.knob_panel import COMPARING
from gradstudio.gui.knobs.twins_dialog import TwinsDialog
from gradstudio.gui.services.context import Context
from gradstudio.gui.shell.speed_slider import SpeedSlider
from gradstudio.gui.user_settings import TWO_FUTURES

if TYPE_CHECKING:
    from gradstudio.gui.plots.plot_stack import PlotStack  # pyqtgraph, for which the first paint does not wait


def edit(context: Context) -> tuple[Entry, ...]:
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


def run(context: Context, plots: Callable[[], PlotStack]) -> tuple[Entry, ...]:
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


def replay(context: Context, plots: Callable[[], PlotStack]) -> tuple[Command, ...]:
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


def speed(speed: SpeedSlider) -> tuple[Command, ...]:
    return (
        Command("slower", "Slow down", speed.slow_down, "Ctrl+Down", "Makes fewer steps in a second", speed.isEnabled),
        Command("faster", "Speed up", speed.speed_up, "Ctrl+Up", "Makes more steps in a second", speed.isEnabled),
    )
