"""A crash file from the contents of a recorder. It contains no path, no argument and no environment variable."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import gradstudio
from gradstudio.core.provenance import ProvenanceUnknown
from gradstudio.core.strict_json import in_json
from gradstudio.core.text import without_folders
from gradstudio.crash import recorded_training as training
from gradstudio.crash.call_values import CannotTell, to_json
from gradstudio.crash.recorded_pass import DTYPES
from gradstudio.session.files import crash_file
from gradstudio.session.files.crash_file import (
    RecordedBirth,
    RecordedOptimizer,
    RecordedPass,
    RecordedStep,
    Structure,
    TensorToWrite,
)
from gradstudio.watching.births.hooked_module import without_wrappers
from gradstudio.watching.births.replay import needs_other_ranks
from gradstudio.watching.hooks.guard import replaying
from gradstudio.watching.hooks.rank_place import current_place
from gradstudio.watching.measuring.sharded_parameters import are_sharded, local_part, whole_shapes
from gradstudio.watching.recorder.kept_state import KeptState, KeptStep
from gradstudio.watching.recorder.program_maker import ProgramMaker, temporary_weights, why_no_program
from gradstudio.watching.recorder.recorder import Recorder, is_eager_beside

_DTYPES = {dtype: name for name, dtype in DTYPES.items()}
_PLAIN = (int, float, bool, str, type(None))


class CrashWriter:
    """Writes one crash file of a training."""

    def __init__(self, recorder: Recorder, models: dict[nn.Module, str]) -> None:
        """`models` are the trained ones, each with its name; "" for a single one."""
        self._recorder, self._models = recorder, models
        self._tensors: dict[str, Tensor] = {}
        self._of_id: dict[int, tuple[str, Tensor]] = {}  # the tensors are kept alive, so that their ids stay unique
        self._names: dict[int, str] = {}  # of weights and buffers, by id

    def write(self, path: Path, reason: str, run: str, script: Path | None, *, is_broken: bool) -> Structure | None:
        """Write the file; None if that of rank 0 has all that this rank knows. `is_broken`: because its step is not
        finite. OSError on failure."""
        self._is_broken = is_broken
        first, *others = self._recorder.usable_states
        state, structure = first, self._structure(first, reason, run, script)
        if structure.unknown and others:
            self._tensors, self._of_id, self._names = {}, {}, {}
            state = others[0]
            structure = self._structure(state, reason, run, script)
        tensors = [_tensor_to_write(name, tensor) for name, tensor in self._tensors.items()]
        if (place := current_place()) is not None:
            structure.rank, structure.ranks = place.rank, place.ranks
            structure.whole = {
                self._names[id(each)]: list(shape)
                for each, shape in zip(state.weights, whole_shapes(state.weights), strict=True)
                if are_sharded([each])
            }
            if place.rank and structure.unknown and not structure.whole:
                return None
        structure.reason, structure.unknown = map(without_folders, (structure.reason, structure.unknown))
        crash_file.write(path, structure, tensors)
        return structure

    def _structure(self, state: KeptState, reason: str, run: str, script: Path | None) -> Structure:
        weights = self._weights(state)
        device = state.weights[0].device.type
        structure = Structure(
            reason=reason, step=state.steps[-1].number, run=run, script=script.name if script else "",
            script_sha256=_digest(script), code=_code(self._models), device=device, weights=weights,
            trained=[self._names[id(each)] for each in state.weights],
            optimizers=[self._optimizer(each, plan) for each, plan in state.optimizers],
            versions={
                "gradstudio": gradstudio.__version__, "torch": torch.__version__, "python": platform.python_version(),
                "numpy": np.__version__,
            },
        )  # fmt: skip
        try:
            structure.unknown = self._why_not()
            if not structure.unknown:
                with (
                    replaying(),
                    temporary_weights(state.weights, state.copies_of_weights),
                    training.preserve_random_state(),
                ):
                    for step in state.steps if current_place() is None else state.steps[:1]:
                        structure.steps.append(self._step(step, structure))
        except (CannotTell, ProvenanceUnknown, torch.OutOfMemoryError, RuntimeError, ValueError) as fault:
            structure.unknown = why_no_program(fault)[:1000]
        if not structure.unknown:
            structure.born = self._replay_steps(structure)
        step = None if structure.born is None else _other_step(structure, structure.born, is_broken=self._is_broken)
        if structure.born is not None and step is not None:
            is_finite = structure.born.phase == "none"
            what = "is finite" if is_finite else f"breaks at step {step:,} already"
            why = "the model depends on something that is not in the file"
            if is_finite and current_place() is not None:
                why = "the batch of another rank gave it, and the file of that rank has it"
            structure.unknown = f"made again it {what}: {why}"
        return structure

    def _why_not(self) -> str:
        """Return why no program can be made; "" if one can."""
        if not is_eager_beside([without_wrappers(each) for each in self._models]):
            return "the script compiles more than a whole model, and in that code no call is heard"
        if any(map(needs_other_ranks, self._models)):
            return "a pass of the model takes all ranks"
        return ""

    def _replay_steps(self, structure: Structure) -> RecordedBirth | None:
        """Replay the steps like a reader of the file."""
        try:
            with replaying():
                return training.replay_steps(training.Training(self._recorded(structure), structure.device))
        except Exception as fault:  # from torch, which may lack memory, or from an optimizer
            structure.unknown = f"the step could not be made again: {why_no_program(fault)}"[:1000]
            return None

    def _recorded(self, structure: Structure) -> training.LoadedCrash:
        return training.LoadedCrash(structure, self._tensors.__getitem__)

    # ---- contents

    def _weights(self, state: KeptState) -> dict[str, str]:
        """Name every weight and buffer, and return where each is in the file."""
        copies = {id(each): copy for each, copy in zip(state.weights, state.copies_of_weights, strict=True)}
        names: dict[str, str] = {}
        for model, before in self._models.items():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                own = ".".join(filter(None, (before, name)))
                if id(tensor) not in self._names:
                    self._names[id(tensor)] = own
                    names[own] = self._put(f"weight {own}", copies.get(id(tensor), tensor))
        for place, tensor in enumerate(state.weights):
            if id(tensor) not in self._names:
                own = self._names[id(tensor)] = f"parameter{place}"
                names[own] = self._put(f"weight {own}", copies[id(tensor)])
        return names

    def _optimizer(self, optimizer: Optimizer, plan: list[tuple[Tensor, str, Any]]) -> RecordedOptimizer:
        state: dict[str, dict[str, Any]] = {}
        for weight, key, kept in plan:
            name = self._names.get(id(weight))
            if name is None or not isinstance(kept, (Tensor, int, float, type(None))):
                continue
            is_tensor = isinstance(kept, Tensor)
            state.setdefault(name, {})[key] = self._put(f"optimizer {name} {key}", kept) if is_tensor else kept
        kind = type(optimizer)
        module = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
        groups = [
            [self._names[id(each)] for each in group["params"] if id(each) in self._names]
            for group in optimizer.param_groups
        ]
        return RecordedOptimizer(kind=f"{module}.{kind.__qualname__}", groups=groups, state=state)

    def _step(self, step: KeptStep, structure: Structure) -> RecordedStep:
        passes: list[RecordedPass] = []
        for kept in step.passes:
            maker = ProgramMaker(self._names, self._models, structure.device)
            if kept.log.is_full and len(kept.log.events) >= kept.log.most:
                raise CannotTell("the loss code makes too many calls")
            maker.make(kept)
            if maker.calls not in structure.programs:
                structure.programs.append(maker.calls)
            at = f"step {step.number} pass {len(passes)}"
            tensors = {name: self._put(f"{at} {name}", tensor) for name, tensor in maker.tensors.items()}
            passes.append(
                RecordedPass(
                    program=structure.programs.index(maker.calls), tensors=tensors, root=maker.root, scale=kept.scale
                )
            )
        if not passes:
            raise CannotTell("no backward pass of a step was heard")
        kind, limit = step.clip
        groups = [[_values(group) for group in each] for each in step.groups]
        return RecordedStep(
            number=step.number, passes=passes, groups=groups, clip=kind if kind in ("norm", "value") else "none",
            limit=float(limit), loss=in_json(step.loss), norm=in_json(step.norm),
        )  # fmt: skip

    def _put(self, name: str, tensor: Tensor) -> str:
        """Add a tensor to the file, once, and return its name there."""
        if (known := self._of_id.get(id(tensor))) is not None:
            return known[0]
        part = local_part(tensor)
        if part.layout is not torch.strided or part.dtype not in _DTYPES:
            raise CannotTell(f"{name} is a tensor of a kind that no crash file holds")
        self._of_id[id(tensor)] = name, tensor
        self._tensors[name] = part.detach()
        return name


def _other_step(structure: Structure, born: RecordedBirth, *, is_broken: bool) -> int | None:
    """Return the step at which the replayed steps differ from the recorded ones; None if they agree. `is_broken`: the
    recorded ones are not finite."""
    last, is_scaled = structure.steps[-1], any(each.scale != 1 for each in structure.steps[-1].passes)
    if born.phase == "none":
        agrees = not is_broken and isinstance(last.loss, float) and (is_scaled or isinstance(last.norm, float))
    else:
        (broken,) = [each for each in structure.steps if each.number == born.step]
        # weights that no later batch has used break no later loss
        agrees = broken is last or born.phase == "update" or not isinstance(broken.loss, float)
    return None if agrees else born.step


def _tensor_to_write(name: str, tensor: Tensor) -> TensorToWrite:
    def write(file: BinaryIO) -> None:
        data = tensor.detach().cpu().contiguous().reshape(-1)
        file.write(data.view(torch.uint8).numpy().data if data.numel() else b"")

    return TensorToWrite(name, _DTYPES[tensor.dtype], tuple(tensor.shape), write)


def _values(group: dict[str, Any]) -> dict[str, Any]:
    """Return the plain settings of a parameter group."""
    settings: dict[str, Any] = {}
    for name, value in group.items():
        if isinstance(value, _PLAIN) or (
            isinstance(value, Sequence) and all(isinstance(each, _PLAIN) for each in value)
        ):
            settings[name] = to_json(value, str)
    return settings


def _code(models: dict[nn.Module, str]) -> dict[str, str]:
    """Return the classes of the models that are not torch's, each with the sha256 of its file."""
    kinds = dict.fromkeys(type(module) for model in models for module in model.modules())
    own = [kind for kind in kinds if not kind.__module__.startswith("torch.")]
    hashes: dict[str, str] = {}
    for kind in own[: crash_file.MOST_CLASSES]:
        try:
            path: Path | None = Path(inspect.getfile(kind))
        except (TypeError, OSError):
            path = None
        module = os.path.basename(path) if path and kind.__module__ == "__main__" else kind.__module__
        hashes[f"{module}:{kind.__qualname__}"[:300]] = _digest(path)
    return hashes


def _digest(path: Path | None) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""
