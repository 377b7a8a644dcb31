"""Every part of torch that may vanish, as one list."""

from __future__ import annotations

from gradstudio.engine.torch_internals import (
    autograd_nodes,
    clipping_hooks,
    compiled_frames,
    device_kernels,
    function_modes,
    function_transforms,
    memory_and_work,
    plain_floats,
    plain_optimizers,
    process_groups,
    seen_operations,
    tensor_lists,
)
from gradstudio.engine.torch_internals.internal import Internal

_FILES = (
    seen_operations,
    memory_and_work,
    tensor_lists,
    plain_floats,
    plain_optimizers,
    autograd_nodes,
    clipping_hooks,
    compiled_frames,
    device_kernels,
    function_modes,
    function_transforms,
    process_groups,
)
INTERNALS = tuple(part for file in _FILES for part in vars(file).values() if isinstance(part, Internal))

# The last two are tried on their first use, as they are not part of every step.
PARTS_OF_A_WATCH = (
    autograd_nodes.NODE_AT_WORK,
    autograd_nodes.HOOK_DICT,
    autograd_nodes.TOLD_RESULTS,
    autograd_nodes.VERSION_SETTER,
    clipping_hooks.ANY_AUTOCAST,
    plain_floats.FLOAT_TYPE,
    function_modes.STACK,
    function_transforms.STACK,
    seen_operations.SEEING,
    seen_operations.SCHEMA,
    clipping_hooks.CLIPPING,
    compiled_frames.BACKENDS,
)


def try_parts_of_a_watch() -> None:
    """Try the parts of torch that a watch uses at every step, and at the first NaN. Some of the trials make a backward
    pass, which an active watch would mistake for one of the script's."""
    for part in PARTS_OF_A_WATCH[:-2]:
        part.get()


def problems() -> list[str]:
    """Try every part, and return what is lost, a sentence each."""
    return [problem for each in INTERNALS if (problem := each.problem())]


def forget() -> None:
    """Try every part again on its next use."""
    plain_optimizers.without_compiler.cache_clear()
    for each in INTERNALS:
        each.forget()
