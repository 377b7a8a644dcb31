"""Gauges of a run: measured while somebody looks, in a small share of the time, at once on a run that stands, and never
a fault of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import PATIENCE, hold, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.gauge_samples import (
    CLIPPED_BY,
    NAMES,
    ClippedGradient,
    ClippingEffect,
    Exponents,
    Logits,
    NoiseScale,
    Overshoot,
    Shares,
    Sharpness,
)
from gradstudio.core.history import COLUMNS
from gradstudio.core.presets import Preset
from gradstudio.engine import probes
from gradstudio.engine.trainer import Trainer
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.running import gauge_sampling
from gradstudio.session.running.gauge_sampling import GaugeSampler
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import WatchGauges
from gradstudio.session.simulator import Simulator
from gradstudio.session.words import gauge_readings

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
        assert one.close(PATIENCE)


def rows(run: Run) -> bytes:
    columns = [run.history.column(name) for name in COLUMNS if name != "step_seconds"]
    return np.stack(columns).tobytes() + run.history.layer_metric("grad_norm").tobytes()


def test_nothing_is_measured_that_nobody_looks_at() -> None:
    run = new_run()
    Worker(run).run()
    assert run.status == "finished" and run.gauge_samples == {} == run.gauge_problems


@pytest.mark.parametrize(
    "values", [{}, {"precision__dtype": "fp16", "optimizer__kind": "adam", "accumulation__steps": 2}]
)
def test_a_run_that_is_looked_at_is_the_same(values: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """At every step."""
    monkeypatch.setattr(gauge_sampling, "SHARE", 1e9)
    monkeypatch.setattr(gauge_sampling, "SOONEST", 0.0)
    alone, looked_at = new_run(**values), new_run(**values)
    Worker(alone).run()
    worker = Worker(looked_at)
    worker.send(WatchGauges(frozenset(NAMES)))
    worker.run()
    assert rows(alone) == rows(looked_at) and alone.accuracy == looked_at.accuracy
    assert set(looked_at.gauge_samples) == set(NAMES) and sum(map(len, looked_at.gauge_samples.values())) > 50


def test_a_run_that_stands_is_measured_at_once_and_again_after_each_step_and_change(
    simulator: Callable[..., Simulator],
) -> None:
    one = simulator()
    hold(one, 1)
    assert one.run.gauge_samples == {}
    one.watch_gauges(NAMES)
    until(lambda: set(one.run.gauge_samples) == set(NAMES))
    assert {name: [step for step, _ in found] for name, found in one.run.gauge_samples.items()} == {
        name: [1] for name in NAMES
    }
    one.step()
    until(lambda: all(found[-1][0] == 2 for found in one.run.gauge_samples.values()))
    limit = one.run.gauge_samples["sharpness"][-1][1].limit
    one.set("optimizer.lr", one.requested.optimizer.lr / 2)
    until(lambda: one.run.gauge_samples["sharpness"][-1][1].limit == 2 * limit)
    assert [step for step, _ in one.run.gauge_samples["sharpness"]] == [1, 2], "a step has one sample"
    one.watch_gauges(())
    hold(one, 3)
    assert all(found[-1][0] == 2 for found in one.run.gauge_samples.values())


def test_who_looks_before_the_run_begins_and_at_its_branch_sees_both(simulator: Callable[..., Simulator]) -> None:
    one = simulator()
    one.watch_gauges(["noise_scale"])
    one.play()
    until(lambda: one.run.over)
    first = one.run
    assert set(first.gauge_samples) == {"noise_scale"}
    before = list(first.gauge_samples["noise_scale"])
    one.rewind(10)
    until(lambda: "noise_scale" in one.run.gauge_samples)
    assert one.run is not first and [step for step, _ in one.run.gauge_samples["noise_scale"]] == [10]
    assert first.gauge_samples["noise_scale"] == before


def test_they_take_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by what each gauge and each step cost, so that nothing else of the machine counts."""
    clock = [0.0]
    costs = dict(zip(NAMES, (0.002, 0.03, 0.01, 0.05, 0.01, 0.004), strict=True))
    monkeypatch.setattr(gauge_sampling, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    measure = probes.OnDemandGauges.measure

    def timed(self: probes.OnDemandGauges, name: str) -> object:
        clock[0] += costs[name]
        return measure(self, name)

    monkeypatch.setattr(probes.OnDemandGauges, "measure", timed)
    run = new_run(run__steps=10**6)
    trainer, sampler, spent = Trainer(run.experiment), GaugeSampler(RunWriter(run)), 0.0
    sampler.want(frozenset(NAMES))
    while clock[0] < 12:
        if name := sampler.due(trainer):
            began = clock[0]
            sampler.measure(trainer, name)
            spent += clock[0] - began
        trainer.advance()
        clock[0] += 0.005
    assert 0.07 < spent / clock[0] < 0.11
    assert all(len(found) >= 4 for found in run.gauge_samples.values()), {
        name: len(run.gauge_samples[name]) for name in NAMES
    }


def test_an_exception_in_a_gauge_is_a_message_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel for that\nand much more")

    monkeypatch.setattr(probes.sharpness, "largest", broken)
    run = new_run()
    worker = Worker(run)
    worker.send(WatchGauges(frozenset(NAMES)))
    worker.run()
    assert run.status == "finished" and not worker.failure
    assert run.gauge_problems == {"sharpness": "It could not be measured (RuntimeError: no kernel for that)."}
    assert set(run.gauge_samples) == set(NAMES) - {"sharpness"}


def test_a_run_that_breaks_under_the_eyes_of_somebody_ends_as_it_does_alone() -> None:
    values = {"optimizer__lr": 1e6, "loss__kind": "naive_exp"}
    alone, looked_at = new_run(**values), new_run(**values)
    Worker(alone).run()
    worker = Worker(looked_at)
    worker.send(WatchGauges(frozenset(NAMES)))
    worker.run()
    assert looked_at.gauge_samples["exponents"][0][0] == 0
    assert (
        alone.status == looked_at.status == "nonfinite" and alone.first_nonfinite_step == looked_at.first_nonfinite_step
    )


# ---- in words


def spread(
    plain: Shares,
    scale: float = 1.0,
    scaled: Shares | None = None,
    best_scale: float = 1.0,
    best: Shares | None = None,
    **odd: int,
) -> Exponents:
    none = Shares(0.0, 0.0, 0.0)
    counts = np.ones(277, np.int64)
    return Exponents(
        counts, odd.get("zeros", 0), odd.get("nonfinite", 0), plain, scale, scaled or plain, best_scale, best or none
    )


LOST, FEW = Shares(0.31, 0.2, 0.0), Shares(0.002, 0.1, 0.0)


@pytest.mark.parametrize(
    ("dtype", "found", "told"),
    [
        ("fp16", spread(LOST, 65536.0, FEW, 65536.0, FEW), "31 % of the entries underflow in fp16 without a loss scale; "
            "with a scale of 2¹⁶, 0.2 %."),
        ("fp16", spread(LOST, 1.0, LOST, 1024.0), "31 % of the entries underflow in fp16, and there is no loss scale. "
            "With a scale of 2¹⁰: none."),
        ("fp16", spread(LOST, 8.0, LOST, 1024.0), "31 % of the entries underflow in fp16 without a loss scale; with a "
            "scale of 2³, 31 %. A scale of 2¹⁰ would lose none."),
        ("fp32", spread(LOST, 1.0, LOST, 1024.0, FEW), "31 % of the entries would underflow in fp16; with a scale of "
            "2¹⁰: 0.2 %. fp32 holds them as they are."),
        ("fp32", spread(Shares(0, 0, 0)), "Every entry is within what fp16 can hold, without a loss scale."),
        ("fp16", spread(FEW, 3.0, Shares(0.0, 0.0, 0.5)), "0.2 % of the entries underflow in fp16 without a loss "
            "scale; with a scale of 3, none. But 50 % are then above 65504, the largest number of fp16: an overflow."),
        ("fp16", spread(Shares(1e-6, 0, 0), 8.0, Shares(0, 0, 0)), "Less than 0.01 % of the entries underflow in fp16 "
            "without a loss scale; with a scale of 2³, none."),
        ("fp16", spread(Shares(0, 0, 0), 8.0, Shares(0, 0, 0.5)), "No entry underflows in fp16, with or without the "
            "loss scale. But 50 % are then above 65504, the largest number of fp16: an overflow."),
        ("fp16", spread(Shares(0, 0, 0.1)), "10 % are above 65504, the largest number of fp16."),
        ("fp16", spread(Shares(0, 0, 0)), "Every entry is within what fp16 can hold, without a loss scale."),
        ("fp32", spread(Shares(0, 0, 0), zeros=277, nonfinite=1), "Every entry is within what fp16 can hold, without "
            "a loss scale. 1 entry is NaN or Inf. 50 % of all entries are exactly 0 and are not counted."),
    ],
)  # fmt: skip
def test_exponents_in_words(dtype: str, found: Exponents, told: str) -> None:
    assert gauge_readings.exponents(found, new_run(precision__dtype=dtype)).replace("\N{NO-BREAK SPACE}", " ") == told


@pytest.mark.parametrize(
    ("kind", "found", "told"),
    [
        (
            "sgd",
            Sharpness(41, 20, 0.1, False, True, 3),
            "Sharpness 41 is over 2/lr = 20: the step is too long for the direction of largest curvature.",
        ),
        (
            "adam",
            Sharpness(41, 380, 0.1, True, True, 3),
            "Sharpness 41, as Adam sees it, is under 38/lr = 380: the step is short enough",
        ),
        ("sgd", Sharpness(20.5, 20, 0.1, False, True, 3), "Sharpness 20.5 is at 2/lr = 20, the edge of stability"),
        (
            "sgd",
            Sharpness(12, 20, 0.1, False, False, 3),
            "Sharpness at least 12, against 2/lr = 20: more samples are needed",
        ),
        (
            "adam",
            Sharpness(12, 380, 0.1, True, False, 3),
            "Sharpness at least 12, as Adam sees it, against 38/lr = 380",
        ),
        ("rmsprop", Sharpness(-1, 20, 0.1, True, True, 3), "Sharpness -1, as RMSprop sees it: no direction"),
        ("sgd", Sharpness(-0.5, 20, 0.1, False, True, 3), "Sharpness -0.5: no direction curves upward"),
        ("sgd", Sharpness(41, math.inf, 0.0, False, True, 3), "Sharpness 41; the learning rate is 0"),
    ],
)
def test_sharpness_in_words(kind: str, found: Sharpness, told: str) -> None:
    assert gauge_readings.sharpness(found, new_run(optimizer__kind=kind)).startswith(told)


def test_a_step_that_clipping_shortens_is_told() -> None:
    run = new_run(clipping__kind="norm", clipping__max_norm=1e-3)
    Worker(run).run()
    assert gauge_readings.sharpness(Sharpness(41, 20, 0.1, False, True, 3), run).endswith(
        "Clipping makes the step shorter, which keeps the run stable."
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            NoiseScale(340, 32, 1, 340, 50),
            "Above about 340 examples, a larger batch helps little; the batch has 32. Each step is mostly noise",
        ),
        (NoiseScale(34, 32, 1, 34, 50), "which is about right."),
        (
            NoiseScale(3.456, 32, 1, 3, 50),
            "Above about 3.5 examples, a larger batch helps little; the batch has 32, more than needed",
        ),
        (NoiseScale(math.inf, 32, -1, 3, 50), "The gradient is too small against its noise"),
        (NoiseScale(34, 32, 1, 34, 1), "So far this is from 1 sample"),
    ],
)
def test_noise_in_words(found: NoiseScale, told: str) -> None:
    assert told in gauge_readings.noise_scale(found)


@pytest.mark.parametrize(
    ("losses", "ratio", "told"),
    [
        ((2.0, 1.9, 1.85, 2.0), 1.0, "came close to the minimum: it was 1 times as long as the step to the "
            "minimum. The loss of the gauge's batch went from 2 to 1.85."),
        ((2.0, 1.9, 2.1, 3.0), 2.3, "overshot the minimum so far that the loss rose: it was 2.3 times"),
        ((2.0, 1.9, 1.95, 3.0), 1.6, "overshot the minimum: it was 1.6 times"),
        ((2.30001, 2.3, 2.30000, 2.29), 0.1, "stopped well before the minimum: it was 0.1 times as long as the step to "
            "the minimum. The loss of the gauge's batch went from 2.30001 to 2.3."),
        ((2.0, 1.5, 1.0, 0.0), 0.0, "has no minimum ahead"),
        ((2.0, 2.5, 3.0, 4.0), math.inf, "rises from the start"),
        ((2.0, 2.5, math.nan, 4.0), math.inf, "left a loss that is NaN"),
    ],
)  # fmt: skip
def test_overshoot_in_words(losses: tuple[float, ...], ratio: float, told: str) -> None:
    assert told in gauge_readings.overshoot(Overshoot(losses, ratio))


@pytest.mark.parametrize(
    ("largest", "entropy", "log_z", "told"),
    [
        ((3.0, 250.0), (0.9, 0.02), 2.3, "The largest attention logit is 250, in b. The least entropy is 0.02 of the "
            "possible, in b (1: it looks at all time steps alike, 0: at one alone). Its softmax is saturated, so hardly "
            "any gradient passes: qk_norm bounds the logits. log Z of the outputs is 2.3 on average; z_loss draws it to "
            "0."),
        ((3.0, 2.0), (math.nan, math.nan), None, "The largest attention logit is 3, in a."),
        ((), (), -1.5, "log Z of the outputs is -1.5 on average; z_loss draws it to 0."),
    ],
)  # fmt: skip
def test_logits_in_words(largest: tuple[float, ...], entropy: tuple[float, ...], log_z: float, told: str) -> None:
    found = gauge_readings.logits(Logits(("a", "b")[: len(largest)], largest, entropy, log_z))
    assert found.replace("\N{MINUS SIGN}", "-") == told


def test_the_time_of_clipping_in_words() -> None:
    cuts = {kind: ClippingEffect(2.0, 0.0, (2.0,)) for kind in CLIPPED_BY}
    found = ClippedGradient(1, 2.0, ("a",), (1,), (2.0,), cuts, 3.0, 3.0, 1.0, seconds=0.0005, passes=0.0015)
    told = gauge_readings.clipping_effects(found).replace("\N{NO-BREAK SPACE}", " ")
    assert told.endswith("clip_grad_norm_ takes 0.5 ms for it, 25 % of that and the passes in fp32, 1.5 ms.")
