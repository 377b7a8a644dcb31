"""Steps whose rows are read later do to the weights what other steps do, to the last bit, and their rows say the
same."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradstudio.core.history import COLUMNS
from gradstudio.core.knobs import KnobError
from gradstudio.core.row import Row
from gradstudio.core.unknown import known_mask
from gradstudio.engine import devices
from gradstudio.engine.gauges import on_device
from gradstudio.engine.gauges.every_step import Gauges
from gradstudio.engine.gauges.on_device import DeviceGauges
from gradstudio.engine.models import MODELS
from gradstudio.engine.passes.flat import Layout
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.step import gradients, reading
from gradstudio.engine.step.clipping import CLIPPING, CLIPPING_ON_DEVICE
from gradstudio.engine.step.losses import NAIVE
from gradstudio.engine.step.optimizers import OPTIMIZERS
from gradstudio.engine.tasks import task
from gradstudio.engine.trainer import Trainer

LAG, STEPS = 4, 9
EXACT = ("step", "loss", "lr", "scale", "skipped", "nonfinite", "accuracy")
TASKS = {
    "gan": "ring",
    "policy": "pole",
    "rnn": "adding",
    "lstm": "copy",
    "gru": "characters",
    "transformer": "characters",
}
Build = Callable[..., Trainer]


@pytest.fixture
def pair(build: Build, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Trainer, Trainer]]:
    """A trainer whose rows are read at once, and the same one whose rows are read later."""

    def made(*knobs: str) -> tuple[Trainer, Trainer]:
        try:
            direct = build(*knobs)
        except KnobError as fault:
            pytest.skip(str(fault))
        monkeypatch.setitem(reading.LAG, "cpu", LAG)
        late = build(*knobs)
        monkeypatch.delitem(reading.LAG, "cpu")
        return direct, late

    return made


def advanced(trainer: Trainer, steps: int) -> list[Row]:
    """Made one after the other, and read to the last."""
    rows = [row for _ in range(steps) for row in trainer.advance()]
    return rows + trainer.settle()


def check_rows(late: list[Row], direct: list[Row]) -> None:
    assert [row.step for row in late] == [row.step for row in direct]
    for one, other in zip(late, direct, strict=True):
        assert repr([getattr(one, name) for name in EXACT]) == repr([getattr(other, name) for name in EXACT])
        assert (one.loop, one.settings, one.activations) == (other.loop, other.settings, other.activations)
        rest = [name for name in COLUMNS if name not in (*EXACT, "step_seconds")]
        np.testing.assert_allclose(
            [getattr(one, name) for name in rest],
            [getattr(other, name) for name in rest],
            rtol=1e-12,
            err_msg=str(one.step),
        )
        np.testing.assert_allclose(one.layers, other.layers, rtol=1e-12, atol=1e-15 * max(1.0, other.grad_norm))
        assert np.array_equal(known_mask(one.layers), known_mask(other.layers))
        assert one.step_seconds > 0


def check_weights(late: Trainer, direct: Trainer) -> None:
    assert torch.equal(late.flat.weights.view(torch.int32), direct.flat.weights.view(torch.int32))
    assert (late.step, late.taken) == (direct.step, direct.taken)


def check(pair: Callable[..., tuple[Trainer, Trainer]], *knobs: str) -> list[Row]:
    direct, late = pair(*knobs)
    rows = list(islice(direct.steps(), STEPS))
    check_rows(advanced(late, STEPS), rows)
    check_weights(late, direct)
    return rows


@pytest.mark.parametrize("knobs", [
    [], ["accumulation.steps=3", "clipping.kind=norm", "clipping.max_norm=0.01"],
    ["precision.dtype=bf16", "model.norm=batch"],
    ["precision.dtype=fp16", "precision.scaling=static", "precision.init_scale=1024"],
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("kind", MODELS)
def test_every_model(pair, kind, knobs):
    check(pair, f"model.kind={kind}", f"problem.task={TASKS.get(kind, 'digits')}", "problem.seq_len=8", *knobs)


LONG = pytest.mark.thorough
# Every optimizer and every way to clip comes up in `make test`, busy and not; all of them together take long.
PAIRS = [
    pytest.param(optimizer, clipping, busy, marks=() if (one + busy) % len(OPTIMIZERS) == other % len(OPTIMIZERS) else LONG)
    for one, optimizer in enumerate(OPTIMIZERS) for other, clipping in enumerate(CLIPPING) for busy in (False, True)
]  # fmt: skip


@pytest.mark.parametrize(("optimizer", "clipping", "busy"), PAIRS)
def test_every_optimizer_and_clipping(pair, optimizer, clipping, busy):
    knobs = ["clipping.max_norm=0.3", "clipping.clip_value=0.001", "optimizer.lr=0.01"]
    if busy:
        knobs += [
            "gradients.centralize=true", "gradients.noise_std=0.01", "accumulation.steps=2", "problem.noise=0.1",
            "problem.outlier_every=3",
            "schedule.warmup_steps=4", "optimizer.momentum=0.8", "optimizer.weight_decay=0.01",
        ]  # fmt: skip
    check(pair, f"optimizer.kind={optimizer}", f"clipping.kind={clipping}", *knobs)


def test_clipping_that_does_nothing_changes_no_bit(pair):
    rows = check(pair, "clipping.kind=norm", "clipping.max_norm=1000")
    assert {row.clip_coef for row in rows} == {1.0}


@pytest.mark.parametrize("knobs", [
    ["optimizer.lr=1e5", "problem.input_scale=1e4"],
    ["loss.kind=naive_log", "problem.input_scale=1e3", "clipping.kind=norm"],
    ["model.init=zeros"],
], ids=" ".join)  # fmt: skip
def test_what_is_not_finite_or_all_zero(pair, knobs):
    rows = check(pair, *knobs)
    assert any(row.went_nonfinite for row in rows) or max(row.layers[4].max() for row in rows) == 1.0


def test_a_row_is_read_just_so_many_steps_later(pair):
    _, late = pair()
    assert [[row.step for row in late.advance()] for _ in range(7)] == [[], [], [], [], [0], [1], [2]]
    assert [row.step for row in late.settle()] == [3, 4, 5, 6]
    assert late.settle() == []
    assert [row.step for row in islice(late.steps(), 2)] == [7, 8], "steps() reads each at once"
    assert len(advanced(late, 2)) == 2, "fewer than it trails"


@pytest.mark.parametrize("knobs", [
    ["mistakes.never_zero_grad=true"], ["mistakes.clip_after_step=true", "clipping.kind=norm"],
    ["precision.dtype=fp16", "precision.init_scale=1e30"],
], ids=" ".join)  # fmt: skip
def test_a_step_that_the_host_has_to_look_at_is_read_at_once(pair, knobs):
    _, late = pair(*knobs)
    assert [len(late.advance()) for _ in range(3)] == [1, 1, 1]
    check(pair, *knobs)


@pytest.mark.parametrize("asked", ["compare", "accumulation", "activations"])
def test_what_is_asked_for_comes_in_its_place(pair, asked):
    direct, late = pair("accumulation.steps=2")
    found: list[list[Row]] = [[], []]
    for step in range(STEPS):
        for trainer, rows in zip((direct, late), found, strict=True):
            setattr(trainer.requests, asked, step == 6)
            rows += trainer.advance()
    check_rows(found[1] + late.settle(), found[0])
    assert [
        row.step for row in found[1] if (row.joined_difference, row.accumulated, row.activations) != (None, None, None)
    ] == [6]
    check_weights(late, direct)


def test_a_mistake_that_is_switched_on_and_off_between_steps(pair):
    direct, late = pair("accumulation.steps=2", "clipping.kind=norm")
    rows: list[list[Row]] = [[], []]
    for step in range(STEPS):
        for trainer, made in zip((direct, late), rows, strict=True):
            if step in (2, 5):
                trainer.change("mistakes.clip_each_micro_batch", step == 2)
            if step == 7:
                trainer.change("optimizer.lr", 0.01)
            made += trainer.advance()
    check_rows(rows[1] + late.settle(), rows[0])
    check_weights(late, direct)


def test_a_trainer_that_is_taken_back_forgets_what_was_not_read(pair):
    direct, late = pair("optimizer.kind=adam")
    state = Snapshot.take(late)
    for _ in range(3):
        late.advance()
    state.restore(late)
    check_rows(advanced(late, STEPS), list(islice(direct.steps(), STEPS)))
    check_weights(late, direct)


class Crossings(TorchDispatchMode):
    """Counts what is copied from the CPU to another device."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.count += function is torch.ops.aten._to_copy.default and args[0].is_cpu and not result.is_cpu
        return result


@pytest.mark.parametrize("knobs", [
    *(f"model.kind={kind} problem.task={task} accumulation.steps=2" for kind, task in (
        ("mlp", "digits"), ("rnn", "adding"), ("cnn", "sequential_digits"), ("transformer", "characters"), ("gan", "ring"),
    )),
    *(f"clipping.kind={kind} gradients.centralize=true gradients.noise_std=0.1" for kind in CLIPPING),
    *(f"optimizer.kind={kind}" for kind in OPTIMIZERS),
    *(f"loss.kind={kind} loss.eps=0.1 problem.task=spirals loss.weight=2" for kind in NAIVE),
    "model.norm=batch model.checkpointing=true",
    "problem.noise=0.1 problem.outlier_every=1 problem.input_scale=2 problem.skip_batches=1",
])  # fmt: skip
def test_the_host_never_looks_at_what_is_on_the_device(build, monkeypatch, knobs):
    """torch's meta device has no data: whoever looks at any fails. And all that goes there goes by devices.placed,
    which does not wait."""

    def counted(tensor, device):
        placed_there.append(tensor)
        return tensor.to(device)

    placed_there: list[torch.Tensor] = []
    for module in (gradients, task):
        monkeypatch.setattr(module, "to_device", counted)
    for kind in (task.Task, task.Dataset):
        monkeypatch.setattr(
            kind, "sample", lambda *_: None
        )  # nothing can be read of it for the start, as nothing else can
    monkeypatch.setattr("gradstudio.engine.subject.initialize", lambda *_: None)
    monkeypatch.setattr(devices, "available", lambda: [devices.Device("cpu", "CPU"), devices.Device("meta", "no data")])
    monkeypatch.setitem(reading.LAG, "meta", LAG)
    made = build("run.device=auto", "problem.seq_len=8", *knobs.split())
    placed_there.clear()
    with Crossings() as crossings:
        assert [made.advance() for _ in range(LAG)] == [[]] * LAG
    assert crossings.count == len(placed_there) >= LAG


def test_every_clipping_rule_gives_the_same_bits_on_a_device(build):
    assert set(CLIPPING_ON_DEVICE) == set(CLIPPING)
    for kind, clip in CLIPPING.items():
        for limit in (0.01, 1.0, 1e6):
            one, other = build(f"clipping.max_norm={limit}"), build(f"clipping.max_norm={limit}")
            for trainer, rule in ((one, clip), (other, CLIPPING_ON_DEVICE[kind])):
                trainer.flat.gradients.copy_(torch.linspace(-1, 1, trainer.flat.layout.length))
                rule(trainer.flat, trainer.experiment.clipping, {})
            assert torch.equal(one.flat.gradients.view(torch.int32), other.flat.gradients.view(torch.int32))


@pytest.mark.parametrize(("piece", "window"), [(1, 1), (5, 40), (5, 1000), (4096, 1), (4096, 10000)])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_they_measure_what_the_gauges_of_the_host_measure(monkeypatch, piece, window, size):
    monkeypatch.setattr(on_device, "PIECE", piece)
    monkeypatch.setattr(on_device, "WINDOW", window)
    layout = Layout([1, 16, 33, 100, 7])
    made = torch.Generator().manual_seed(1)
    flat, change = torch.zeros(layout.length), torch.zeros(2, layout.length)
    for start, stop in zip(layout.starts, layout.stops, strict=True):
        flat[start:stop] = size * torch.randn(int(stop - start), generator=made)
        change[:, start:stop] = size * torch.randn(2, int(stop - start), generator=made)
    flat[layout.starts[2] + 3 : layout.starts[2] + 9] = 0
    flat[layout.starts[3] + 1], flat[layout.starts[4]], flat[layout.stops[3]] = (
        math.nan,
        -math.inf,
        math.nan,
    )  # the last lies between tensors
    change[0, layout.starts[0] : layout.stops[1]] = 0
    along = torch.nan_to_num(flat, 0, 0, 0)
    along[layout.stops[2]] = math.nan  # between tensors
    ours, theirs = DeviceGauges(layout, flat.device), Gauges(layout)
    ours.measure_gradient(flat)
    ours.measure("clipped", change[0] * 2)
    ours.measure_product("kept", change[0], along)
    ours.measure_cut(flat, flat.clamp(-size, size))
    ours.measure_change(*change, along)
    names, figures = ours.figures([torch.arange(3.0)])
    gradient, moved, cut, norms, beside = ours.read(names, figures.numpy())
    assert np.array_equal(cut, theirs.changed_shares(flat, flat.clamp(-size, size)))
    for found, right in ((gradient, theirs.measure_gradient(flat)), (moved, theirs.measure_change(*change, along))):
        for name in right.__slots__:
            np.testing.assert_allclose(getattr(found, name), getattr(right, name), rtol=1e-12, err_msg=name)
    assert gradient.nonfinite == 2 and norms["clipped"] == pytest.approx(2 * norms["weights"], rel=1e-12)
    assert norms["kept"] == pytest.approx(theirs.product(change[0], along), rel=1e-12)
    assert beside.tolist() == [0, 1, 2]
