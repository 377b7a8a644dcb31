"""Passes as graphs: all of it but CUDA's own capture, for which a function that is called again stands in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

import pytest
import torch
from torch import Tensor

from gradstudio.core.knobs import KnobError
from gradstudio.engine.models import MODELS
from gradstudio.engine.passes import forward_backward
from gradstudio.engine.passes.cuda_graph import Graph
from gradstudio.engine.passes.forward_backward import Results
from gradstudio.engine.passes.operation_calls import Unrecordable
from gradstudio.engine.step import reading

STEPS = 6
TASKS = {
    "gan": "ring",
    "policy": "pole",
    "rnn": "adding",
    "lstm": "copy",
    "gru": "characters",
    "transformer": "characters",
}


def standin(function: Callable[[], Results]) -> tuple[Results, Callable[[], None]]:
    """As CUDA's capture: passes before it, and what is done again writes to the same results."""
    function()
    results = tuple(result.clone() for result in function())

    def again() -> None:
        for place, result in zip(results, function(), strict=True):
            place.copy_(result)

    return results, again


def figures(row):
    return repr((row.loss, row.grad_norm, row.clipped_norm, row.accuracy, row.scale, row.skipped, row.layers.tobytes()))


def graphs(trainer) -> list[Graph]:
    return [known for known in trainer.passes._known.values() if isinstance(known, Graph)]


def both(build, monkeypatch, capture, *knobs):
    """The rows of a run of graphs and of one through autograd, bit by bit the same; and the trainer of the first."""
    monkeypatch.setitem(forward_backward.RECORDERS, "cpu", partial(Graph, capture=capture))
    try:
        graphed, plain = build(*knobs), build(*knobs)
    except KnobError as fault:
        pytest.skip(str(fault))
    monkeypatch.setattr(plain.passes, "_record", lambda *_: None)
    for one, other in islice(zip(graphed.steps(), plain.steps(), strict=False), STEPS):
        assert figures(one) == figures(other)
    assert torch.equal(graphed.flat.weights.view(torch.int32), plain.flat.weights.view(torch.int32))
    for one, other in zip(graphed.model.buffers(), plain.model.buffers(), strict=True):
        assert torch.equal(one, other)
    return graphed


@pytest.mark.parametrize("knobs", [
    ["model.norm=batch", "model.residual=true"],
    ["accumulation.steps=3", "clipping.kind=norm", "clipping.max_norm=0.01"],
    ["precision.dtype=bf16", "model.checkpointing=true"],
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("kind", MODELS)
def test_a_graph_repeats_autograd_to_the_last_bit(build, monkeypatch, kind, knobs):
    trainer = both(
        build,
        monkeypatch,
        standin,
        f"model.kind={kind}",
        f"problem.task={TASKS.get(kind, 'digits')}",
        "problem.seq_len=8",
        *knobs,
    )
    expected = 2 if "accumulation.steps=3" in knobs else 1
    assert kind == "policy" or len(graphs(trainer)) == expected, "the first micro-batch of a step, and the others"


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_capture_that_fails_leaves_no_trace(build, monkeypatch, when):
    def broken(function):
        if when != "before":
            function()
        if when == "after":
            return function(), lambda: None  # it replays nothing
        raise RuntimeError("operation not permitted when stream is capturing")

    assert not graphs(both(build, monkeypatch, broken, "model.norm=batch", "accumulation.steps=2"))


def graph(compute, *inputs: Tensor, state=(), grad=None, capture=standin):
    weight, unused = torch.nn.Parameter(torch.arange(1.0, 5.0)), torch.nn.Parameter(torch.ones(2))
    grads = [torch.zeros(4) if grad is None else grad, torch.full((2,), 9.0)]
    made = Graph(lambda *given: (compute(weight, *given),), inputs, [weight, unused], grads, state, capture)
    assert grads[1].tolist() == [0, 0], "of a parameter that nothing depends on"
    return made


def test_it_is_done_again_on_other_data_and_changes_state_once():
    count, grad = torch.zeros(()), torch.zeros(4)

    def compute(weight, x):
        count.add_(1)
        return (weight * x).sum()

    made = graph(compute, torch.randn(4), state=[count], grad=grad)
    assert count.item() == 1
    other = torch.randn(4)
    made.repeat([other])
    assert count.item() == 2 and torch.equal(grad, other)
    assert made.results[0].item() == (torch.arange(1.0, 5.0) * other).sum().item()


@pytest.mark.parametrize("compute", [
    lambda weight, x: torch.nn.functional.dropout(weight * x, 0.5).sum(), lambda weight,
    x: (weight * torch.rand(4)).sum(),
], ids=["dropout", "rand"])  # fmt: skip
def test_random_numbers_are_not_trusted(compute):
    torch.manual_seed(1)
    count = torch.zeros(())
    with pytest.raises(Unrecordable):
        graph(lambda weight, x: (count.add_(1), compute(weight, x))[1], torch.randn(4), state=[count])
    assert count.item() == 0, "it goes through autograd next, which counts"


def test_what_does_not_follow_the_data_is_not_trusted():
    def frozen(function):
        """As a capture would be whose host looked at the data."""
        return function(), lambda: None

    with pytest.raises(Unrecordable):
        graph(lambda weight, x: (weight * x).sum(), torch.randn(4), capture=frozen)


def test_rows_that_are_read_late_are_those_of_graphs(build, monkeypatch):
    """A result that is valid until the next pass is read before it."""
    knobs = ("accumulation.steps=2", "clipping.kind=norm", "model.norm=batch")
    direct = list(islice(build(*knobs).steps(), 8))
    monkeypatch.setitem(forward_backward.RECORDERS, "cpu", partial(Graph, capture=standin))
    monkeypatch.setitem(reading.LAG, "cpu", 4)
    late = build(*knobs)
    rows = [row for _ in range(8) for row in late.advance()] + late.settle()
    assert [(row.loss, row.accuracy, row.lr) for row in rows] == [(row.loss, row.accuracy, row.lr) for row in direct]
    assert len(graphs(late)) == 2
