"""The memory that is worked out before a step is the memory that the step takes, as the CPU allocator tells it."""

from __future__ import annotations

import pytest

from benchmarks import footprint
from gradstudio.core import presets

# What takes long is made shorter; `python -m benchmarks memory` has it whole, and every model in many more ways.
SHORTER = {
    "clip-after-step": "problem.seq_len=4", "rnn-explosion": "problem.seq_len=4",
    "post-norm-transformer": "model.depth=2", "pole-collapse": "problem.seq_len=10", "deep-post-norm": "model.depth=2",
    "checkpointing-pays": "model.depth=4", "deep-cnn": "model.depth=4", "out-of-memory": "model.depth=3",
    "deep-residual": "model.depth=6", "deep-sigmoid-vanishing": "model.depth=6", "width-transfer": "model.depth=2",
    "language-model-no-warmup": "model.depth=2 problem.seq_len=8", "healthy-transformer": "model.depth=2",
    "gates-at-zero": "model.depth=3", "one-rate-for-all": "model.width=32", "gates-hold-no-rate": "problem.seq_len=4", "clip-before-backward": "problem.seq_len=4",
    "value-or-norm": "problem.seq_len=4", "max-norm-study": "problem.seq_len=4", "a-net-that-forgets": "problem.seq_len=4",
}  # fmt: skip
PRESETS = [
    f"{path.stem} precision.dtype={footprint.DTYPES[number % len(footprint.DTYPES)]} {SHORTER.get(path.stem, '')}"
    for number, path in enumerate(footprint.bundled())
]
OTHERS = [
    f"- {footprint.SMALL} model.kind=lstm problem.task=copy",
    f"- {footprint.SMALL} model.kind=transformer optimizer.kind=adamw clipping.on_spike=rewind",
    f"- {footprint.SMALL} optimizer.sam_rho=0.1 accumulation.steps=3 model.norm=batch clipping.kind=norm",
    f"- {footprint.SMALL} {footprint.MODELS[5]} problem.seq_len=4",
    f"- {footprint.SMALL} {footprint.MODELS[3]} {footprint.WAYS[-1]}",
    f"- {footprint.SMALL} {footprint.MODELS[8]} {footprint.WAYS[-2]}",
    # sums of gradients that come as views, channels that fill no block, weights whose rows are no whole lines
    "- model.kind=rnn model.width=160 problem.batch_size=4",
    "- model.kind=gru model.width=96 problem.task=adding problem.seq_len=4 problem.batch_size=2",
    "- model.kind=cnn model.width=40 model.norm=layer",
    "- model.kind=lstm model.width=250 problem.batch_size=5 problem.seq_len=4 problem.task=adding",
    "- model.kind=lstm model.width=16 problem.task=sequential_digits problem.seq_len=1",
]


def of_each_kind() -> list[str]:
    """The first preset with each network, normalization, optimizer and way to clip."""
    kinds = {}
    for case in PRESETS:
        knobs = presets.load(case.split()[0]).experiment
        kinds.setdefault((knobs.model.kind, knobs.model.norm), case)
        kinds.setdefault((knobs.optimizer.kind, knobs.clipping.kind), case)
    return list(dict.fromkeys(kinds.values()))


@pytest.mark.parametrize(
    "cases",
    [of_each_kind() + OTHERS, pytest.param(PRESETS, marks=pytest.mark.thorough)],
    ids=["each kind", "all presets"],
)
def test_the_estimate_is_what_the_allocator_says(cases: list[str]) -> None:
    compared = list(footprint.compared(cases))  # in one test, as one process measures them all
    assert [each["case"] for each in compared] == cases
    wrong = [each for each in compared if footprint.off(each) > _most(each)]
    assert not wrong, wrong


def _most(each: dict) -> float:
    return footprint.CLOSE_WITH_WORKSPACE if each["workspace"] else footprint.CLOSE
