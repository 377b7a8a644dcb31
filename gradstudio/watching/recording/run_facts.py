"""Facts read from a training at its first step: the title of its run, its model, optimizer, precision and machine."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

import gradstudio
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer
from gradstudio.core.text import LONGEST_TITLE, clean, number, plural, shorten
from gradstudio.core.unknown import is_known
from gradstudio.session.record.run import Run
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.watching.hooks.rank_place import Place
from gradstudio.watching.script.script_names import module_called, name_of
from gradstudio.watching.steps.joined_optimizers import main_of, members_of
from gradstudio.watching.steps.measured_step import MeasuredStep
from gradstudio.watching.steps.script_facts import experiment_of, rate_of

if TYPE_CHECKING:
    from gradstudio.watching.steps.step_observer import Observer

LONGEST_ID = 40  # characters of the script's name in the id of a run


@dataclass(frozen=True)
class Script:
    """The script that is watched."""

    path: Path | None
    arguments: tuple[str, ...] = ()
    name: str = ""

    @property
    def stem(self) -> str:
        """The name of the file in a form that is valid in an id."""
        stem = self.path.stem if self.path else ""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:LONGEST_ID] or "watched"

    def digest(self) -> str:
        """Return the sha256 of the text; "" if it cannot be read."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest() if self.path else ""
        except OSError:
            return ""


def running_script() -> Script:
    """Return the script that this process runs."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Script(Path(file) if file else None, tuple(sys.argv[1:]))


def new_run(
    run_id: str, observer: Observer, script: Script, made: MeasuredStep, layers: tuple[Layer, ...],
    place: Place | None, titles: Counter[str],
) -> Run:  # fmt: skip
    """Return the run that begins with this step, without rows. `titles` counts the titles of the runs of this process,
    and then its own."""
    optimizer = main_of(observer.optimizer)
    experiment = experiment_of(made.settings, optimizer, observer.micro_batches, made.scale)
    called = name_of(_of_all(observer)), name_of(observer.optimizer)
    title, facts = _title_of(observer, script, called, titles), _facts_of(observer, made, layers, called, place)
    source = WatchedScript(
        clean(script.path.name if script.path else ""), tuple(map(clean, script.arguments)), script.digest(),
        observer.options.every, tuple((key, clean(value)) for key, value in facts),
    )  # fmt: skip
    return Run(Preset(id=script.stem, title=title, experiment=experiment), experiment, id=run_id, watched=source)


def _title_of(observer: Observer, script: Script, called: tuple[str, str], titles: Counter[str]) -> str:
    """Return the requested title, or 'gan.py: Generator netG'; unique among the runs of the process."""
    given = observer.name or script.name
    parts = [given] if given else [f"{script.path.name if script.path else 'Watched training'}:"]
    variable, optimizer = called
    if not given and (module := module_called(variable)) is not None:
        parts.append(f"{type(module).__name__} {variable}")
    elif not given:
        names = (f"{type(model).__name__} {name_of(model)}".strip() for model in observer.models_in_script)
        parts.append(", ".join(names))
    title = shorten(" ".join(filter(None, parts)).removesuffix(":"), LONGEST_TITLE - 20)
    if title in titles and optimizer:
        title = shorten(f"{title}, {optimizer}", LONGEST_TITLE - 6)
    return _not_taken(title, titles)


def _facts_of(
    observer: Observer,
    measured_step: MeasuredStep,
    layers: tuple[Layer, ...],
    called: tuple[str, str],
    place: Place | None,
) -> list[tuple[str, str]]:
    """Return the facts read from the script's training, as name and value. `called` are the script's names for the
    model and the optimizer, "" for an unknown one."""
    optimizer, settings = observer.optimizer, measured_step.settings
    numbers = plural(sum(layer.size for layer in layers), "number", "numbers")
    kinds = dict.fromkeys(map(_with_knobs, members_of(optimizer)))
    kind = " and ".join(type(model).__name__ for model in observer.models_in_script) or "not found"
    facts = [
        ("model", f"{kind}, {numbers} in {plural(len(observer.layers), 'tensor', 'tensors')}"),
        ("optimizer", " and ".join(kinds) or "none: updates by hand"),
        ("precision", settings.dtype + _scale_in_words(measured_step.scale)),
        ("clipping", f"{settings.clipping} {settings.limit:g}" if settings.clipping != "none" else "none heard"),
    ]  # fmt: skip
    facts += [(f"{what} variable", name) for what, name in zip(("model", "optimizer"), called, strict=True) if name]
    rates = [rate_of(each) for each in optimizer.param_groups] if optimizer else []
    if len(set(rates)) > 1 and all(map(is_known, rates)):
        text = f"{number(min(rates))} to {number(max(rates))} in {len(rates)} groups of parameters"
        facts.append(("learning rates", f"{text}; the curve shows the rate of the first"))
    facts += place.facts if place is not None else []
    if observer.micro_batches > 1:
        facts.append(("accumulation", f"{observer.micro_batches} backward passes a step"))
    return facts


def environment_of(observer: Observer) -> dict[str, str]:
    """Return the environment of the training."""
    device = observer.parameters.tensors[0].device
    return {
        "gradstudio": gradstudio.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": _platform(),
        "device": str(device),
        "threads": str(torch.get_num_threads()),
    }


def _of_all(observer: Observer) -> nn.Module | None:
    """Return the model that has all trained parameters; None if none has."""
    if len(models := observer.models_in_script) != 1:
        return None
    own = {id(tensor) for tensor in models[0].parameters()}
    return models[0] if own.issuperset(map(id, observer.parameters.tensors)) else None


def _with_knobs(optimizer: Optimizer) -> str:
    """Return 'SGD(lr=0.1)'."""
    group = optimizer.param_groups[0]
    shown = [f"{key}={group[key]}" for key in ("lr", "momentum", "betas", "weight_decay") if group.get(key)]
    return f"{type(optimizer).__name__}({', '.join(shown)})"


def _scale_in_words(scale: float) -> str:
    """Return the text about the loss scale that follows the number format; "" for none."""
    if not is_known(scale):
        return ", several loss scales in a step"
    return f", loss scale {number(scale)}" if scale != 1 else ""


def _platform() -> str:
    """Return the operating system. `platform.platform` starts a program for that, which a script may notice, and makes
    Python forget which warnings it has shown."""
    system = platform.uname()
    return f"{system.system}-{system.release}-{system.machine}"


def _not_taken(title: str, titles: Counter[str]) -> str:
    """Return a title with a number after it if it is already used, and count it."""
    own = title
    while own in titles:
        titles[title] += 1
        own = f"{title} ({titles[title]})"
    titles[own] += 1
    return own
