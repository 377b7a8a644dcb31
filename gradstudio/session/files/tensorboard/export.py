"""The TensorBoard export of a run. TensorBoard need not be installed.

tensorboardX would also work, but it imports torch if that is installed, and it writes in a thread that loses data on a
full disk."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

import gradstudio
from gradstudio.core import files
from gradstudio.core.history import BLOCK, COLUMNS
from gradstudio.core.text import one_line
from gradstudio.core.unknown import known_mask
from gradstudio.session.files import run_files
from gradstudio.session.files.output import write_together
from gradstudio.session.files.tensorboard import messages, records
from gradstudio.session.record.run import Run
from gradstudio.session.words.story import headline, tell

MOST_HISTOGRAMS = 200  # of each kind, spread over the run
SCALARS = tuple(name for name in COLUMNS if name != "step")


def export(run: Run, folder: Path) -> Path:
    """Write the run's event file into the folder, atomically, and return its path. An earlier file of the same run is
    replaced. OutputError if it cannot be written.

    Every column is a scalar at the steps that measured it, and so is every layer's gradient norm (`grad_norm/<layer>`);
    the story, the experiment with its knobs and the events are texts. Histograms show the spread of gradient norm,
    weight norm and update ratio over the layers, as log10 of those that are finite and nonzero. NaN and Inf are
    preserved in the scalars. TensorBoard's scalars have 32 bits: values beyond 3.4e38 become Inf."""
    return write_together({folder / name: content for name, content in event_file(run).items()})[0]


def event_file(run: Run) -> dict[str, files.Content]:
    """Return the run's event file by its name."""
    name = re.sub(r"[^\w.-]+", "-", run.id)[:100]
    return {f"events.out.tfevents.{run.started:.0f}.{name}": partial(_write, run)}


def _write(run: Run, file: BinaryIO) -> None:
    count = len(run.history)  # a run that is still training grows
    texts = [messages.event(run.started, 0, messages.text(tag, text)) for tag, text in _texts(run).items()]
    file.write(records.pack([messages.opening(run.started), *texts]))
    now = run.started
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        moments = now + run.history.column("step_seconds", start, stop).cumsum()  # without pauses
        file.write(records.pack(list(_rows(run, start, stop, count, moments))))
        now = float(moments[-1])


def _rows(run: Run, start: int, stop: int, count: int, moments: np.ndarray) -> Iterator[bytes]:
    """Yield one event for each step, with all its measurements."""
    history = run.history
    columns = {name: history.column(name, start, stop) for name in SCALARS}
    columns |= {f"script/{name}": history.logged_column(name, start, stop) for name in history.logged_names}
    gaps = {name: there for name, values in columns.items() if not (there := known_mask(values)).all()}
    whole = [name for name in SCALARS if name not in gaps]
    tags = [*whole, *(f"grad_norm/{one_line(layer.name)}" for layer in history.layers)]
    table = np.empty((stop - start, len(tags)), np.float32)
    with np.errstate(over="ignore"):
        for index, name in enumerate(whole):
            table[:, index] = columns[name]
    table[:, len(whole) :] = history.layer_metric("grad_norm", start, stop)
    summaries = messages.scalars(tags, table)
    every = -(-count // MOST_HISTOGRAMS)
    for row, (moment, summary) in enumerate(zip(moments.tolist(), summaries, strict=True)):
        step, more = start + row, b""
        for name, there in gaps.items():
            if there[row]:
                more += messages.scalars([name], columns[name][row : row + 1, None]).tobytes()
        if step % every == 0:
            more += b"".join(_spreads(run, step))
        yield messages.event(moment, step, summary.tobytes() + more)


def _spreads(run: Run, step: int) -> Iterator[bytes]:
    """Yield histograms of the layers' metrics at a step."""
    for metric in ("grad_norm", "weight_norm", "update_ratio"):
        values = run.history.layer_metric(metric, step, step + 1)[0].astype(float)
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            yield messages.histogram(f"layers/log10 {metric}", np.log10(values))


def _texts(run: Run) -> dict[str, str]:
    """Return the texts as Markdown: indented, so that nothing in a title or a name is taken for markup."""
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    about = [
        run.title,
        f"{headline(run)}, GradStudio {gradstudio.__version__}, run {run.id}, started {started}",
        "",
        tell(run),
    ]
    about += ["", *(f"{name}: {value}" for name, value in run.environment.items())]
    events = [f"step {event.step:,}: {event.text}" for event in sorted(list(run.events), key=lambda event: event.step)]
    texts = {"run": about, "experiment": run_files.experiment_toml(run).splitlines(), "events": events}
    return {tag: "\n".join("    " + one_line(line) for line in lines) for tag, lines in texts.items()}
