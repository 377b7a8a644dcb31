"""A trainer that is brought back to a snapshot, in place or in another process, repeats every number to the last
bit."""

from __future__ import annotations

import io
import math
import os
import random
import zipfile
from dataclasses import fields
from itertools import islice, product

import pytest
import torch
from pairs import pairs
from torch import Tensor

from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.row import Row
from gradstudio.engine import spilled_snapshot
from gradstudio.engine.models import MODELS
from gradstudio.engine.models.initialization import INITIALIZERS
from gradstudio.engine.passes import forward_backward
from gradstudio.engine.passes.recording import Recording
from gradstudio.engine.snapshot import Snapshot, SnapshotError
from gradstudio.engine.spilled_snapshot import SpilledSnapshot
from gradstudio.engine.step import losses
from gradstudio.engine.step.clipping import CLIPPING
from gradstudio.engine.step.optimizers import OPTIMIZERS
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.trainer import Trainer

TINY = ["model.width=8", "model.depth=1", "problem.batch_size=4", "problem.seq_len=4"]
MODEL_TASKS = {
    "gan": "ring",
    "policy": "pole",
    "rnn": "adding",
    "lstm": "copy",
    "gru": "characters",
    "transformer": "characters",
}
TAKEN, END = (0, 1, 2, 4), 6  # before anything is recorded, while it is, and after

# A learning rate that moves, momentum, a decay, noise of every kind, outliers, batches that are passed over, and an
# accumulation.
BUSY = [
    "optimizer.lr=0.01", "optimizer.momentum=0.8", "optimizer.weight_decay=0.01", "schedule.warmup_steps=3",
    "schedule.kind=cosine",
    "schedule.total_steps=5", "problem.noise=0.1", "problem.outlier_every=3", "problem.skip_batches=2",
    "gradients.noise_std=0.001",
    "gradients.centralize=true", "clipping.kind=norm", "clipping.max_norm=0.5", "accumulation.steps=2",
]  # fmt: skip
OVERFLOWING = [
    "precision.dtype=fp16",
    "precision.init_scale=1e30",
    "precision.growth_interval=2",
    "precision.backoff_factor=1e-9",
]


def figures(row: Row) -> str:
    """All that a row says but its time, so that a NaN equals a NaN of the same place."""
    return repr(
        [
            row.layers.tobytes() if field.name == "layers" else getattr(row, field.name)
            for field in fields(Row)
            if field.name != "step_seconds"
        ]
    )


def state(trainer: Trainer) -> list[object]:
    """All that the next step depends on, to the last bit."""
    task, content = trainer.task, Snapshot.take(trainer)
    tensors = [
        content.weights,
        content.gradients,
        *content.buffers,
        *content.generators,
        *(v for v in content.optimizer.values() if isinstance(v, Tensor)),
    ]
    bits = [
        (tensor.dtype, tensor.shape, tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for tensor in tensors
    ]
    plain = [
        content.step,
        content.experiment,
        content.taken,
        content.passed,
        sorted(content.optimizer),
        repr(content.scaler),
        content.position,
    ]
    return [*plain, getattr(task, "order", torch.empty(0)).tolist(), bits]


def go_on(trainer: Trainer, until: int) -> list[str]:
    return [figures(row) for row in islice(trainer.steps(), until - trainer.step)]


def holds(build, *knobs: str) -> list[Snapshot]:
    """From every snapshot on, the same trainer and a fresh one repeat the run. Gives the snapshots."""
    try:
        trainer = build(*TINY, *knobs)
    except KnobError as fault:
        pytest.skip(str(fault))
    rows, snapshots = [], []
    for step in TAKEN:
        rows += go_on(trainer, step)
        snapshots.append(Snapshot.take(trainer))
    rows += go_on(trainer, END)
    end = state(trainer)
    for number in (3, 0):
        taken = snapshots[number]
        taken.restore(trainer)
        assert go_on(trainer, END) == rows[taken.step :], f"from step {taken.step}"
        assert state(trainer) == end
    fresh = build(*TINY, *knobs)
    for number in (2, 1):  # forwards and back again
        Snapshot.unpack(snapshots[number].pack(), "cpu").restore(fresh)
        assert go_on(fresh, END) == rows[snapshots[number].step :], (
            f"in another trainer, from step {snapshots[number].step}"
        )
        assert state(fresh) == end
    return snapshots


# Recording takes most of the time, so it is done once with each model, and twice with each optimizer, which acts after
# the pass.
RECORDED = {(kind, list(OPTIMIZERS)[number % len(OPTIMIZERS)]) for number, kind in enumerate(MODELS)}


@pytest.mark.parametrize(("kind", "optimizer", "dtype"), dict.fromkeys([
    *pairs(MODELS, OPTIMIZERS, ["fp32", "bf16", "fp16"]),
    *(("lstm", optimizer, "fp32") for optimizer in OPTIMIZERS),  # the only one that it knows on some processors
]))  # fmt: skip
def test_every_model_optimizer_and_precision(build, monkeypatch, kind, optimizer, dtype):
    if (kind, optimizer) not in RECORDED:
        monkeypatch.setattr(forward_backward, "PATIENCE", math.inf)
    precision = [f"precision.dtype={dtype}", "precision.growth_interval=2"]
    holds(
        build,
        f"model.kind={kind}",
        f"problem.task={MODEL_TASKS.get(kind, 'digits')}",
        f"optimizer.kind={optimizer}",
        *precision,
        *BUSY,
    )


@pytest.mark.parametrize("knobs", [
    *([f"mistakes.{name.partition('.')[2]}=true"] for name in KNOBS if name.startswith("mistakes.") and "unscale" not in name),
    *([f"clipping.kind={kind}", "clipping.clip_value=0.001", "clipping.max_norm=0.01"] for kind in CLIPPING),
    *([f"model.init={init}"] for init in INITIALIZERS),
    *([f"loss.kind={kind}", "loss.eps=0.01", "loss.weight=2"] for kind in losses.NAIVE),
    ["mistakes.never_zero_grad=true", "accumulation.steps=1", "optimizer.kind=adam"],
    ["mistakes.never_zero_grad=true", "mistakes.clip_each_micro_batch=true", "mistakes.drop_last_micro_batches=true"],
    ["model.checkpointing=true", "model.norm=batch", "model.depth=2"],
    ["model.norm=layer", "model.residual=true", "model.depth=2"],
    ["optimizer.lr=0"], ["optimizer.sam_rho=0.3", "model.norm=batch"],
    ["optimizer.sam_rho=0.3", "mistakes.never_zero_grad=true"],
], ids=" ".join)  # fmt: skip
def test_everything_else_that_a_step_can_do(build, knobs):
    holds(build, *BUSY, *knobs)


@pytest.mark.parametrize("knobs", [
    ["clipping.kind=none"], ["clipping.kind=per_tensor"], ["mistakes.never_zero_grad=true"],
    ["loss.kind=naive_log", "loss.eps=0.01"], ["model.init=lsuv", "model.norm=batch"],
    ["problem.input_scale=0"], ["optimizer.lr=1e6", "problem.input_scale=1e10"], ["optimizer.momentum=1"],
    ["optimizer.kind=adam", "optimizer.eps=0", "optimizer.beta1=0"], ["optimizer.kind=rmsprop", "optimizer.momentum=0"],
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("busy", [[], BUSY], ids=["alone", "busy"])
def test_what_a_busy_step_can_hide(build, knobs, busy):
    """Without momentum, an accumulation or anything drawn there is less to bring back, on another path."""
    holds(build, *busy, *knobs)


NORMED = ["rnn", "cnn", "gan", "policy"]


@pytest.mark.parametrize(("kind", "checkpointing", "norm"), [
    *product(NORMED, ["false", "true"], ["batch"]),
    *zip(NORMED, ["false", "true"] * 2, ["layer"] * 4, strict=True),  # without statistics, and without a recording
])  # fmt: skip
def test_running_statistics_come_back(build, monkeypatch, kind, checkpointing, norm):
    if norm == "layer":
        monkeypatch.setattr(forward_backward, "PATIENCE", math.inf)
    taken = holds(
        build, f"model.kind={kind}", f"problem.task={MODEL_TASKS.get(kind, 'digits')}", f"model.norm={norm}",
        f"model.checkpointing={checkpointing}",
        "model.depth=2", "accumulation.steps=2",
    )  # fmt: skip
    assert (norm == "batch") == bool(taken[0].buffers)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_goes_on_at_its_place(build, task):
    model = {"ring": "gan", "pole": "policy"}.get(task, "mlp")
    holds(
        build, f"problem.task={task}", f"model.kind={model}", "problem.batch_size=400", "problem.noise=0.5"
    )  # an epoch ends before the last snapshot


@pytest.mark.parametrize("knobs", [
    ["precision.scaling=dynamic"], ["precision.scaling=static"], ["precision.scaling=none"],
    ["precision.scaling=dynamic", "mistakes.clip_before_unscale=true", "clipping.kind=norm"],
    ["precision.scaling=dynamic", "mistakes.step_without_scaler=true"],
    ["precision.scaling=dynamic", "mistakes.never_zero_grad=true"],
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_overflows_and_the_scale_come_back(build, kind, knobs):
    trainer = build(*TINY, *OVERFLOWING, f"optimizer.kind={kind}", *knobs)
    skipped = [row.skipped for row in islice(trainer.steps(), END)]
    if knobs == ["precision.scaling=dynamic"]:
        assert skipped[0] and not all(skipped)
    holds(build, *OVERFLOWING, f"optimizer.kind={kind}", "schedule.warmup_steps=9", *knobs)


def test_nothing_is_shared_with_the_trainer(build, monkeypatch):
    monkeypatch.setattr(spilled_snapshot, "SMALL", 1)
    monkeypatch.setattr(spilled_snapshot, "PIECE", 1000)
    trainer = build(
        "model.norm=batch",
        "optimizer.kind=adam",
        "precision.dtype=fp16",
        "problem.noise=0.1",
        "mistakes.never_zero_grad=true",
    )
    list(islice(trainer.steps(), 3))
    taken, packed = Snapshot.take(trainer), Snapshot.take(trainer).pack()
    on_disk = SpilledSnapshot(Snapshot.take(trainer))
    before = state(trainer)
    list(islice(trainer.steps(), 3))
    for tensor in (
        trainer.flat.weights.data,
        trainer.flat.gradients,
        *trainer.model.buffers(),
        *trainer.optimizer.state[trainer.flat.weights].values(),
    ):
        tensor.fill_(7)
    for name in ("order_generator", "noise_generator", "outlier_generator"):
        getattr(trainer.task, name).manual_seed(3)
    taken.restore(trainer)
    assert state(trainer) == before and taken.pack() == packed
    list(islice(trainer.steps(), 3))
    for tensor in (
        trainer.flat.weights.data,
        trainer.flat.gradients,
        *trainer.model.buffers(),
        *trainer.optimizer.state[trainer.flat.weights].values(),
    ):
        tensor.fill_(7)
    assert taken.pack() == packed, "what was restored is the trainer's own"
    on_disk.restore(trainer)
    assert on_disk.on_disk and not on_disk.moving and state(trainer) == before and on_disk.pack() == packed


def test_the_trainer_is_left_where_its_recordings_find_it(build):
    """A snapshot is written into the tensors that recorded passes read, and the passes stay valid."""
    trainer = build("problem.noise=0.1")
    list(islice(trainer.steps(), 4))
    recordings = [known for known in trainer.passes._known.values() if isinstance(known, Recording)]
    taken = Snapshot.take(trainer)
    rows = go_on(trainer, 6)
    taken.restore(trainer)
    assert go_on(trainer, 6) == rows
    assert (
        recordings and [known for known in trainer.passes._known.values() if isinstance(known, Recording)] == recordings
    )


# Another allowed value of every live knob, beside values under which most of them act.
LIVE = [
    "precision.dtype=fp16",
    "precision.growth_interval=3",
    "accumulation.steps=2",
    "clipping.kind=norm",
    "clipping.max_norm=0.1",
]
OTHERS: dict[str, list[object]] = {
    "clipping.kind": ["none", "value", "agc", "per_tensor", "per_module", "per_network", "zclip", "adagc"], "clipping.on_spike": ["skip", "rewind"], "precision.dtype": ["fp32", "bf16"],
    "precision.scaling": ["static", "none"],
    "schedule.kind": ["cosine", "one_cycle", "wsd"], "problem.outlier_every": [2], "problem.nan_every": [4], "problem.skip_batches": [3],
    "accumulation.steps": [1, 4],
    "optimizer.momentum": [0.5], "precision.growth_interval": [1], "schedule.warmup_steps": [20],
    "schedule.total_steps": [4], "loss.eps": [0.1],
}  # fmt: skip


def others(name: str) -> list[object]:
    found = KNOBS[name]
    if name in OTHERS:
        return OTHERS[name]
    return [not found.default] if isinstance(found.default, bool) else [0.5 * found.default or 0.001]


def test_a_spike_leads_to_the_same_weights_from_a_snapshot_on(build):
    knobs = [
        *TINY,
        "clipping.on_spike=rewind",
        "problem.outlier_every=26",
        "optimizer.momentum=0.9",
        "optimizer.lr=0.01",
    ]
    trainer, fresh = build(*knobs), build(*knobs)
    go_on(trainer, 25)
    before = Snapshot.unpack(Snapshot.take(trainer).pack(), "cpu")
    rows = list(islice(trainer.steps(), 5))
    assert [row.skipped for row in rows] == [False, True, False, False, False]
    for each in (trainer, fresh):
        before.restore(each)
        assert go_on(each, 30) == list(map(figures, rows))


ENDING = ("mistakes.unscale_twice", "mistakes.never_update_scaler")  # torch refuses what comes next


@pytest.mark.parametrize("name", [name for name, found in KNOBS.items() if found.live and name not in ENDING])
def test_a_change_is_gone_before_its_step_and_acts_again_after_it(build, name):
    """The state before a change comes back into a trainer in which it acts, and the other way round."""
    trainer = build(*TINY, *LIVE)
    rows = go_on(trainer, 3)
    before = Snapshot.take(trainer)
    rows += go_on(trainer, 6)
    for value in others(name):
        before.restore(trainer)
        trainer.change(name, value)
        changed = go_on(trainer, 5)
        after = Snapshot.take(trainer)
        changed += go_on(trainer, 7)
        before.restore(trainer)
        assert trainer.experiment[name] == before.experiment[name]
        assert go_on(trainer, 6) == rows[3:]
        after.restore(trainer)
        assert trainer.experiment[name] == value and go_on(trainer, 7) == changed[2:]
        fresh = build(*TINY, *LIVE)
        go_on(fresh, 3)
        fresh.change(name, value)
        assert go_on(fresh, 7) == changed, "as if there had never been a snapshot"


def test_a_change_of_another_course_at_the_same_step_is_forgotten(build):
    """What a step's changes begin from are the values and the scaler of the state that was restored, not of what the
    trainer did before."""
    knobs = [*TINY, "precision.dtype=fp16", "precision.init_scale=1024", "precision.growth_interval=2"]
    trainer, fresh = build(*knobs), build(*knobs)
    go_on(trainer, 5)
    before = Snapshot.take(trainer)
    trainer.change("precision.growth_interval", 1)
    go_on(trainer, 9)
    before.restore(trainer)
    trainer.change("precision.dtype", "fp32")
    trainer.change("precision.dtype", "fp16")
    go_on(fresh, 5)
    assert go_on(trainer, 9) == go_on(fresh, 9) and trainer.scaler.get_scale() == 16 * 1024


# Of the short form, each model, kind of knobs and optimizer of the long one comes up.
COURSES = range(8) if os.environ.get("GRADSTUDIO_TORTURE") == "1" else (0, 1, 2, 4, 7)


def test_random_courses_are_taken_back_and_repeated(build):
    """Changes of every live knob at random steps, restored at random, against a trainer that goes straight to the
    end."""
    names = [name for name, found in KNOBS.items() if found.live and name not in ENDING]
    for seed in COURSES:
        chance = random.Random(seed)
        kind = chance.choice(["mlp", "rnn", "policy", "cnn"])
        knobs = [
            *TINY,
            *chance.choice([[], LIVE, BUSY, OVERFLOWING]),
            f"model.kind={kind}",
            f"problem.task={MODEL_TASKS.get(kind, 'digits')}",
            f"optimizer.kind={chance.choice(list(OPTIMIZERS))}",
        ]
        trainer, course, rows, snapshots = build(*knobs), {}, [], []
        while trainer.step < 25:
            if chance.random() < 0.4:
                name = chance.choice(names)
                value = chance.choice([KNOBS[name].default, *others(name)])
                if name == "problem.skip_batches":
                    value = trainer.passed + chance.randint(0, 3)
                trainer.change(name, value)
                course.setdefault(trainer.step, []).append((name, value))
            rows += go_on(trainer, trainer.step + chance.randint(1, 3))
            if chance.random() < 0.5:
                snapshots.append(Snapshot.take(trainer))
            if snapshots and chance.random() < 0.3:
                back = chance.choice(snapshots)
                back.restore(trainer)
                rows = rows[: back.step]
                course = {step: changes for step, changes in course.items() if step < back.step}
                snapshots = [each for each in snapshots if each.step <= back.step]
        straight, again = build(*knobs), []
        while straight.step < trainer.step:
            for name, value in course.get(straight.step, []):
                straight.change(name, value)
            again += go_on(straight, straight.step + 1)
        assert again == rows and state(straight) == state(trainer), f"seed {seed}"


def test_a_measurement_that_was_asked_for_is_not_made_elsewhere(build):
    trainer = build("accumulation.steps=2")
    taken = Snapshot.take(trainer)
    trainer.requests.compare = trainer.requests.accumulation = trainer.requests.activations = True
    taken.restore(trainer)
    row = next(trainer.steps())
    assert row.joined_difference is row.accumulated is row.activations is None


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_step_that_broke_off_leaves_nothing_behind(build, steps):
    """Between unscaling and updating, where torch's scaler notes what it has done."""
    trainer, plain = build(*OVERFLOWING), build(*OVERFLOWING)
    go_on(trainer, steps)
    before = Snapshot.take(trainer)
    trainer.change("mistakes.unscale_twice", True)
    with pytest.raises(RuntimeError, match="already been called"):
        next(trainer.steps())
    before.restore(trainer)
    go_on(plain, steps)
    assert go_on(trainer, 7) == go_on(plain, 7)


@pytest.mark.parametrize(("around", "says"), [(False, "after step"), (True, "already been called")])
def test_a_scaler_that_waits_for_its_update_comes_back_as_it_was(build, around, says):
    """It refuses the next step in the trainer it is brought into, also as bytes, and only there."""
    trainer, plain = build(*OVERFLOWING), build(*OVERFLOWING)
    go_on(trainer, 3)
    right = Snapshot.take(trainer)
    trainer.change("mistakes.step_without_scaler", around)
    trainer.change("mistakes.never_update_scaler", True)
    go_on(trainer, 4)
    waiting = Snapshot.take(trainer)
    right.restore(trainer)
    go_on(plain, 3)
    assert go_on(trainer, 7) == go_on(plain, 7)
    gradients = waiting.gradients.clone()
    Snapshot.unpack(waiting.pack(), "cpu").restore(trainer)
    assert torch.equal(trainer.flat.gradients, gradients) and trainer.step == 4
    assert torch.equal(trainer.flat.weights.data, waiting.weights)
    trainer.change("mistakes.never_update_scaler", False)
    with pytest.raises(RuntimeError, match=says):
        next(trainer.steps())


def test_what_it_takes_is_what_it_says(build):
    trainer = build("model.width=256", "optimizer.kind=adam", "model.norm=batch")
    next(trainer.steps())
    taken = Snapshot.take(trainer)
    weights = trainer.flat.weights.nbytes
    assert 4 * weights < taken.nbytes < 4.2 * weights
    assert taken.nbytes == pytest.approx(len(taken.pack()), rel=0.05)


def test_damaged_bytes_are_told(build):
    trainer = build()
    packed = Snapshot.take(trainer).pack()
    for damaged in (
        b"",
        b"PK",
        packed[:-100],
        packed[: len(packed) // 2],
        bytes(len(packed)),
        packed.replace(b"order", b"other"),
    ):
        with pytest.raises(SnapshotError, match="damaged snapshot"):
            Snapshot.unpack(damaged, "cpu")


def test_a_snapshot_that_unpacks_to_more_than_it_is_is_refused(build):
    packed, buffer = Snapshot.take(build()).pack(), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            new.writestr(part.filename, old.read(part))
    content = torch.load(io.BytesIO(packed), weights_only=True)
    wide = io.BytesIO()
    torch.save(content | {"optimizer": {"exp_avg": torch.zeros(1).expand(1 << 34)}}, wide)
    for bomb in (buffer.getvalue(), wide.getvalue()):
        with pytest.raises(SnapshotError, match="damaged snapshot"):
            Snapshot.unpack(bomb, "cpu")


def test_values_in_force_are_packed_whole(build):
    """A float that has no short decimal form, and the largest and the smallest there are."""
    trainer = build()
    for name, value in (
        ("optimizer.lr", 1 / 3),
        ("loss.weight", 1e30),
        ("problem.outlier_scale", math.pi),
        ("optimizer.eps", 5e-324),
    ):
        trainer.change(name, value)
    assert Snapshot.unpack(Snapshot.take(trainer).pack(), "cpu").experiment == trainer.experiment
    assert Experiment() != trainer.experiment
