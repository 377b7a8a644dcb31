"""What was recorded of a pass and is done again gives the bits that autograd gives, and what cannot be recorded is
not."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from gradstudio.core.knobs import KnobError
from gradstudio.engine import notices
from gradstudio.engine.models import MODELS
from gradstudio.engine.passes import forward_backward, operation_calls, tensor_places
from gradstudio.engine.passes.operation_calls import Unrecordable, tensors_in
from gradstudio.engine.passes.recording import Recording
from gradstudio.engine.step.losses import NAIVE

STEPS = 7
TASKS = {
    "gan": "ring",
    "policy": "pole",
    "rnn": "adding",
    "lstm": "copy",
    "gru": "characters",
    "transformer": "characters",
}


def recordings(trainer) -> list[Recording]:
    return [known for known in trainer.passes._known.values() if isinstance(known, Recording)]


def figures(row):
    return (row.loss, row.grad_norm, row.clipped_norm, row.accuracy, row.scale, row.skipped, row.layers.tobytes())


def both(build, monkeypatch, *knobs):
    """The rows of a run whose passes are recorded, and of one without, and the two trainers."""
    try:
        recorded, plain = build(*knobs), build(*knobs)
    except KnobError as fault:
        pytest.skip(str(fault))
    monkeypatch.setattr(plain.passes, "_record", lambda *_: None)
    rows = list(islice(zip(recorded.steps(), plain.steps(), strict=False), STEPS))
    assert not recordings(plain)
    return rows, recorded, plain


@pytest.mark.parametrize("knobs", [
    [], ["optimizer.lr=1e5", "problem.input_scale=1e4"],
    ["model.norm=batch", "model.residual=true", "accumulation.steps=3", "clipping.kind=norm", "clipping.max_norm=0.01"],
    ["model.norm=layer", "model.norm_position=post", "model.checkpointing=true", "precision.dtype=bf16"],
    ["precision.dtype=fp16", "precision.init_scale=1e30", "loss.weight=3", "mistakes.never_zero_grad=true"],
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("kind", MODELS)
def test_repeats_autograd_to_the_last_bit(build, monkeypatch, kind, knobs):
    rows, recorded, plain = both(
        build,
        monkeypatch,
        f"model.kind={kind}",
        f"problem.task={TASKS.get(kind, 'digits')}",
        "problem.seq_len=8",
        *knobs,
    )
    for one, other in rows:
        assert repr(figures(one)) == repr(figures(other))
    assert torch.equal(recorded.flat.weights.view(torch.int32), plain.flat.weights.view(torch.int32))
    for one, other in zip(recorded.model.buffers(), plain.model.buffers(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("knobs", [
    # whose episodes differ in length
    *(f"model.kind={kind} problem.task={TASKS.get(kind, 'digits')}" for kind in MODELS if kind != "policy"),
    *(f"loss.kind={kind} loss.eps=0.01" for kind in NAIVE), "model.norm=batch", "precision.dtype=fp16",
    "model.checkpointing=true",
], ids=str)  # fmt: skip
def test_the_third_step_is_a_repetition(build, monkeypatch, knobs):
    trainer = build(*knobs.split(), "problem.seq_len=8", "accumulation.steps=2")
    list(islice(trainer.steps(), 2))
    assert len(recordings(trainer)) == 2, "the first micro-batch of a step, and the others"
    monkeypatch.setattr(Recording, "__init__", None)
    monkeypatch.setattr(Tensor, "backward", None)  # autograd is not asked again
    next(trainer.steps())


def test_what_a_pass_depends_on_is_not_repeated(build):
    trainer, plain = build(), build("loss.weight=5")
    list(islice(zip(trainer.steps(), plain.steps(), strict=False), 4))
    trainer.flat.weights.data.copy_(plain.flat.weights.data)
    trainer.change("loss.weight", 5.0)
    assert [row.loss for row in islice(trainer.steps(), 4)] == [row.loss for row in islice(plain.steps(), 4)]


def record(compute, *inputs: Tensor, state=()):
    weight = torch.nn.Parameter(torch.arange(1.0, 5.0))
    return Recording(lambda *given: (compute(weight, *given),), inputs, [weight], [torch.zeros(4)], state)


@pytest.mark.parametrize("compute", [
    lambda weight, x: torch.nn.functional.dropout(weight * x, 0.5).sum(),
    lambda weight, x: (weight * x)[x > 0].sum(),
    lambda weight, x: (weight * x).sum() * (2.0 if x.sum().item() > 0 else 1.0),
    lambda weight, x: (weight * x)[torch.nonzero(x).flatten()].sum(),
    lambda weight, x: (weight * torch.rand(4)).sum(),
    lambda weight, x: (weight * x).sum() * x.tolist()[0],
    lambda weight, x: (weight * x * torch.from_numpy(x.numpy().copy())).sum(),
], ids=["dropout", "mask", "item", "nonzero", "rand", "list", "numpy"])  # fmt: skip
def test_what_depends_on_the_data_is_not_recorded(compute):
    with pytest.raises(Unrecordable):
        record(compute, torch.randn(4))


def test_a_large_pass_is_not_recorded(monkeypatch):
    monkeypatch.setattr(operation_calls, "MOST", 100)
    with pytest.raises(Unrecordable):
        record(lambda weight, x: (weight * x).exp().sum(), torch.randn(50, 4))


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_pass_changes_is_changed_once(fails):
    count = torch.zeros(())

    def compute(weight, x):
        count.add_(1)
        return (weight * x).sum() * (torch.rand(()) if fails else 1)

    if fails:
        with pytest.raises(Unrecordable):
            record(compute, torch.randn(4), state=[count])
        assert count.item() == 0, "it goes through autograd next, which counts"
    else:
        again = record(compute, torch.randn(4), state=[count])
        assert count.item() == 1
        again.repeat([torch.randn(4)])
        assert count.item() == 2


def test_memory_is_shared_by_what_is_not_needed_at_once():
    def compute(weight, x):
        for _ in range(30):
            x = x.tanh() + 1
        return (weight * x).sum()

    inputs = torch.randn(1000, 4)
    repeated = record(compute, inputs)
    places = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for operation in repeated.operations
        for tensor in operation.args
        if isinstance(tensor, Tensor)
    }
    assert max(places.values()) < 6 * inputs.nbytes, "the sixty results in between share their places"
    other = torch.randn(1000, 4)
    repeated.repeat([other])
    assert repeated.results[0].item() == compute(torch.arange(1.0, 5.0), other).item()


@pytest.mark.parametrize("size", [8, 100_000])
def test_results_that_cannot_be_told_where_are_copied_or_taken_over(size):
    def compute(weight, x):
        folded = torch.nn.functional.conv1d(x.view(1, 1, -1), weight[:3].view(1, 1, 3))
        return (folded.squeeze() + folded.view(-1).flip(0)).square().mean()

    one, other = torch.randn(size), torch.randn(size)
    repeated = record(compute, one)
    repeated.repeat([other])
    assert repeated.results[0].item() == compute(torch.arange(1.0, 5.0), other).item()


def test_no_memory_of_the_watched_pass_is_held():
    def compute(weight, x):
        for _ in range(10):
            x = torch.nn.functional.conv1d(x.view(1, 1, -1), weight[:3].view(1, 1, 3)).view(-1)
        return x.square().mean()

    inputs = torch.randn(100_000)
    repeated = record(compute, inputs)
    tensors = [
        tensor for operation in repeated.operations for tensor in tensors_in((operation.args, operation.keywords))
    ]
    held = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    assert sum(held.values()) < 6 * inputs.nbytes


def test_a_large_result_has_its_new_values_each_time():
    def compute(weight, x):
        folded = torch.nn.functional.conv1d(x.view(1, 1, -1), weight[:3].view(1, 1, 3))
        return folded.square().mean(), folded

    weight, one, other = torch.nn.Parameter(torch.arange(1.0, 5.0)), torch.randn(100_000), torch.randn(100_000)
    repeated = Recording(lambda x: compute(weight, x), [one], [weight], [torch.zeros(4)])
    for inputs in (other, one):
        repeated.repeat([inputs])
        assert torch.equal(repeated.results[1], compute(weight, inputs)[1])


def test_what_is_taken_by_an_index_is_repeated_too():
    def compute(weight, x):
        return (weight.tanh() * x)[x.argsort()].exp().sum()

    one, other = torch.randn(4), torch.randn(4)
    repeated = record(compute, one)
    repeated.repeat([other])
    assert repeated.results[0].item() == compute(torch.arange(1.0, 5.0), other).item()


def test_the_kinds_made_last_are_kept(build):
    trainer = build()
    steps = trainer.steps()
    for count in range(1, 6):
        trainer.change("accumulation.steps", count)
        list(islice(steps, 3))
        assert len(recordings(trainer)) >= min(count, 2)
    assert len(trainer.passes._known) == forward_backward.MOST


def test_a_slider_that_is_dragged_records_nothing(build, monkeypatch):
    monkeypatch.setattr(forward_backward, "PATIENCE", 5)
    made = []
    trainer = build()
    monkeypatch.setattr(trainer.passes, "_record", lambda *_: made.append(1))
    steps = trainer.steps()
    for step in range(20):
        trainer.change("loss.weight", 1.0 + step)
        list(islice(steps, 3))
    assert not made
    list(islice(steps, 4))
    assert made


def test_a_fault_of_recording_is_no_fault_of_the_run(build, monkeypatch):
    def broken(*_):
        raise IndexError("of the recorder's own")

    broke, plain = build(), build()
    monkeypatch.setattr(plain.passes, "_record", lambda *_: None)
    monkeypatch.setattr(tensor_places.TensorPlaces, "move", broken)
    notices.take()
    for one, other in islice(zip(broke.steps(), plain.steps(), strict=False), STEPS):
        assert figures(one) == figures(other)
    assert not recordings(broke)
    (told,) = notices.take()
    assert "IndexError: of the recorder's own" in told and "same numbers" in told


def test_a_pass_that_cannot_be_repeated_is_nothing_to_tell(build):
    notices.take()
    trainer = build("model.kind=policy", "problem.task=pole")
    trainer.passes._record(
        lambda x: (trainer.flat.parameters[0].sum() * torch.rand(()), x), [torch.ones(2)], trainer.flat.grads
    )
    assert notices.take() == []
