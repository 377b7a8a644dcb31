"""Each rule on a run made by hand: it fires where it must, says where and since when, and leaves a healthy run alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS, History, Layer, Row
from gradstudio.core.rules import Finding, all_rules, causes
from gradstudio.core.rules.median import median

WEIGHTS = ("first.weight", "second.weight", "third.weight", "last.weight")
LAYERS = (*(Layer(name, "weight", 10) for name in WEIGHTS), Layer("last.bias", "bias", 2))
GRAD_NORM, WEIGHT_NORM, NONFINITE_SHARE = (list(LAYER_METRICS).index(name) for name in ("grad_norm", "weight_norm", "nonfinite_share"))
EVEN = (0.5, 0.5, 0.5, 0.5, 0.0)


def row(
    step: int,
    loss: float,
    norm: float,
    clipped: float | None = None,
    *,
    shares: Iterable[float] = EVEN,
    nonfinite: Iterable[float] = (0, 0, 0, 0, 0),
    skipped: bool = False,
) -> Row:
    """`shares`: each layer's gradient norm as a part of the whole; `nonfinite`: each layer's share of NaN and Inf."""
    layers = np.zeros((len(LAYER_METRICS), len(LAYERS)))
    layers[GRAD_NORM] = [share and norm * share for share in shares]
    layers[WEIGHT_NORM] = 3.5
    layers[NONFINITE_SHARE] = [*nonfinite]
    count = int(sum(share * layer.size for share, layer in zip(layers[NONFINITE_SHARE], LAYERS, strict=True)))
    clipped = norm if clipped is None else clipped
    return Row(
        step=step, loss=loss, grad_norm=norm, clipped_norm=clipped, clip_coef=1.0, lr=0.1, scale=1.0, skipped=skipped, nonfinite=count,
        update_ratio=1e-3, weight_norm=7.0, accuracy=math.nan, step_seconds=0.01, layers=layers,
    )  # fmt: skip


def diagnose(rows: Iterable[Row]) -> dict[str, Finding]:
    """What all rules say in the end, each asked after every row, as in a run."""
    history, rules, found = History(LAYERS), all_rules(), {}
    for made in rows:
        history.append(made)
        for rule in rules:
            if finding := rule.update(history):
                assert finding.first_step <= finding.last_step < len(history)
                assert set(finding.layers) <= {layer.name for layer in LAYERS}
                for remedy in finding.remedies:
                    assert Experiment().with_texts(remedy.split())
                found[finding.rule] = finding
    return found


def noise(seed: int, steps: int, width: float) -> np.ndarray:
    return np.exp(width * np.random.default_rng(seed).standard_normal(steps))


def falling(seed: int) -> list[Row]:
    jitter = noise(seed, 600, 0.2)
    return [row(step, 2.3 * math.exp(-step / 150) * jitter[step], 3 * math.exp(-step / 300) * jitter[-step - 1]) for step in range(600)]


def slowly(seed: int) -> list[Row]:
    """Down by a quarter in 600 steps, under noise that is as large as that."""
    jitter = noise(seed, 600, 0.1)
    return [row(step, 2.3 * math.exp(-step / 2000) * jitter[step], 0.01 * jitter[-step - 1]) for step in range(600)]


def small_everywhere(seed: int) -> list[Row]:
    """Gradients of 1e-12, ten thousand times less in the first layer, and a loss that falls all the same."""
    shares = (1e-4, 1e-3, 1e-1, 1, 0)
    return [row(step, 2.3 * math.exp(-step / 100), 1e-12 * value, shares=shares) for step, value in enumerate(noise(seed, 400, 0.3))]


def large_at_the_start(seed: int) -> list[Row]:
    """A norm of hundreds in the first steps that calms down while the loss falls."""
    return [row(step, 5 * math.exp(-step / 50), 500 * math.exp(-step / 20) + value) for step, value in enumerate(noise(seed, 300, 0.2))]


def skipped_overflows(seed: int) -> list[Row]:
    """A loss scaler at work: now and then a gradient overflows and its update is skipped; the loss is noisy."""
    losses = noise(seed, 400, 0.5) * np.exp(-np.arange(400) / 100)
    return [
        row(step, losses[step], math.inf, nonfinite=(1, 0, 0, 0, 0), skipped=True) if step % 20 == 7 else row(step, losses[step], 1.0)
        for step in range(400)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("make", [falling, slowly, small_everywhere, large_at_the_start, skipped_overflows], ids=lambda make: make.__name__)
def test_a_healthy_run_gives_nothing_above_info(make: Callable[[int], list[Row]], seed: int) -> None:
    assert {finding.rule: finding for finding in diagnose(make(seed)).values() if finding.severity != "info"} == {}


def exploding(clipped: float | None = None, loss_after: float = 50.0) -> list[Row]:
    """Calm until step 200, then a norm that triples every step, in the third layer; the loss follows three steps later."""
    calm = [row(step, 1.0 + 2 * math.exp(-step / 30), 1.0) for step in range(200)]
    storm = [row(200 + n, 1.0 if n < 3 else loss_after, 3.0 ** (n + 1), clipped, shares=(0.01, 0.02, 1, 0.02, 0)) for n in range(8)]
    return calm + storm


def test_exploding_gradient() -> None:
    found = diagnose(exploding())
    assert [finding.rule for finding in causes.folded(found.values())] == ["exploding_gradient"]
    finding = found["exploding_gradient"]
    assert finding.severity == "critical"
    assert 200 <= finding.first_step <= 204 and finding.last_step == 207
    assert finding.layers == ("third.weight",)
    assert "third.weight" in finding.evidence and "6561" in finding.evidence and "All of it reached the optimizer" in finding.evidence
    assert "clipping.kind=norm" in finding.remedies


def test_explosion_contained_by_clipping_is_info() -> None:
    finding = diagnose(exploding(clipped=1.0, loss_after=1.0))["exploding_gradient"]
    assert (finding.severity, finding.remedies) == ("info", ())
    assert "The optimizer saw 1." in finding.evidence


def test_clipping_that_contains_the_gradient_is_not_blamed_for_a_loss_that_leaves() -> None:
    assert diagnose(exploding(clipped=1.0))["exploding_gradient"].severity == "info"


def test_explosion_beside_a_calm_loss_is_info() -> None:
    assert diagnose(exploding(loss_after=1.1))["exploding_gradient"].severity == "info"


def test_explosion_into_nan_is_critical_and_found_three_ways() -> None:
    ruined = row(208, math.nan, math.nan, nonfinite=(1, 1, 1, 1, 1))
    found = diagnose([*exploding(loss_after=1.0), ruined])
    assert {rule: finding.severity for rule, finding in found.items()} == {"exploding_gradient": "critical", "nonfinite_loss": "critical"}
    (cause,) = causes.folded(found.values())
    assert (cause.rule, cause.explains) == ("exploding_gradient", ("nonfinite_loss",))
    assert found["exploding_gradient"].last_step == 207


@pytest.mark.parametrize("kept", [0.999, 1.001])
def test_growth_below_the_threshold_is_no_explosion(kept: float) -> None:
    """Just over ten times the median, still growing, fires; just under does not."""
    rows = [row(step, 1.0, 5.0) for step in range(200)] + [row(200 + n, 1.0, norm) for n, norm in enumerate((10, 20, 30, 50 * kept))]
    assert ("exploding_gradient" in diagnose(rows)) is (kept > 1)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_nonfinite_loss(loss: float) -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)] + [row(step, loss, math.nan, nonfinite=(1, 1, 0, 0, 0)) for step in range(30, 33)]
    finding = diagnose(rows)["nonfinite_loss"]
    assert (finding.severity, finding.first_step, finding.layers) == ("critical", 30, ("first.weight", "second.weight"))
    assert "at step 30" in finding.evidence


def test_nonfinite_loss_at_the_first_step() -> None:
    finding = diagnose([row(0, math.inf, math.nan)])["nonfinite_loss"]
    assert finding.first_step == 0 and "before any update" in finding.evidence


def test_nonfinite_gradient_beside_a_finite_loss() -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)] + [row(30, 1.0, math.inf, nonfinite=(0, 0.1, 0, 0, 0))]
    found = diagnose(rows)
    finding = found["nonfinite_gradient"]
    assert (finding.severity, finding.first_step, finding.layers) == ("critical", 30, ("second.weight",))
    assert "1 gradient entry is NaN or Inf while the loss is 1." in finding.evidence
    assert "nonfinite_loss" not in found


def test_skipped_overflow_is_no_failure() -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)]
    rows += [row(30 + n, 1.0, math.nan, nonfinite=(1, 1, 1, 1, 1), skipped=True) for n in range(3)]
    assert diagnose(rows + [row(step, 1.0, 1.0) for step in range(33, 60)]) == {}


def test_overflows_in_a_row_before_a_large_gradient_are_borne() -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)]
    rows += [row(step, 1.0, math.inf, nonfinite=(1, 1, 1, 1, 1), skipped=True) for step in (30, 31, 32)]
    found = diagnose([*rows, row(33, 1.0, 50.0)])
    assert {finding.severity for finding in found.values()} <= {"info"}


def test_an_overflow_that_was_not_skipped_is_found_among_skipped_ones() -> None:
    rows = skipped_overflows(0)
    rows[150] = row(150, 1.0, math.inf, nonfinite=(0, 0, 0, 1, 0))
    assert diagnose(rows)["nonfinite_gradient"].first_step == 150


def vanishing(first: float, fall: float) -> list[Row]:
    """The last layer's gradient norm is 0.1, the first's `first` times that; the loss is multiplied by `fall` in 200 steps."""
    shares = (first, math.sqrt(first), 0.5, 1, 0)
    return [row(step, 2.3 * fall ** (step / 200), 0.1, shares=shares) for step in range(200)]


def test_vanishing_gradient() -> None:
    finding = diagnose(vanishing(1e-5, 1.0))["vanishing_gradient"]
    assert finding.severity == "critical"
    assert finding.layers == ("first.weight",)
    assert finding.first_step < 60 and finding.last_step == 199
    assert "1e5 times less" in finding.evidence


def test_gradient_of_exactly_zero_vanishes_too() -> None:
    assert "infinitely many times" in diagnose(vanishing(0.0, 1.0))["vanishing_gradient"].evidence


@pytest.mark.parametrize(("first", "fall"), [(1e-2, 1.0), (1e-5, 0.2)], ids=["ratio of 100 only", "the loss falls"])
def test_no_vanishing_gradient(first: float, fall: float) -> None:
    assert "vanishing_gradient" not in diagnose(vanishing(first, fall))


def test_rules_hold_their_peace_without_layers_or_steps() -> None:
    history = History()
    history.append(Row(0, 1.0, 500.0, 500.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, math.nan, 0.01, np.zeros((len(LAYER_METRICS), 0))))
    findings = [rule.update(history) for rule in all_rules()]
    assert [finding.rule for finding in findings if finding] == ["exploding_gradient"]


@pytest.mark.parametrize("count", [1, 2, 9, 10])
def test_the_median_is_that_of_numpy(count: int) -> None:
    values = np.random.default_rng(count).standard_normal((count, 4))
    values[count // 2, 1], values[0, 2], values[0, 3] = math.nan, math.inf, -math.inf
    assert np.array_equal(median(values), np.median(values, axis=0), equal_nan=True)
    assert median(values[:, 0]) == np.median(values[:, 0])
