"""The memory that is worked out before a step is the memory that the step takes, as the CPU allocator tells it."""

from __future__ import annotations

import pytest

from benchmarks import footprint

# What takes long is made shorter; `python -m benchmarks memory` has it whole, and every model in many more ways.
SHORTER = {
    "clip-after-step": "problem.seq_len=8", "rnn-explosion": "problem.seq_len=8",
    "post-norm-transformer": "model.depth=2", "pole-collapse": "problem.seq_len=20",
}  # fmt: skip
CASES = [
    *(
        f"{path.stem} precision.dtype={footprint.DTYPES[number % len(footprint.DTYPES)]} {SHORTER.get(path.stem, '')}"
        for number, path in enumerate(footprint.bundled())
    ),
    f"- {footprint.SMALL} model.kind=lstm problem.task=copy",
    f"- {footprint.SMALL} optimizer.sam_rho=0.1 accumulation.steps=3 model.norm=batch clipping.kind=norm",
    f"- {footprint.SMALL} {footprint.MODELS[5]} problem.seq_len=4",
    f"- {footprint.SMALL} {footprint.MODELS[3]} {footprint.WAYS[-1]}",
    f"- {footprint.SMALL} {footprint.MODELS[8]} {footprint.WAYS[-2]}",
]


@pytest.fixture(scope="module")
def found() -> dict[str, dict]:
    return {each["case"]: each for each in footprint.compared(CASES)}


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_what_the_allocator_says(found: dict[str, dict], case: str) -> None:
    each = found[case]
    most = footprint.CLOSE_WITH_WORKSPACE if each["workspace"] else footprint.CLOSE
    assert footprint.off(each) <= most, each
