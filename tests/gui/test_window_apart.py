"""A window whose runs train in a process of their own: it never loads torch, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE

PROGRAM = """
import json, os, sys, time
from gradstudio.core import presets
from gradstudio.gui import app
from gradstudio.gui.window import Window
from gradstudio.worker import worker_process

qt = app.application()
window = Window(presets.load("rnn-explosion"))
window.machine.begin()
window.show()
window.furnish()
window.heartbeat.start(settled=False)
window.machine.look()
simulator = window.simulator

def until(condition):
    end = time.monotonic() + 300
    while not condition():
        qt.processEvents()
        time.sleep(0.002)
        assert time.monotonic() < end, "it did not happen"

simulator.play()
until(lambda: simulator.run.over and window.machine.ready)
until(lambda: window.fixes.trials is not None and not window.fixes.trials.is_alive())
until(lambda: window.fixes.future is not None)
simulator.rewind(30)
until(lambda: simulator.run.status == "paused" and simulator.run.replayed is None)
look = simulator.trained_by.layers(simulator.run, 20)
look.start()
until(lambda: not look.is_alive())
window.refresh(whole=True)
[worker] = worker_process.alive()
began = time.monotonic()
window.close()
answer = {
    "status": simulator.family.members[simulator.run.parent].status, "look": look.problem, "seconds": time.monotonic() - began,
    "loaded": [name for name in sys.modules if name.partition(".")[0] == "torch" or "gradstudio.engine" in name],
    "healed": sum(trial.is_healed for trial in window.fixes.trials.trials), "devices": window.machine.devices,
    "left": os.path.exists(f"/proc/{worker.pid}"),
}
print(json.dumps(answer), flush=True)
os._exit(0)
"""


def test_a_window_never_loads_torch_and_leaves_no_process(tmp_path: Path) -> None:
    user = {f"XDG_{name}_HOME": str(tmp_path) for name in ("DATA", "CONFIG", "CACHE", "STATE")}
    surroundings = (
        os.environ | user | {"GRADSTUDIO_WORKER": "process", "GRADSTUDIO_LIBRARY": str(tmp_path / "runs.sqlite3")}
    )
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=surroundings, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout.splitlines()[-1])
    assert found["status"] == "nonfinite" and found["look"] == "" and found["healed"] > 0
    assert found["loaded"] == [] and found["devices"][0][0] == "cpu"
    assert not found["left"]
