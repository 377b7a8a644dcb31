"""Takes the pictures of the documentation from the program itself, in fixed states: `make pictures`."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from gradstudio.gui.window import Window

FOLDER = Path(__file__).resolve().parent / "pictures"
SIZE = (1440, 900)
PATIENCE = 300.0  # seconds
THEMES = ("light", "dark")


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"QT_QPA_PLATFORM": "offscreen", "GRADSTUDIO_LIBRARY": str(Path(home, "runs.sqlite3"))}
        os.environ |= {f"XDG_{name}_HOME": home for name in ("DATA", "CONFIG", "CACHE", "STATE")}
        take()
    return 0


def take() -> None:
    from PySide6.QtWidgets import QApplication

    from gradstudio.core import presets
    from gradstudio.gui import app
    from gradstudio.gui.window import Window

    app.application()
    FOLDER.mkdir(exist_ok=True)
    window = Window(presets.load("rnn-explosion"))
    window.resize(*SIZE)
    window.show()
    window.furnish()
    window.heartbeat.start(settled=False)
    window.machine.look()
    wait(lambda: window.machine.ready)
    window.toggle_gallery()
    wait(lambda: len(window.gallery_page.cards) > 50)
    picture(window, "gallery")
    window.show_plots()
    window.side.show_page("diagnosis")
    window.controls.run_or_pause()
    wait(lambda: window.simulator.run.over)
    picture(window, "diverged")
    show_layers(window)
    window.commands.commands["rewind_to_healthy"].call()
    wait(lambda: window.simulator.run.status == "paused")
    window.simulator.set_speed(math.inf)
    window.simulator.set("clipping.kind", "norm")
    window.controls.run_or_pause()
    wait(lambda: window.simulator.run.over)
    picture(window, "healed")
    show_watched(window)
    show_map(window)
    window.close()
    QApplication.processEvents()


def show_layers(window: Window) -> None:
    """Turn the pages of the card below the curves, at the step before the NaN."""
    card = window.plots.layer_card
    for page in ("layers", "cliff"):
        card.show_page(page)
        wait(
            lambda page=page: (
                page == "layers" or (card.cliff.picture.cliff and card.cliff.legend.text().count("·") == 0)
            )
        )
        picture(window, page, card)
    card.show_page("network")


def show_watched(window: Window) -> None:
    """Watch the script of the page that teaches it, and open its run."""
    page = (FOLDER.parent / "first_watch.md").read_text(encoding="utf-8")
    script, result = (Path(os.environ["XDG_DATA_HOME"], name) for name in ("train.py", "run.json"))
    script.write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    watch = [sys.executable, "-m", "gradstudio", "watch", "--quiet", "--json", "--out", str(result), str(script)]
    subprocess.run(watch, check=True)
    run = json.loads(result.read_text(encoding="utf-8"))[0]["run"]
    window.runs.open(run)
    wait(lambda: window.simulator.run.id == run)
    window.side.show_page("diagnosis")
    picture(window, "watched")


def show_map(window: Window) -> None:
    """Map the rate and the initial weights of a healthy network."""
    from gradstudio.session.map.map_plan import read_plan

    window.controls.open_preset("healthy-mlp")
    wait(lambda: window.simulator.preset.id == "healthy-mlp")
    preset = window.simulator.preset
    short = preset.model_copy(update={"experiment": preset.experiment.with_value("run.steps", 100)})
    window.commands.commands["page_map"].call()
    window.map.make(read_plan(short, "optimizer.lr=0.01:30:log", "model.init_gain=0.1:10:log", 24, "", 1, full=False))
    wait(lambda: window.side.map.state.text().startswith("Whole"))
    picture(window, "map")


def picture(window: Window, name: str, part: QWidget | None = None) -> None:
    """Write what the window or a part of it shows, in both themes."""
    from gradstudio.gui.theme import theme

    for mode in THEMES:
        theme.set_mode(mode)
        drawn = threading.Event()
        threading.Timer(2.0, drawn.set).start()  # until everything is drawn anew
        wait(drawn.is_set)
        (part or window).grab().save(str(FOLDER / f"{name}-{mode}.png"))


def wait(condition: Callable[[], object]) -> None:
    """Let the window live until the condition holds."""
    from PySide6.QtWidgets import QApplication

    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the window did not come to what was to be taken")
        QApplication.processEvents()
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
