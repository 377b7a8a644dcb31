"""The check of a studio file before it is trained: the model is built, two batches are drawn, and a loss and its
gradient are computed. It runs in a separate process (session/own_model.py), which a file may hang or end."""

from __future__ import annotations

import faulthandler
import inspect
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core import presets, trust
from gradstudio.core.check_note import ASKED, NOTE, TRACES, CheckNote
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.studio_file import StudioFile, StudioFileError
from gradstudio.engine import devices, memory, random_state, runtime
from gradstudio.engine.generators import generator
from gradstudio.engine.models.state import preserve_state
from gradstudio.engine.own_model import trees
from gradstudio.engine.own_model.line_at_work import LineAtWork, in_words, line_at_work, line_of_fault
from gradstudio.engine.own_model.program import WENT_ON, describe_exception
from gradstudio.engine.own_model.subject import OwnModel
from gradstudio.engine.passes.flat import Flat

ROOM = 0.7  # share of the free memory that a file may use in the check
LONG = 10  # seconds of a file beyond which it is not run a second time, as it would use up too much of the limit
LEFT_ALONE = 5  # seconds by which the process may exceed its limit before the program would have killed it
ROUNDING = 1e-3  # relative, of a loss that an accelerator adds up in another order
FORKED = 2.0  # seconds allowed for such a process
_end = os._exit  # its state before the file has run


def main(folder: Path, limit: float) -> None:
    """Check the experiment that a folder contains as TOML, below a secret. The answer goes into the note there. If the
    file takes longer than `limit` seconds, or crashes, its traceback is written there too."""
    path = folder / ASKED
    secret, _, text = path.read_text(encoding="utf-8").partition("\n")
    path.unlink()
    note = CheckNote(folder / NOTE, secret)
    experiment = presets.parse(text, Path("checked")).experiment
    file = experiment.studio_file
    assert file is not None
    trust.agree_here(file.sha256, *file.hashes(experiment.model_file))  # or the user has not agreed to it
    if experiment.run.device == "cpu" or devices.resolve("auto") == "cpu":
        limit_memory()  # an accelerator's driver reserves more addresses than there is memory
    process, forks = os.getpid(), forks_of(file.name)
    with (folder / TRACES).open("wb") as traces:
        faulthandler.enable(traces)
        faulthandler.dump_traceback_later(limit, file=traces)
        # a file that runs forever ends, even if the program that started the check was killed
        if hasattr(signal, "alarm"):
            signal.alarm(ceil(limit) + LEFT_ALONE)
        note.say_ready()
        LineAtWork(file.name, note).follow()
        error = fault(experiment)
        sys.settrace(None)
        if os.getpid() != process:
            _end(WENT_ON)
        if not error and forks and a_fork_returned():
            error = f"{file.name}{forks[0]}: it forks its process, and both go on; wanted: a file that stays in one"
        note.answer(error)
        _end(0)  # whatever threads the file has started


def forks_of(name: str) -> list[str]:
    """Return a list that receives the line from which the file forks this process."""
    lines: list[str] = []
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_parent=lambda: lines.append(in_words(line_at_work(name, inspect.currentframe()))))
    return lines


def a_fork_returned() -> bool:
    """Return whether a process that the studio file forked has come back from it, so that this program runs twice. A
    worker process of the file, such as one of a data loader, exits inside it."""
    end = time.monotonic() + FORKED
    while time.monotonic() < end:
        try:
            number, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if number and os.waitstatus_to_exitcode(code) == WENT_ON:
            return True
        time.sleep(0.01)
    return False


def fault(experiment: Experiment) -> str:
    """Return why the studio file of an experiment cannot be trained, in one line; "" if it can."""
    assert experiment.studio_file is not None
    try:
        check(experiment.studio_file, experiment, devices.resolve(experiment.run.device))
    except KnobError as found:
        return str(found)
    except BaseException as found:  # nothing but a file raises here, and it may raise anything
        name = experiment.studio_file.name
        line = in_words(line_of_fault(name, found))
        if runtime.out_of_memory(found):
            return f"{name}{line}: its model or a batch does not fit into memory; wanted: less than is free"
        return f"{name}{line}: {describe_exception(found)}"
    return ""


def check(file: StudioFile, knobs: Experiment, device: str = "cpu") -> None:
    """Raise KnobError if the file cannot be trained on a device."""
    runtime.prepare(knobs.run.deterministic)
    with random_state.preserve(device):
        torch.manual_seed(knobs.run.seed)
        begun = time.monotonic()
        subject = OwnModel(file, knobs, device)
        model = subject.build(knobs)
        drawn = _batch_of_its_generator(subject, knobs)
        if time.monotonic() - begun < LONG:
            _check_that_it_begins_alike(subject, model, drawn, knobs)
        subject.task.check_noise(knobs.problem, subject.task.example())
        batch = trees.map_tensors(drawn, lambda tensor: devices.to_device(tensor, device))
        before, tensors = random_state.states(device), [tensor.clone() for tensor in trees.tensors(batch)]
        Flat(subject.parameters(model))  # gives them gradients, as in training
        with preserve_state(model):
            loss = subject.compute(model, (batch,), knobs).loss
            loss.backward()
        random_state.restore(before, device)
        _check_that_it_repeats(subject, model, batch, tensors, loss.detach(), knobs)
    subject.program.leave_torch_as_it_was()


def _check_that_it_repeats(
    subject: OwnModel, model: nn.Module, batch: Any, tensors: list[Tensor], loss: Tensor, knobs: Experiment
) -> None:
    """Raise StudioFileError if the loss of the same batch, whose tensors were `given`, differs now."""
    program = subject.program
    changes_it = program.error(
        "compute_loss changes the batch that it is given; wanted: the batch as it was, as it may be used again",
        "compute_loss",
    )
    try:
        again = subject.compute(model, (batch,), knobs).loss.detach()
    except StudioFileError:
        if _alike(trees.tensors(batch), tensors):
            raise
        raise changes_it from None
    if _same(loss, again) or (subject.device != "cpu" and torch.allclose(loss, again, rtol=ROUNDING)):
        return
    if not _alike(trees.tensors(batch), tensors):
        raise changes_it
    raise program.error(
        f"compute_loss gave {loss.item():.9g}, then {again.item():.9g} for the same batch and weights; wanted: random "
        "numbers from torch alone, and no state outside the model", "compute_loss",
    )  # fmt: skip


def _check_that_it_begins_alike(subject: OwnModel, model: nn.Module, batch: Any, knobs: Experiment) -> None:
    """Raise StudioFileError if running the file again from the same seed gives another model or batch: a branch of the
    run, and its program, would train that other one."""
    program = subject.program
    with random_state.preserve(subject.device):
        torch.manual_seed(knobs.run.seed)
        again = OwnModel(program.file, knobs, subject.device)
        other = again.build(knobs)
        torch.manual_seed(knobs.run.seed + 1)  # which no batch may depend on
        drawn = again.program.batch(knobs.problem.batch_size, generator(knobs.run.seed, "order"))
    if not _alike([*model.parameters(), *model.buffers()], [*other.parameters(), *other.buffers()]):
        raise program.error(
            "build_model gave another model for the same seed; wanted: random numbers from torch alone", "build_model"
        )
    if not _alike(trees.tensors(batch), trees.tensors(drawn)):
        raise program.error(
            "get_batch gave another batch once the file was run again; wanted: random numbers from `generator` alone",
            "get_batch",
        )


def _batch_of_its_generator(subject: OwnModel, knobs: Experiment) -> Any:
    """Return a batch; StudioFileError if its content does not depend on the generator alone."""
    source = generator(knobs.run.seed, "order")
    start, size = source.get_state(), knobs.problem.batch_size
    batch = subject.program.batch(size, source)
    taken = sum(tensor.nbytes for tensor in trees.tensors(batch))
    if not memory.fits(int(taken / ROOM)):
        raise subject.program.error(
            f"a batch takes {taken / 1e9:,.1f} GB; allowed: what fits into the {memory.free() / 1e9:,.1f} GB that are "
            "free", "get_batch",
        )  # fmt: skip
    source.set_state(start)
    again = subject.program.batch(size, source)
    if not _alike(trees.tensors(batch), trees.tensors(again)):
        raise subject.program.error(
            "get_batch gave another batch for the same state of its generator; wanted: random numbers from "
            "`generator` alone", "get_batch",
        )  # fmt: skip
    return batch


def _alike(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(some) == len(others) and all(_same(*pair) for pair in zip(some, others, strict=True))


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal; NaN equals NaN."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(
        torch.nan_to_num(one), torch.nan_to_num(other)
    )  # fmt: skip


def limit_memory() -> None:
    """Limit this process to a share of the free memory: a system that runs out of memory may kill another one."""
    try:
        import resource
    except ImportError:  # Windows
        return
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    most, hard = pages * resource.getpagesize() + int(ROOM * memory.free()), resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(OSError, ValueError):  # somebody has set a lower limit
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
