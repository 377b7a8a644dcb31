"""The parts of the window after its first one. They include pyqtgraph, which takes long to import, so they are imported
in a thread after the first paint. This creates no Qt object that belongs to a thread."""

from gradstudio.gui.assignment import assignment_files
from gradstudio.gui.assignment.game import Game
from gradstudio.gui.branches.branches_controller import BranchesController
from gradstudio.gui.branches.parent_twin_overlay import ParentTwinOverlay
from gradstudio.gui.crash import crash_page
from gradstudio.gui.diagnosis.fixes_controller import FixesController
from gradstudio.gui.export import plot_menu
from gradstudio.gui.gauges.gauges_controller import GaugesController
from gradstudio.gui.map.map_controller import MapController
from gradstudio.gui.memory.memory_controller import MemoryController
from gradstudio.gui.plots.cliff_controller import CliffController
from gradstudio.gui.plots.layer_controller import LayerController
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.plots.time_step_controller import TimeStepController
from gradstudio.gui.runs.runs_controller import RunsController
from gradstudio.gui.services.studio_file_watch import StudioFileWatch
from gradstudio.gui.shell.side_panel import SidePanel

__all__ = [
    "BranchesController",
    "CliffController",
    "FixesController",
    "Game",
    "GaugesController",
    "LayerController",
    "MapController",
    "MemoryController",
    "ParentTwinOverlay",
    "PlotStack",
    "RunsController",
    "SidePanel",
    "StudioFileWatch",
    "TimeStepController",
    "assignment_files",
    "crash_page",
    "plot_menu",
]
