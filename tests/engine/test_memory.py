"""What cannot fit into memory is refused before anything is made, and what is refused could not have been trained."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from gradstudio.core import free_memory
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.engine import memory
from gradstudio.engine.passes.operation_calls import storage_of
from gradstudio.engine.trainer import Trainer
from gradstudio.session.record.run import Run
from gradstudio.session.running import run_driver
from gradstudio.session.running.worker import Worker

MODELS = {
    "mlp": [],
    "cnn": ["model.norm=batch"],
    "rnn": ["problem.task=adding"],
    "lstm": ["problem.task=copy"],
    "gru": ["problem.task=sequential_digits"],
    "transformer": ["problem.task=characters"],
    "gan": ["problem.task=ring"],
    "policy": ["problem.task=pole"],
}
SMALL = ["model.width=16", "model.depth=2", "problem.batch_size=12", "problem.seq_len=8", "run.device=cpu"]


def experiment(kind: str, *texts: str) -> Experiment:
    small = [text for text in SMALL if "seq_len" not in text or kind not in ("mlp", "cnn", "gan")]
    return Experiment().with_texts([f"model.kind={kind}", *MODELS[kind], *small, *texts])


def kept(trainer: Trainer) -> int:
    """Bytes that the forward pass of a whole micro-batch keeps, without the weights."""
    seen = {storage_of(tensor) for tensor in (*trainer.model.parameters(), *trainer.model.buffers())}
    held, sizes = [], []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor.detach())
        if storage_of(tensor) not in seen:
            seen.add(storage_of(tensor))
            sizes.append(tensor.untyped_storage().nbytes())
        return held[-1]

    (batch,) = trainer.next_batches()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = trainer.compute(*batch, divisor=1)[0]
    del loss
    return sum(sizes)


@pytest.mark.parametrize("kind", MODELS)
def test_the_estimate_is_a_close_lower_bound_and_leaves_no_trace(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Trainer(experiment(kind))
    monkeypatch.setattr(memory, "UNCHECKED", 0)
    trainer = Trainer(experiment(kind))
    rows = [[repr(next(each.steps()).loss) for _ in range(2)] for each in (plain, trainer)]
    assert rows[0] == rows[1]
    found = kept(Trainer(experiment(kind)))
    assert 0.25 * found < trainer.batch_bytes <= found
    weights = [weakref.ref(weight) for each in (plain, trainer) for weight in each.model.parameters()]
    del plain, trainer
    gc.collect()
    assert not any(weight() is not None for weight in weights)  # a graph that holds itself would hold them for good


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_too_large_is_refused_with_what_it_takes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "UNCHECKED", 0)
    for size, what in ((3000, "weights and what is kept of them"), (30_000, "a step")):
        monkeypatch.setattr(memory, "free", lambda size=size: size)
        larger = (
            ["model.width=32"] if "weights" in what else ["model.width=4", "model.depth=1", "problem.batch_size=1024"]
        )
        with pytest.raises(KnobError, match=f"{what} would take .* GB of memory or more; allowed: what fits into"):
            Trainer(experiment(kind, "run.steps=1", *larger))


def test_many_micro_batches_are_refused_before_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(experiment("rnn"))
    monkeypatch.setattr(memory, "UNCHECKED", 0)
    monkeypatch.setattr(memory, "free", lambda: 20_000)
    with pytest.raises(KnobError, match="the batches of a step would take"):
        trainer.change("accumulation.steps", 256)
    trainer.change("accumulation.steps", 2)
    assert trainer.experiment.accumulation.steps == 2


def test_a_large_batch_that_does_not_fit_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "UNCHECKED", 0)
    trainer = Trainer(experiment("mlp", "accumulation.steps=4"))
    trainer.requests.compare = True
    monkeypatch.setattr(memory, "free", lambda: 3 * trainer.batch_bytes)
    row = next(trainer.steps())
    assert row.joined_difference is None
    assert row.joined_problem == "not compared: the large batch does not fit into memory"


def test_the_free_memory_is_known_here_and_unlimited_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < memory.free() <= 1 << 62
    monkeypatch.setattr(free_memory, "_number", lambda path, read: None)
    assert memory.free() == 1 << 62 and memory.fits(1 << 50)


def test_the_rows_of_more_steps_than_fit_are_refused_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 4 << 30)
    Trainer(experiment("mlp", "run.steps=10000000"))
    with pytest.raises(
        KnobError, match=r"the rows of 100,000,000 steps would take 22\.4 GB of memory or more; .* 4\.3 GB"
    ):
        Trainer(experiment("mlp", "run.steps=100000000"))


def test_a_run_ends_in_words_where_no_more_rows_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_driver, "BLOCK", 4)
    checked = iter((True, False))
    monkeypatch.setattr(memory, "fits", lambda taken: next(checked))
    preset = Preset(id="small", title="Small", experiment=experiment("mlp", "run.steps=9"))
    run = Run(preset, preset.experiment)
    Worker(run).run()
    assert run.status == "failed" and "the rows of 4,096 more steps do not fit" in run.message, run.message
    assert len(run.history) == 4
