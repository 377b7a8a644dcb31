"""Gauges of a run: measured while somebody looks, in a small share of the time, at once on a run that stands, and never a fault of the run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS
from gradstudio.core.presets import Preset
from gradstudio.core.probes import NAMES, Exponents, NoiseScale, Overshoot, Shares, Sharpness
from gradstudio.engine import probes
from gradstudio.session import probe_words, probing
from gradstudio.session.probing import Probing
from gradstudio.session.run import Run
from gradstudio.session.simulator import Simulator
from gradstudio.session.worker import Probe, Worker

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 60, "run.device": "cpu"}


def preset(**values: object) -> Preset:
    knobs = SMALL | {name.replace("__", "."): value for name, value in values.items()}
    return Preset(id="small", title="Small", experiment=Experiment().with_values(knobs))


def new_run(**values: object) -> Run:
    one = preset(**values)
    return Run(one, one.experiment)


@pytest.fixture
def simulator() -> Iterator[Callable[..., Simulator]]:
    made: list[Simulator] = []

    def make(**values: object) -> Simulator:
        made.append(Simulator(preset(**values)))
        return made[-1]

    yield make
    for one in made:
        assert one.close(10)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what another thread does; an event that never comes is the failure."""
    end, tick = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        tick.wait(0.005)


def rows(run: Run) -> bytes:
    columns = [run.history.column(name) for name in COLUMNS if name != "step_seconds"]
    return np.stack(columns).tobytes() + run.history.layer_metric("grad_norm").tobytes()


def test_nothing_is_measured_that_nobody_looks_at() -> None:
    run = new_run()
    Worker(run).run()
    assert run.status == "finished" and run.probes == {} == run.probe_problems


@pytest.mark.parametrize("values", [{}, {"precision__dtype": "fp16", "optimizer__kind": "adam", "accumulation__steps": 2}])
def test_a_run_that_is_looked_at_is_the_same(values: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """At every step."""
    monkeypatch.setattr(probing, "SHARE", 1e9)
    monkeypatch.setattr(probing, "SOONEST", 0.0)
    alone, looked_at = new_run(**values), new_run(**values)
    Worker(alone).run()
    worker = Worker(looked_at)
    worker.send(Probe(frozenset(NAMES)))
    worker.run()
    assert rows(alone) == rows(looked_at) and alone.accuracy == looked_at.accuracy
    assert set(looked_at.probes) == set(NAMES) and sum(map(len, looked_at.probes.values())) > 50


def test_a_run_that_stands_is_measured_at_once_and_again_after_each_step_and_change(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    one.step()
    until(lambda: len(one.run.history) == 1)
    assert one.run.probes == {}
    one.probe(NAMES)
    until(lambda: set(one.run.probes) == set(NAMES))
    assert {name: [step for step, _ in found] for name, found in one.run.probes.items()} == {name: [1] for name in NAMES}
    one.step()
    until(lambda: all(found[-1][0] == 2 for found in one.run.probes.values()))
    limit = one.run.probes["sharpness"][-1][1].limit
    one.set("optimizer.lr", one.requested.optimizer.lr / 2)
    until(lambda: one.run.probes["sharpness"][-1][1].limit == 2 * limit)
    assert [step for step, _ in one.run.probes["sharpness"]] == [1, 2], "a step has one sample"
    one.probe(())
    one.step()
    until(lambda: len(one.run.history) == 3 and one.run.status == "paused")
    assert all(found[-1][0] == 2 for found in one.run.probes.values())


def test_who_looks_before_the_run_begins_and_at_its_branch_sees_both(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    one.probe(["noise_scale"])
    one.play()
    until(lambda: one.run.over)
    first = one.run
    assert set(first.probes) == {"noise_scale"}
    before = list(first.probes["noise_scale"])
    one.rewind(10)
    until(lambda: "noise_scale" in one.run.probes)
    assert one.run is not first and [step for step, _ in one.run.probes["noise_scale"]] == [10]
    assert first.probes["noise_scale"] == before


def test_they_take_a_tenth_of_the_time() -> None:
    """A run of 4 s: what is spent in gauges, once each was set up, is a share of what passed."""
    run = new_run(run__steps=10**6, model__width=64, model__depth=3)
    worker = Worker(run, speed=200)
    spent: list[float] = []
    measure = Probing.measure

    def timed(self: Probing, trainer: object, name: str) -> None:
        begin = time.perf_counter()
        measure(self, trainer, name)
        spent.append(time.perf_counter() - begin)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Probing, "measure", timed)
        worker.send(Probe(frozenset(NAMES)))
        worker.start()
        until(lambda: len(spent) >= 8)
        begin, counted = time.perf_counter(), len(spent)
        threading.Event().wait(4)
        share = sum(spent[counted:]) / (time.perf_counter() - begin)
        worker.let_go()
        from gradstudio.session.worker import Stop

        worker.send(Stop())
        worker.join(10)
    assert 0.01 < share < 0.16
    assert all(len(found) >= 2 for found in run.probes.values())


def test_an_exception_in_a_gauge_is_a_message_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel for that\nand much more")

    monkeypatch.setattr(probes.sharpness, "largest", broken)
    run = new_run()
    worker = Worker(run)
    worker.send(Probe(frozenset(NAMES)))
    worker.run()
    assert run.status == "finished" and not worker.failure
    assert run.probe_problems == {"sharpness": "It could not be measured (RuntimeError: no kernel for that)."}
    assert set(run.probes) == set(NAMES) - {"sharpness"}


def test_a_run_that_breaks_under_the_eyes_of_somebody_ends_as_it_does_alone() -> None:
    values = {"optimizer__lr": 1e6, "loss__kind": "naive_exp"}
    alone, looked_at = new_run(**values), new_run(**values)
    Worker(alone).run()
    worker = Worker(looked_at)
    worker.send(Probe(frozenset(NAMES)))
    worker.run()
    assert looked_at.probes["exponents"][0][0] == 0
    assert alone.status == looked_at.status == "nonfinite" and alone.first_nonfinite_step == looked_at.first_nonfinite_step


# ---- in words


def spread(
    plain: Shares, scale: float = 1.0, scaled: Shares | None = None, best_scale: float = 1.0, best: Shares | None = None, **odd: int
) -> Exponents:
    none = Shares(0.0, 0.0, 0.0)
    counts = np.ones(277, np.int64)
    return Exponents(counts, odd.get("zeros", 0), odd.get("nonfinite", 0), plain, scale, scaled or plain, best_scale, best or none)


LOST, FEW = Shares(0.31, 0.2, 0.0), Shares(0.002, 0.1, 0.0)


@pytest.mark.parametrize(
    ("dtype", "found", "told"),
    [
        ("fp16", spread(LOST, 65536.0, FEW, 65536.0, FEW), "31 % of the entries are below what fp16 can hold; scaled by 2¹⁶, 0.2 %."),
        ("fp16", spread(LOST, 1.0, LOST, 1024.0), "31 % of the entries are below what fp16 can hold, and there is no loss scale. Scaled by 2¹⁰ it would be none."),
        ("fp16", spread(LOST, 8.0, LOST, 1024.0), "31 % of the entries are below what fp16 can hold; scaled by 2³, 31 %. 2¹⁰ would leave none."),
        ("fp32", spread(LOST, 1.0, LOST, 1024.0, FEW), "31 % of the entries are below what fp16 could hold; scaled by 2¹⁰ it would be 0.2 %. fp32 holds them as they are."),
        ("fp32", spread(Shares(0, 0, 0)), "Every entry is within what fp16 can hold, without a loss scale."),
        ("fp16", spread(FEW, 3.0, Shares(0.0, 0.0, 0.5)), "0.2 % of the entries are below what fp16 can hold; scaled by 3, none. But 50 % are then above 65504, the largest number of fp16: an overflow."),
        ("fp16", spread(Shares(1e-6, 0, 0), 8.0, Shares(0, 0, 0)), "Less than 0.01 % of the entries are below what fp16 can hold; scaled by 2³, none."),
        ("fp16", spread(Shares(0, 0, 0), 8.0, Shares(0, 0, 0.5)), "No entry is below what fp16 can hold, without the loss scale and with it. But 50 % are then above 65504, the largest number of fp16: an overflow."),
        ("fp16", spread(Shares(0, 0, 0.1)), "10 % are above 65504, the largest number of fp16."),
        ("fp16", spread(Shares(0, 0, 0)), "Every entry is within what fp16 can hold, without a loss scale."),
        ("fp32", spread(Shares(0, 0, 0), zeros=277, nonfinite=1), "Every entry is within what fp16 can hold, without a loss scale. 1 entry is NaN or Inf. 50 % of all are exactly 0, and not counted."),
    ],
)  # fmt: skip
def test_exponents_in_words(dtype: str, found: Exponents, told: str) -> None:
    assert probe_words.exponents(found, new_run(precision__dtype=dtype)).replace("\N{NO-BREAK SPACE}", " ") == told


@pytest.mark.parametrize(
    ("kind", "found", "told"),
    [
        ("sgd", Sharpness(41, 20, 0.1, False, True, 3), "Sharpness 41 is over 2/lr = 20: the step is too long for the steepest direction."),
        ("adam", Sharpness(41, 380, 0.1, True, True, 3), "Sharpness 41, as Adam sees it, is under 38/lr = 380: the step is short enough"),
        ("sgd", Sharpness(20.5, 20, 0.1, False, True, 3), "Sharpness 20.5 is at 2/lr = 20, the edge of stability"),
        ("sgd", Sharpness(12, 20, 0.1, False, False, 3), "Sharpness at least 12, against 2/lr = 20: it takes more samples"),
        ("adam", Sharpness(12, 380, 0.1, True, False, 3), "Sharpness at least 12, as Adam sees it, against 38/lr = 380"),
        ("rmsprop", Sharpness(-1, 20, 0.1, True, True, 3), "Sharpness -1, as RMSprop sees it: no direction"),
        ("sgd", Sharpness(-0.5, 20, 0.1, False, True, 3), "Sharpness -0.5: no direction curves upward"),
        ("sgd", Sharpness(41, math.inf, 0.0, False, True, 3), "Sharpness 41; the learning rate is 0"),
    ],
)
def test_sharpness_in_words(kind: str, found: Sharpness, told: str) -> None:
    assert probe_words.sharpness(found, new_run(optimizer__kind=kind)).startswith(told)


def test_a_step_that_clipping_shortens_is_told() -> None:
    run = new_run(clipping__kind="norm", clipping__max_norm=1e-3)
    Worker(run).run()
    assert probe_words.sharpness(Sharpness(41, 20, 0.1, False, True, 3), run).endswith("Clipping makes it shorter, which holds the run together.")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (NoiseScale(340, 32, 1, 340, 50), "From about 340 examples on a larger batch helps little; the batch has 32. Each step is mostly noise"),
        (NoiseScale(34, 32, 1, 34, 50), "which suits it."),
        (NoiseScale(3.456, 32, 1, 3, 50), "From about 3.5 examples on a larger batch helps little; the batch has 32, more than it takes"),
        (NoiseScale(math.inf, 32, -1, 3, 50), "The gradient is lost in its noise"),
        (NoiseScale(34, 32, 1, 34, 1), "This is of 1 sample yet"),
    ],
)
def test_noise_in_words(found: NoiseScale, told: str) -> None:
    assert told in probe_words.noise_scale(found)


@pytest.mark.parametrize(
    ("losses", "ratio", "told"),
    [
        ((2.0, 1.9, 1.85, 2.0), 1.0, "came close to the minimum: 1 times the step to the minimum in its way. The loss of the probe batch went from 2 to 1.85."),
        ((2.0, 1.9, 2.1, 3.0), 2.3, "so far past the minimum that the loss came out higher: 2.3 times"),
        ((2.0, 1.9, 1.95, 3.0), 1.6, "went past the minimum: 1.6 times"),
        ((2.30001, 2.3, 2.30000, 2.29), 0.1, "stopped well before the minimum: 0.1 times the step to the minimum in its way. The loss of the probe batch went from 2.30001 to 2.3."),
        ((2.0, 1.5, 1.0, 0.0), 0.0, "has no minimum ahead"),
        ((2.0, 2.5, 3.0, 4.0), math.inf, "led uphill"),
        ((2.0, 2.5, math.nan, 4.0), math.inf, "left a loss that is NaN"),
    ],
)  # fmt: skip
def test_overshoot_in_words(losses: tuple[float, ...], ratio: float, told: str) -> None:
    assert told in probe_words.overshoot(Overshoot(losses, ratio))
