"""Runs the text of a studio file, and calls its three functions. Any error in there is reported in one line, with the
line of the file."""

from __future__ import annotations

import io
import linecache
import os
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core import trust
from gradstudio.core.knobs import Value
from gradstudio.core.studio_file import MODULE, StudioFile, StudioFileError
from gradstudio.core.text import first_line, one_line, shorten
from gradstudio.engine import runtime
from gradstudio.engine.own_model import shared_memory, shared_state, torch_itself, trees
from gradstudio.engine.own_model.line_at_work import in_words, line_of_fault

_LONGEST = 200  # characters of an error of the file
WENT_ON = 77  # exit code of a process that was forked and returned from the file
_end = os._exit  # its state before the file has run
_MOST_DECORATORS = 20  # of a function, below which its own first line is searched for


class Program:
    """A studio file that was run, with its functions. Each instance has its own namespace: two trainers share none."""

    def __init__(self, file: StudioFile, values: Mapping[str, Value]) -> None:
        """Run the text; StudioFileError if the user has not agreed to that, or if it fails. `values` are those of its
        knobs that differ from their defaults."""
        if not trust.is_trusted(file.sha256, *file.hashes(values)):
            raise StudioFileError(
                f"{file.name} was never agreed to (SHA-256 {file.sha256[:16]}…); read it, then run it with --trust"
            )
        self.file, self._values, self._folder = file, values, shared_state.folder()
        self._process = os.getpid()
        torch_itself.remember()
        self._module = module = ModuleType(MODULE)
        os.environ.setdefault("MPLBACKEND", "agg")  # a plot opens no window here, where only the main thread may
        # where torch.jit.script and inspect look for the text of a function; without a time they read no file
        linecache.cache[file.name] = (len(file.text), None, list(io.StringIO(file.text, newline=None)), file.name)
        self._guard("", lambda: exec(compile(file.text, file.name, "exec", dont_inherit=True), vars(module)))
        self.leave_torch_as_it_was()

    def model(self) -> nn.Module:
        """Build the model; StudioFileError if it cannot be trained."""
        model = self._call("build_model")
        self.leave_torch_as_it_was("build_model")
        if not isinstance(model, nn.Module):
            raise self.error(f"build_model returned {_kind(model)}; wanted: a torch.nn.Module", "build_model")
        trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        if not trained:
            raise self.error("the model has no parameter that requires a gradient; wanted: at least one", "build_model")
        for name, weight in trained:
            if why := _why_not_trained(name, weight):
                raise self.error(why, "build_model")
        for name, buffer in model.named_buffers():
            if buffer.layout != torch.strided or buffer.is_nested:
                raise self.error(f"{name} is a sparse or nested buffer; wanted: a dense tensor", "build_model")
        if both := shared_memory.find_shared(model, vars(self._module)):
            raise self.error(f"{both} share their memory; wanted: .clone(), or one parameter in both", "build_model")
        return model

    def batch(self, batch_size: int, generator: torch.Generator) -> Any:
        """Draw a batch; StudioFileError if it is invalid."""
        batch = self._call("get_batch", batch_size, generator)
        wanted = "wanted: dense tensors, also in tuples, lists or dicts"
        if odd := trees.fault(batch):
            raise self.error(f"get_batch returned {odd}; {wanted}", "get_batch")
        if not trees.tensors(batch):
            raise self.error(f"get_batch returned no tensor; {wanted}", "get_batch")
        return batch

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Compute the loss, a tensor without dimensions in whatever float format it has; StudioFileError if it is not
        one."""
        loss = self._call("compute_loss", model, batch)
        wanted = "wanted: a tensor with one number that depends on the parameters"
        if not isinstance(loss, Tensor):
            raise self.error(f"compute_loss returned {_kind(loss)}; {wanted}", "compute_loss")
        if loss.numel() != 1:
            raise self.error(f"compute_loss returned a tensor of shape {tuple(loss.shape)}; {wanted}", "compute_loss")
        if not loss.is_floating_point():
            raise self.error(f"compute_loss returned {_dtype(loss)}; {wanted}", "compute_loss")
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise self.error(f"the loss does not depend on any parameter, or was detached; {wanted}", "compute_loss")
        return loss.reshape(())

    def leave_torch_as_it_was(self, function: str = "") -> None:
        """Restore torch itself and the clock to their state before any file ran; StudioFileError if one was changed."""
        if changed := torch_itself.put_back():
            set_here = re.search(rf"\.{re.escape(changed.rpartition('.')[2])}\s*=(?!=)", self.file.text)
            line = self.file.text.count("\n", 0, set_here.start()) + 1 if set_here else 0
            what = f"{function or 'it'} {changed} for the whole program; wanted: as it was"
            raise self.error(what, function, line)

    def error(self, what: str, function: str = "", line: int = 0) -> StudioFileError:
        """Return an error of the file, at a line or at the beginning of a function."""
        called = getattr(self._module, function, None)
        for _ in range(_MOST_DECORATORS):
            called = getattr(called, "__wrapped__", called)
        code = getattr(called, "__code__", None)
        if code is not None and code.co_filename == self.file.name:  # and not a wrapper from somewhere else
            line = line or code.co_firstlineno
        return StudioFileError(f"{self.file.name}{f', line {line}' if line else ''}: {what}")

    def _call(self, function: str, *given: Any) -> Any:
        values = {name: self._values[name] for name in self.file.reading.arguments[function] if name in self._values}
        own_function = getattr(self._module, function, None)
        if not callable(own_function):
            raise self.error(f"{function} is no function once the file has run")
        return self._guard(function, lambda: own_function(*given, **values))

    def _guard(self, function: str, work: Callable[[], Any]) -> Any:
        """Return the result of the file's own code. Its exceptions become a StudioFileError, except for exhausted
        memory and interrupts by the user. StudioFileError if it changes what others share with it."""
        sys.modules[MODULE] = self._module  # dataclasses, pickle and the like look a class's module up by its name
        prepared, before, changed = runtime.preparations(), shared_state.now(self._folder), ""
        try:
            result = work()
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            if runtime.out_of_memory(fault):
                raise
            raise StudioFileError(_describe_raise(self.file.name, function, fault)) from fault
        finally:
            if os.getpid() != self._process:
                _end(WENT_ON)  # a process that the file forked and let continue: it would train too, and fork again
            if runtime.preparations() == prepared:  # otherwise another run has set up torch for itself meanwhile
                changed = shared_state.put_back(before)
        if changed:
            raise self.error(f"{function or 'it'} changes {changed} for the whole program; wanted: as it was", function)
        return result


def describe_exception(fault: BaseException) -> str:
    """Return the type of an exception and its first line; a file may have created one that fails to describe itself."""
    kind, text = shorten(one_line(type(fault).__name__), _LONGEST), first_line(fault, _LONGEST)
    return f"{kind}: {text}" if text else kind


def _describe_raise(name: str, function: str, fault: BaseException) -> str:
    """Return what code of a file raised, in one line."""
    line = in_words(line_of_fault(name, fault))
    where = f" in {function}" if function else ""
    if isinstance(fault, SystemExit):
        return f"{name}{line}: it ends the program{where}; wanted: a file that returns"
    if isinstance(fault, ModuleNotFoundError):
        return f"{name}{line}: {first_line(fault, _LONGEST)}; wanted: only what is installed beside GradStudio"
    kind, _, text = describe_exception(fault).partition(": ")
    return f"{name}{line}: {kind}{where}{f': {text}' if text else ''}"


def _why_not_trained(name: str, weight: nn.Parameter) -> str:
    """Return why a parameter cannot be trained here, "" if it can. All are laid out in one buffer: one with another
    layout would be summed in another order than in the file's own program."""
    if isinstance(weight, nn.parameter.UninitializedParameter):
        return f"the size of {name} is not known before a batch; wanted: modules that are not lazy"
    if weight.dtype != torch.float32:
        return f"{name} is {_dtype(weight)}; wanted: parameters in float32"
    if weight.is_meta:
        return f"{name} has no memory, as its device is meta; wanted: parameters with their numbers"
    if not weight.is_contiguous():
        return f"{name} is not contiguous in memory; wanted: nn.Parameter(numbers.contiguous())"
    return ""


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
