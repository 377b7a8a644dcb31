"""python -m benchmarks.gallery [ID ...]: trains each bundled preset as it stands and with its fix, and writes their
losses into resources/gallery.json, from which the gallery draws its pictures. Without an id: those that are missing or
old."""

from __future__ import annotations

import json
import math
import sys
import time
from itertools import pairwise

import numpy as np

from gradstudio.core import files, gallery, presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker


def main(asked: list[str]) -> int:
    found = json.loads(gallery.PICTURES.read_text()) if gallery.PICTURES.exists() else {}
    known = {path.stem: presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))}
    if unknown := [name for name in asked if name not in known]:
        print(f"no bundled preset {unknown[0]}", file=sys.stderr)
        return 2
    made = {name: each for name, each in found.items() if name in known}
    for name, preset in known.items():
        if name in asked or (not asked and made.get(name, {}).get("digest") != gallery.digest(preset)):
            made[name] = of(preset)
            print(f"{name}: {made[name]['broken']['status']}, {made[name]['seconds']} s", flush=True)
            lines = [f"{json.dumps(id)}: {json.dumps(made[id])}" for id in sorted(made)]
            gallery.PICTURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


def of(preset: Preset) -> dict:
    """Return the picture of a preset as the file has it."""
    fix = preset.promise.fix if preset.promise else []
    broken, seconds = trained(preset, preset.experiment)
    healed, healing = trained(preset, preset.experiment.with_texts(fix)) if fix else (None, seconds)
    return {
        "digest": gallery.digest(preset),
        "seconds": round(max(seconds, healing), 1),
        "broken": curve(broken),
        "healed": healed and curve(healed),
    }


def trained(preset: Preset, experiment: Experiment) -> tuple[Run, float]:
    """Return a run that is over, and the CPU time that it took."""
    run, began = Run(preset, experiment, preset.timeline), time.process_time()
    Worker(run).run()
    return run, time.process_time() - began


def curve(run: Run) -> dict:
    """Return the largest finite loss in each part of the steps that were made, with three digits."""
    loss = run.history.column("loss")
    edges = np.linspace(0, len(loss), gallery.POINTS + 1).astype(int)
    parts = [loss[first : max(last, first + 1)] for first, last in pairwise(edges)]
    return {"status": run.status, "loss": [_largest(part) for part in parts]}


def _largest(part: np.ndarray) -> float | None:
    finite = part[np.isfinite(part)]
    if not len(finite):
        return None
    value = float(finite.max())
    return float(f"{value:.3g}") if math.isfinite(value) else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
