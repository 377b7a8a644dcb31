"""Whether there is memory for the calls of a crash file, before any of them is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.free_memory import UNKNOWN_SIZE, free
from gradstudio.crash.call_values import CannotCall
from gradstudio.crash.recorded_pass import DTYPES, CallRaised, Pass, keys_taken
from gradstudio.session.files.crash_file import CrashFile, PlainCall, RecordedCall, RecordedPass

# Calls whose results have a size that depends on values, and are hardly larger than what they take.
_AS_LARGE = {"masked_select", "nonzero", "argwhere", "__getitem__", "unique", "unique_consecutive"}


def check_memory(crash: CrashFile, tensor: Callable[[str], Tensor]) -> None:
    """Make the calls of each program without values, to compute only the sizes. CannotCall if they would exceed the
    available memory, or if that is unknown beforehand."""
    if 2 * crash.size > (room := _room()):  # as read, and as the steps change them
        raise CannotCall(f"its tensors take 2 × {crash.size / 1e9:,.1f} GB, and {room / 1e9:,.1f} GB are free")
    seen: set[Any] = set()
    for each in [each for step in crash.structure.steps for each in step.passes]:
        sizes = each.program, *[(name, crash.tensors[stored].shape) for name, stored in each.tensors.items()]
        if sizes not in seen and _is_of_one_size(crash, tensor, each):
            seen.add(sizes)


def _is_of_one_size(crash: CrashFile, tensor: Callable[[str], Tensor], given: RecordedPass) -> bool:
    """Check the memory of a pass. Return whether its sizes do not depend on values."""

    def stored(name: str) -> str:
        held = crash.structure.weights.get(name[2:]) if name.startswith("w:") else given.tensors.get(name)
        if held is None:
            raise CannotCall(f"there is no tensor {name[:60]}")
        return held

    def blank(name: str) -> Tensor:
        held = crash.tensors[stored(name)]
        return torch.empty(held.shape, dtype=DTYPES[held.dtype], device="meta")

    room = _room()
    calls, total = [*_with_derivatives(crash.structure.programs[given.program])], 0
    made, real = Pass(calls, blank, "meta"), Pass(calls, lambda name: tensor(stored(name)), "cpu")
    begin = 0  # of the calls that were not made with values
    for place, call in enumerate(calls):
        if call.gives is None:
            break
        try:
            made.run([place])
        except CallRaised as fault:
            if call.kind.endswith("_loss") and len(call.gives) == 1:  # no larger than its inputs
                made.tensors[call.gives[0]] = torch.empty((), device="meta")
                continue
            begin = _make_with_values(made, real, begin, place, fault)
        if isinstance(call, RecordedCall) and call.derivative is not None:
            made.tensors[call.derivative.gradient] = torch.empty_like(made.tensors[call.gives[0]])
            real.tensors[call.derivative.gradient] = torch.empty_like(made.tensors[call.gives[0]], device="cpu")
        total += sum(made.tensors[number].nbytes for number in call.gives if number >= 0)
        if total > room:
            raise CannotCall(f"its calls would take more memory than there is: {total / 1e9:,.1f} GB")
    return not begin


def _make_with_values(made: Pass, real: Pass, begin: int, place: int, fault: CallRaised) -> int:
    """Make a call whose result has a size that depends on values, and the calls before it, from `begin` on. Return how
    many are made."""
    call = real.calls[place]
    with torch.random.fork_rng(), torch.no_grad():
        real.run(range(begin, place))
        values = {key: real.tensor(key) for key in keys_taken(call)}
        made.tensors |= {key: each for key, each in values.items() if each.dtype == torch.int64 and each.dim() == 1}
        try:
            made.run([place])  # with the lengths of sequences
            return place
        except CallRaised:
            if call.kind not in _AS_LARGE:
                told = "how much memory its calls take cannot be told beforehand"
                raise CannotCall(f"{told}: {call.do}, {fault}; add --trust to make them all the same") from None
        real.run([place])
    made.tensors |= {number: real.tensors[number].to("meta") for number in call.gives or () if number >= 0}
    return place + 1


def _with_derivatives(calls: list[RecordedCall]) -> Iterator[PlainCall]:
    for call in calls:
        yield call
        if call.derivative is not None:
            yield from call.derivative.calls


def _room() -> int:
    """Return the bytes that may be taken; 8 GiB where the system does not report what is free."""
    return known if (known := free()) < UNKNOWN_SIZE else 8 << 30
