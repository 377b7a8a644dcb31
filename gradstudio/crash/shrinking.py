"""A recorded step minimized: the one call in which the first non-finite value was born, with the fewest entries of its
tensors that still produce it, as a plain script that anyone can run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.core.text import plural
from gradstudio.crash.call_values import CannotCall
from gradstudio.crash.recorded_pass import CallRaised, Key, Pass, is_broken, keys_of, written_by
from gradstudio.crash.recorded_training import LoadedCrash, Training, replay_steps
from gradstudio.crash.shrunk_batch import fewest_examples
from gradstudio.session.files.crash_file import PlainCall, RecordedBirth, RecordedCall, Structure

MOST_TRIALS = 400
MOST_INLINE = 4000  # numbers in the script


class ShrunkScript(NamedTuple):
    """The smallest script that still fails, and a sentence on what was left out."""

    script: str
    words: str


@dataclass(frozen=True)
class _Case:
    """A call with its tensors; `back` are the gradients of its results, {} for the forward pass."""

    call: PlainCall
    tensors: dict[Key, Tensor]
    back: dict[int, Tensor]

    @property
    def count(self) -> int:
        return sum(each.numel() for each in (*self.tensors.values(), *self.back.values()))

    def fails(self) -> bool:
        """Return whether it still produces a non-finite value, or raises, from finite inputs."""
        made = Pass([self.call], self.tensors.__getitem__, "cpu")
        leaves = {key: _leaf(each, takes=bool(self.back)) for key, each in self.tensors.items()}
        made.tensors.update(leaves)
        try:
            made.run()
        except CallRaised:
            return self.call.gives is None
        if self.call.gives is None:
            return False
        if not self.back:
            return any(is_broken(made.tensors[each]) for each in written_by(self.call))
        ends = [made.tensors[number] for number in self.back]
        torch.autograd.backward(ends, list(self.back.values()))
        return any(each.grad is not None and is_broken(each.grad) for each in leaves.values())


def shrink(recorded: LoadedCrash) -> ShrunkScript:
    """Return the smallest script that reproduces a crash. CannotCall, with the details, if no single call does."""
    training = Training(recorded)
    training.keeps_gradients = True
    born = replay_steps(training)
    if born.phase == "none":
        raise CannotCall(f"nothing to shrink: {born.words}")
    if born.call < 0 or training.at is None:
        raise CannotCall(_with_examples("no single call made it, so there is no script", recorded, born))
    whole, call = training.at, training.at.calls[born.call]
    if isinstance(call, RecordedCall) and call.derivative is not None:
        raise CannotCall(_with_examples("no single call of torch made it, so there is no script", recorded, born))
    keys = dict.fromkeys((*keys_of(call.given), *keys_of(call.named)))
    is_back = born.phase == "backward"
    back = {each: whole.gradients[each] for each in call.gives or () if is_back and each in whole.gradients}
    case = _Case(
        call,
        {key: (whole.tensor(key) if is_back else whole.taken[born.call][key]).detach().cpu() for key in keys},
        back,
    )
    before, calls = case.count, len(whole.calls)
    if not _fails(case):
        raise CannotCall(_with_examples("alone, the call gives something else", recorded, born))
    for _ in range(3):
        size = case.count
        case = _smaller(case)
        if case.count == size:
            break
    if case.count > MOST_INLINE:
        raise CannotCall(f"its tensors still have {case.count:,} entries, too many for a script")
    told = f"1 of {plural(calls, 'call', 'calls')}, {case.count:,} of {before:,} entries: {born.words}"
    return ShrunkScript(_script(case, born, recorded.structure), told)


def _with_examples(why: str, recorded: LoadedCrash, born: RecordedBirth) -> str:
    return "; ".join(filter(None, (f"{why}: {born.words}", fewest_examples(recorded, born))))


def _fails(case: _Case) -> bool:
    try:
        return case.fails()
    except Exception:  # from torch, for shapes that do not fit
        return False


def _smaller(case: _Case) -> _Case:
    """Return the case with fewer entries along each size that several dimensions share, or that one has alone."""
    trials = itertools.count()
    for places in list(_groups(case)):
        while next(trials) < MOST_TRIALS:
            size = max((_part(case, where).shape[dim] for where, dim in places if _has(case, where, dim)), default=1)
            half = next(
                (smaller for begin, end in ((0, size // 2), (size // 2, size))
                 if size > 1 and _fails(smaller := _cut(case, places, size, begin, end))),
                None,
            )  # fmt: skip
            if half is None:
                break
            case = half
    return case


def _groups(case: _Case) -> Iterator[list[tuple[Key | str, int]]]:
    """Yield the dimensions that may be cut together: those of one size, then each alone."""
    everywhere = [(where, dim, each.shape[dim]) for where, each in _parts(case).items() for dim in range(each.dim())]
    for size in sorted({size for *_, size in everywhere if size > 1}, reverse=True):
        alike = [(where, dim) for where, dim, own in everywhere if own == size]
        for dims in dict.fromkeys(dim for _, dim in alike):
            yield [(where, dim) for where, dim in alike if dim == dims]
        yield alike
        yield from ([each] for each in alike)


def _parts(case: _Case) -> dict[Any, Tensor]:
    return {**{("tensor", key): each for key, each in case.tensors.items()},
            **{("back", key): each for key, each in case.back.items()}}  # fmt: skip


def _part(case: _Case, where: Any) -> Tensor:
    return _parts(case)[where]


def _has(case: _Case, where: Any, dim: int) -> bool:
    return dim < _part(case, where).dim()


def _cut(case: _Case, places: list[Any], size: int, begin: int, end: int) -> _Case:
    def cut(kind: str, parts: dict[Any, Tensor]) -> dict[Any, Tensor]:
        result = dict(parts)
        for (own, key), dim in places:
            if own == kind and result[key].shape[dim] == size:
                result[key] = result[key].narrow(dim, begin, end - begin)
        return result

    return replace(case, tensors=cut("tensor", case.tensors), back=cut("back", case.back))


def _leaf(tensor: Tensor, *, takes: bool) -> Tensor:
    leaf = tensor.detach().clone()
    return leaf.requires_grad_() if takes and leaf.is_floating_point() else leaf


# ---- the script


def _script(case: _Case, born: RecordedBirth, structure: Structure) -> str:
    names = {key: f"x{place}" for place, key in enumerate(case.tensors)}
    takes = ", requires_grad=True" if case.back else ""
    lines = [
        f'"""{born.words}."""', "", "import torch", "from torch import inf, nan  # noqa: F401", "",
        f"# Recorded with torch {structure.versions.get('torch', '?')} on {structure.device}.",
    ]  # fmt: skip
    for key, tensor in case.tensors.items():
        grads = takes if tensor.is_floating_point() else ""
        lines.append(f"{names[key]} = torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype}{grads})")
    given = [_source(each, names) for each in case.call.given]
    given += [f"{name}={_source(each, names)}" for name, each in case.call.named.items()]
    call, indent = f"{case.call.do}({', '.join(given)})", ""
    for kind, dtype in case.call.autocast.items():
        lines.append(f"{indent}with torch.autocast({kind!r}, torch.{dtype}):")
        indent += "    "
    written = "result" if case.call.gives else names[written_by(case.call)[0]]
    lines += [f"{indent}result = {call}", f"print({written})"]
    if case.back:
        results = [f"result[{place}]" if len(case.call.gives or ()) > 1 else "result"
                   for place, each in enumerate(case.call.gives or ()) if each in case.back]  # fmt: skip
        for result, gradient in zip(results, case.back.values(), strict=True):
            keeps = ", retain_graph=True" if len(results) > 1 else ""
            lines.append(f"{result}.backward(torch.tensor({gradient.tolist()!r}, dtype={gradient.dtype}){keeps})")
        lines += [f"print({name}.grad)" for key, name in names.items() if case.tensors[key].is_floating_point()]
    return "\n".join(lines) + "\n"


def _source(value: Any, names: dict[Key, str]) -> str:
    """Return an argument in Python syntax."""
    if isinstance(value, list):
        return f"[{', '.join(_source(each, names) for each in value)}]"
    if not isinstance(value, dict):
        return repr(value)
    ((kind, held),) = value.items()
    match kind:
        case "t":
            return names[held]
        case "float":
            return str(held)
        case "dtype" | "memory_format" | "layout":
            return f"torch.{held}"
        case "device":
            return "'cpu'"
        case "ellipsis":
            return "..."
        case "slice":
            return f"slice({', '.join(_source(each, names) for each in held)})"
        case "tuple":
            return f"({''.join(f'{_source(each, names)}, ' for each in held)})"
        case _:
            return "{" + ", ".join(f"{name!r}: {_source(each, names)}" for name, each in held.items()) + "}"
