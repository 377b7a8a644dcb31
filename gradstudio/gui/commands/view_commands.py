"""The commands of what is on view: plots, layers, panels, theme and the projector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gradstudio.gui.commands.command import Command, Entry, StandardKey
from gradstudio.gui.knobs.knob_panel import KnobPanel
from gradstudio.gui.services.context import Context
from gradstudio.gui.shell.pages import PAGE_HELP, Page
from gradstudio.gui.shell.projector_view import ProjectorView
from gradstudio.gui.shell.window_columns import Columns
from gradstudio.gui.theme import Mode, theme

if TYPE_CHECKING:
    from gradstudio.gui.plots.plot_stack import PlotStack  # pyqtgraph, for which the first paint does not wait


def plots(plots: Callable[[], PlotStack]) -> tuple[Command, ...]:
    return (
        Command("fit", "Show whole run", lambda: plots().show_whole(), "Home",
                "Shows every step of the run in the plots"),
        Command("zoom_back", "Zoom back", lambda: plots().zoom_back(), "Alt+Left",
                "Shows the steps that were on view before the latest zoom"),
        Command("zoom_forward", "Zoom forward", lambda: plots().zoom_forward(), "Alt+Right",
                "Shows the steps that Zoom back left"),
        Command("time_axis", "Show plots over time",
                lambda: plots().choose_axis("steps" if plots().is_over_time else "time"), "Ctrl+Shift+X",
                "Draws all plots over the time that training took, or over steps again",
                checked=lambda: plots().is_over_time),
        Command("directions", "Show directions", lambda: plots().toggle_directions(), "Ctrl+D",
                "Shows the accuracy on the test set, and the cosines between gradient, clipped gradient and update",
                checked=lambda: plots().has("directions") and plots().directions.isVisible()),
    )  # fmt: skip


def layer(context: Context, plots: Callable[[], PlotStack], show_plots: Callable[[], bool]) -> tuple[Command, ...]:
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
        Command("layer", "Show layer", on_view(lambda: plots().toggle_layer()), "Ctrl+9",
                "Shows what is measured of one layer, and its weights, gradient and update at a step",
                checked=lambda: plots().layer_open and plots().isVisible()),
        Command("previous_layer", "Previous layer", on_view(lambda: plots().turn_layer(-1)), "Alt+Up",
                "Shows the page of the layer above"),
        Command("next_layer", "Next layer", on_view(lambda: plots().turn_layer(1)), "Alt+Down",
                "Shows the page of the layer below"),
    )  # fmt: skip


def look() -> tuple[Entry, ...]:
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


def panels(context: Context, columns: Columns, knobs: KnobPanel, show_plots: Callable[[], bool]) -> tuple[Entry, ...]:
    window = context.parent

    def page(name: Page, keys: str) -> Command:
        def toggle() -> None:
            columns.toggle_page(name, only_show=show_plots())  # it is not visible behind the gallery

        shown = partial(columns.shows, name)
        return Command(f"page_{name}", f"Show {name}", toggle, keys, PAGE_HELP[name], checked=shown)

    def toggle_full_screen() -> None:
        window.showNormal() if window.isFullScreen() else window.showFullScreen()

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
        Command("full_screen", "Show full screen", toggle_full_screen, "F11",
                "Gives the window the whole screen", checked=window.isFullScreen),
        Command("reset_layout", "Reset layout", columns.reset, help="Shows every column, as wide as at first"),
    )  # fmt: skip


def projector(projector: ProjectorView, show_plots: Callable[[], bool]) -> tuple[Entry, ...]:
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
