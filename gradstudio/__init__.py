"""GradStudio: a flight simulator for training stability. `gradstudio.watch(model, optimizer)` watches a training of
your own; torch is imported with its first use.
Layers: gui -> session -> engine -> core, with commands and watching beside gui. May use commands, watching, gui,
session and core; never engine."""

TYPE_CHECKING = False  # nothing is imported here: `python -m gradstudio` would look into the current folder for it
if TYPE_CHECKING:
    from typing import Any

    from gradstudio.watching.training_watch import watch

__version__ = "0.1.0"
__all__ = ["__version__", "watch"]


def __getattr__(name: str) -> "Any":
    if name == "load_ipython_extension":
        from gradstudio.watching.cell_magic import load_ipython_extension

        return load_ipython_extension
    if name == "watch":
        from gradstudio.watching.training_watch import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
