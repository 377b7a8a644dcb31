"""Each rule on a run made by hand: it fires where it must, says where and since when, and leaves a healthy run
alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gradstudio.core import history as core_history
from gradstudio.core import rank_figures, row_blocks
from gradstudio.core.diagnosis import cause_ranking, mechanism, undefined_operations
from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.diagnosis.finding import Finding, Severity
from gradstudio.core.diagnosis.median import median, median_text
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule_names import NAMES, OF_THE_STUDIO, ORDER
from gradstudio.core.diagnosis.script_faults import HEARD
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS, LOOK_EVERY, SAMPLE_EVERY, History
from gradstudio.core.loop_calls import Loop, right
from gradstudio.core.provenance import Operation, Provenance
from gradstudio.core.row import AccumulationError, Activation, Activations, Layer, Logged, Row, Settings
from gradstudio.core.rule_thresholds import all_rules, rules_of_a_script
from gradstudio.core.rules import makers
from gradstudio.core.unknown import UNKNOWN

WEIGHTS = ("first.weight", "second.weight", "third.weight", "last.weight")
LAYERS = (*(Layer(name, "weight", 10) for name in WEIGHTS), Layer("last.bias", "bias", 2))
GRAD_NORM, WEIGHT_NORM, ZERO_SHARE, NONFINITE_SHARE, LARGEST_GRAD = (
    list(LAYER_METRICS).index(name)
    for name in ("grad_norm", "weight_norm", "zero_share", "nonfinite_share", "largest_grad")
)
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
        step=step, loss=loss, grad_norm=norm, clipped_norm=clipped, clip_coef=1.0, lr=0.1, scale=1.0, skipped=skipped,
        nonfinite=count,
        update_ratio=1e-3, weight_norm=7.0, accuracy=math.nan, step_seconds=0.01, layers=layers,
    )  # fmt: skip


def diagnose(rows: Iterable[Row], layers: tuple[Layer, ...] = LAYERS) -> dict[str, Finding]:
    """What all rules say in the end, each asked after every row, as in a run."""
    history, diagnosis, found = History(layers), Diagnosis(all_rules()), {}
    for made in rows:
        history.append(made)
        for rule in diagnosis.rules:
            if finding := rule.update(history, diagnosis.progress):
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
    return [
        row(step, 2.3 * math.exp(-step / 150) * jitter[step], 3 * math.exp(-step / 300) * jitter[-step - 1])
        for step in range(600)
    ]


def slowly(seed: int) -> list[Row]:
    """Down by a quarter in 600 steps, under noise that is as large as that."""
    jitter = noise(seed, 600, 0.1)
    return [row(step, 2.3 * math.exp(-step / 2000) * jitter[step], 0.01 * jitter[-step - 1]) for step in range(600)]


def small_everywhere(seed: int) -> list[Row]:
    """Gradients of 1e-12, ten thousand times less in the first layer, and a loss that falls all the same."""
    shares = (1e-4, 1e-3, 1e-1, 1, 0)
    return [
        row(step, 2.3 * math.exp(-step / 100), 1e-12 * value, shares=shares)
        for step, value in enumerate(noise(seed, 400, 0.3))
    ]


def large_at_the_start(seed: int) -> list[Row]:
    """A norm of hundreds in the first steps that calms down while the loss falls."""
    return [
        row(step, 5 * math.exp(-step / 50), 500 * math.exp(-step / 20) + value)
        for step, value in enumerate(noise(seed, 300, 0.2))
    ]


def skipped_overflows(seed: int) -> list[Row]:
    """A loss scaler at work: now and then a gradient overflows and its update is skipped; the loss is noisy."""
    losses = noise(seed, 400, 0.5) * np.exp(-np.arange(400) / 100)
    return [
        row(step, losses[step], math.inf, nonfinite=(1, 0, 0, 0, 0), skipped=True)
        if step % 20 == 7
        else row(step, losses[step], 1.0)
        for step in range(400)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "make", [falling, slowly, small_everywhere, large_at_the_start, skipped_overflows], ids=lambda make: make.__name__
)
def test_a_healthy_run_gives_nothing_above_info(make: Callable[[int], list[Row]], seed: int) -> None:
    assert {finding.rule: finding for finding in diagnose(make(seed)).values() if finding.severity != "info"} == {}


def exploding(clipped: float | None = None, loss_after: float = 50.0) -> list[Row]:
    """Calm until step 200, then a norm that triples every step, in the third layer; the loss follows three steps
    later."""
    calm = [row(step, 1.0 + 2 * math.exp(-step / 30), 1.0) for step in range(200)]
    storm = [
        row(200 + n, 1.0 if n < 3 else loss_after, 3.0 ** (n + 1), clipped, shares=(0.01, 0.02, 1, 0.02, 0))
        for n in range(8)
    ]
    return calm + storm


def test_exploding_gradient() -> None:
    found = diagnose(exploding())
    assert [finding.rule for finding in cause_ranking.causes_only(found.values())] == ["exploding_gradient"]
    finding = found["exploding_gradient"]
    assert finding.severity == "critical"
    assert 200 <= finding.first_step <= 204 and finding.last_step == 207
    assert finding.layers == ("third.weight",)
    assert (
        "third.weight" in finding.evidence
        and "6561" in finding.evidence
        and "All of it reached the optimizer" in finding.evidence
    )
    assert "clipping.kind=norm" in finding.remedies


def test_explosion_contained_by_clipping_is_info() -> None:
    finding = diagnose(exploding(clipped=1.0, loss_after=1.0))["exploding_gradient"]
    assert (finding.severity, finding.remedies) == ("info", ())
    assert "After clipping it was 1." in finding.evidence


def test_a_gradient_that_clipping_shortened_a_little_did_not_reach_the_optimizer_whole() -> None:
    evidence = diagnose(exploding(clipped=5000.0))["exploding_gradient"].evidence
    assert "After clipping it was 5000." in evidence and "All of it" not in evidence


def test_clipping_that_contains_the_gradient_is_not_blamed_for_a_loss_that_leaves() -> None:
    assert diagnose(exploding(clipped=1.0))["exploding_gradient"].severity == "info"


def test_explosion_beside_a_calm_loss_is_info() -> None:
    assert diagnose(exploding(loss_after=1.1))["exploding_gradient"].severity == "info"


def test_large_gradients_from_the_start_are_no_explosion_where_only_the_first_batch_was_easy() -> None:
    """A loss that is a sum has large gradients, and the first batch may have had half of the loss of the others."""
    losses = [172.0, 420.0, 480.0, 350.0, 440.0, 390.0, 370.0, 410.0, 360.0, 306.0]
    found = diagnose([row(step, loss, loss / 2) for step, loss in enumerate(losses)])
    assert [finding.severity for rule, finding in found.items() if rule == "exploding_gradient"] == ["info"]


def test_explosion_into_nan_is_critical_and_found_three_ways() -> None:
    ruined = row(208, math.nan, math.nan, nonfinite=(1, 1, 1, 1, 1))
    found = diagnose([*exploding(loss_after=1.0), ruined])
    assert {rule: finding.severity for rule, finding in found.items()} == {
        "exploding_gradient": "critical",
        "nonfinite_loss": "critical",
    }
    (cause,) = cause_ranking.causes_only(found.values())
    assert (cause.rule, cause.explains) == ("exploding_gradient", ("nonfinite_loss",))
    assert found["exploding_gradient"].last_step == 207


@pytest.mark.parametrize("kept", [0.999, 1.001])
def test_growth_below_the_threshold_is_no_explosion(kept: float) -> None:
    """Just over ten times the median, still growing, fires; just under does not."""
    rows = [row(step, 1.0, 5.0) for step in range(200)] + [
        row(200 + n, 1.0, norm) for n, norm in enumerate((10, 20, 30, 50 * kept))
    ]
    assert ("exploding_gradient" in diagnose(rows)) is (kept > 1)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_nonfinite_loss(loss: float) -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)] + [
        row(step, loss, math.nan, nonfinite=(1, 1, 0, 0, 0)) for step in range(30, 33)
    ]
    finding = diagnose(rows)["nonfinite_loss"]
    assert (finding.severity, finding.first_step, finding.layers) == ("critical", 30, ("first.weight", "second.weight"))
    assert "at step 30" in finding.evidence


def test_a_loss_that_is_not_finite_is_not_said_to_break_the_weights_by_a_finite_gradient() -> None:
    calm = [row(step, 1.0, 1.0) for step in range(30)]
    harmless = diagnose([*calm, row(30, math.nan, 1.0)])["nonfinite_loss"]
    assert "did not carry it into the weights" in harmless.meaning and not harmless.remedies
    broken = row(30, math.nan, math.nan, nonfinite=(1, 0, 0, 0, 0))
    assert "makes the weights NaN" in diagnose([*calm, broken])["nonfinite_loss"].meaning


def test_of_gradient_and_loss_the_one_that_broke_first_is_the_cause() -> None:
    calm = [row(step, 1.0, 1.0) for step in range(30)]
    broken = [row(30, 1.0, math.nan, nonfinite=(1, 0, 0, 0, 0)), row(31, math.nan, math.nan, nonfinite=(1, 1, 1, 1, 1))]
    (cause,) = cause_ranking.causes_only(diagnose([*calm, *broken]).values())
    assert (cause.rule, cause.explains) == ("nonfinite_gradient", ("nonfinite_loss",))


def test_clipping_is_said_to_have_never_acted_in_the_steps_that_were_looked_at_alone() -> None:
    made = [replace(each, clip_coef=0.5) if each.step < 50 else each for each in rows(fall(400), settings=CLIPPED)]
    finding = diagnose(made)["clipping_never"]
    assert "None of the latest 200 steps was clipped" in finding.evidence
    by_value = diagnose(rows(fall(300), settings=CLIPPED._replace(clipping="value", limit=1e3)))["clipping_never"]
    assert by_value.meaning.startswith("No entry of a gradient reached the limit in these steps.")


@pytest.mark.parametrize("norm", [math.nan, math.inf, UNKNOWN])
def test_clipping_says_nothing_of_steps_without_a_finite_norm(norm: float) -> None:
    made = [*rows([1.0] * 28, norm=0.25), *(row(28 + n, math.nan, norm, nonfinite=(1, 1, 1, 1, 1)) for n in range(12))]
    finding = diagnose([replace(each, settings=CLIPPED) for each in made])["clipping_never"]
    assert finding.evidence.startswith("None of the 28 steps with a finite norm among the latest 40 was clipped")
    assert finding.evidence.endswith("was 0.25.") and (finding.first_step, finding.last_step) == (27, 27)


def test_attention_that_collapses_after_a_rate_was_raised_gets_the_rate_before_it() -> None:
    made = attending(rows(STANDING), 500.0, 0.02)
    made = [replace(each, lr=0.002 if each.step < 40 else 0.07) for each in made]
    made = [
        replace(each, attention_logit=1.0) if each.step < 60 and each.step % LOOK_EVERY == 0 else each for each in made
    ]
    found = diagnose(made)["attention_collapse"]
    assert found.remedies[0] == "optimizer.lr=0.002" and "from 0.002 to 0.07 at step 40" in found.evidence


def test_nonfinite_loss_at_the_first_step() -> None:
    finding = diagnose([row(0, math.inf, math.nan)])["nonfinite_loss"]
    assert finding.first_step == 0 and "before any update" in finding.evidence and not finding.remedies


def test_a_signal_that_overflows_at_the_first_step_is_put_down_to_the_weights() -> None:
    found = diagnose(sampled([row(0, math.nan, math.nan)], stds=(1.0, 1e9, math.inf)))
    assert cause_ranking.rank_causes(found.values())[0].rule == "poor_initialization"
    assert "NaN or Inf" in found["poor_initialization"].evidence


def test_nonfinite_gradient_beside_a_finite_loss() -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)] + [row(30, 1.0, math.inf, nonfinite=(0, 0.1, 0, 0, 0))]
    found = diagnose(rows)
    finding = found["nonfinite_gradient"]
    assert (finding.severity, finding.first_step, finding.layers) == ("critical", 30, ("second.weight",))
    assert "1 gradient entry is NaN or Inf while the loss is 1." in finding.evidence
    assert "or in a part of the forward pass that the value of the loss does not depend on" in finding.meaning
    assert finding.meaning.endswith("The update carries it into the weights.") and "nonfinite_loss" not in found
    lion = [replace(each, settings=Settings("none", 0.0, "fp32", "lion")) for each in rows]
    assert "torch's sign of NaN is 0" in diagnose(lion)["nonfinite_gradient"].meaning


@pytest.mark.parametrize("ratio", [math.nan, math.inf])
def test_an_update_that_breaks_weights_is_found_though_no_loss_shows_it(ratio: float) -> None:
    """As Adam's with an eps of 0, in the rows of an embedding that no batch uses."""
    calm = [row(step, 1.0, 1.0) for step in range(60)]
    calm[30] = replace(calm[30], update_ratio=ratio)
    calm[31:] = [replace(each, update_ratio=math.nan, weight_norm=math.nan) for each in calm[31:]]
    finding = diagnose(calm)["nonfinite_weights"]
    assert (finding.severity, finding.first_step, finding.last_step) == ("critical", 30, 30)
    assert (
        "In that step the loss was 1, the gradient norm was 1, the norm of the weights before it was 7"
        in finding.evidence
    )
    assert "of finite weights and a finite gradient" in finding.meaning
    assert not finding.remedies  # the norm of so large a gradient is Inf: clipping would leave 0 of it
    seldom = [replace(each, update_ratio=1e-3) if each.step == 30 else each for each in calm]  # a row of few steps
    finding = diagnose(seldom)["nonfinite_weights"]
    assert finding.first_step == 31
    assert finding.evidence == "At step 31 the norm of the weights is NaN; one row before it was 7."
    assert finding.meaning == "No row tells which update made them so, or whether the script did."
    by_hand = [*calm[:30], replace(calm[30], clipped_norm=math.nan)]
    assert "no longer when the optimizer got it" in diagnose([*by_hand, *calm[31:]])["nonfinite_weights"].meaning


def test_broken_weights_are_found_where_nobody_knows_what_the_optimizer_got() -> None:
    rows = [replace(row(step, 1.0, 1.0), clipped_norm=UNKNOWN) for step in range(40)]
    rows[10] = replace(rows[10], update_ratio=math.nan)
    assert diagnose(rows)["nonfinite_weights"].first_step == 10


def test_weights_of_0_and_updates_that_nobody_measured_are_not_broken() -> None:
    rows = [replace(row(step, 1.0, 1.0), update_ratio=math.inf if step == 0 else UNKNOWN) for step in range(40)]
    rows[0] = replace(rows[0], weight_norm=0.0)
    assert "nonfinite_weights" not in diagnose(rows)


def test_noise_on_clipped_examples_is_there_since_the_first_step_and_as_private_at_a_lower_limit() -> None:
    """At one step the true gradient happens to be as long as the noise, and the run is right more often at a loss that
    has risen."""
    private = Settings("per_example", 100.0, "fp32")
    made = rows([3.0 * step for step in range(1, 200)], norm=30.0, clipped_norm=250.0, clip_coef=0.1, settings=private)
    made = [replace(each, accuracy=min(0.1 + each.step / 100, 0.9)) for each in made]
    made[60] = replace(made[60], grad_norm=250.0)
    said = diagnose(made)["gradient_noise"]
    assert (said.severity, said.first_step) == ("critical", 0)
    assert "lower in the same proportion" in said.meaning


def test_the_update_that_broke_weights_explains_the_loss_that_follows() -> None:
    rows = [row(step, 1.0, 1.0) for step in range(30)]
    rows[-1] = replace(rows[-1], update_ratio=math.nan)
    rows.append(replace(row(30, math.nan, math.nan, nonfinite=(1, 1, 1, 1, 1)), weight_norm=math.nan))
    (cause,) = cause_ranking.causes_only(diagnose(rows).values())
    assert (cause.rule, cause.explains) == ("nonfinite_weights", ("nonfinite_loss",))


def test_weights_that_were_not_finite_before_the_pass_are_no_value_too_large_for_fp16() -> None:
    rows = [row(0, 1.0, 1.0), row(1, math.nan, math.nan, nonfinite=(1, 1, 1, 1, 1))]
    found = diagnose([replace(each, settings=FP16) for each in rows])
    assert "fp16_overflow" in found
    held = Operation("update", "0", "0.weight", "", "float16", 1.0, 32, 0, 1.0, 32, 0)
    born = Provenance(1, "update", "0", "0.weight", "0.weight holds 32 NaN", 0, 1, None, (), (held,))
    assert "fp16_overflow" not in {finding.rule for finding in cause_ranking.rank_causes(found.values(), born)}


def thrown_up(steps: int, after: float, ratio: float = 11.0) -> list[Row]:
    """A loss of 2.3 before any update, and of 1000 and less after the first: in the end as much as `after`."""
    losses = [2.3, *(after + 1000 * math.exp(-step / 4) for step in range(steps - 1))]
    return [
        replace(row(step, loss, 1.0), update_ratio=ratio if step == 0 else 1e-3) for step, loss in enumerate(losses)
    ]


def test_a_loss_that_the_first_update_threw_up_is_compared_with_the_one_before_it() -> None:
    for after in (2.3, 30.0):
        finding = diagnose(thrown_up(200, after))["update_ratio_high"]
        assert (finding.severity, finding.title) == ("critical", cause_ranking.FIRST_UPDATE)
        assert finding.remedies[0].startswith("optimizer.lr=")
    told = diagnose(thrown_up(200, 2.3))["loss_not_decreasing"].evidence
    assert told.startswith("The loss was 2.3 at step 0, and its median is 2.3 in the 50 up to step")
    assert diagnose(thrown_up(20, 1e5))["update_ratio_high"].severity == "critical"  # a run of few steps
    assert diagnose(thrown_up(200, 0.1))["update_ratio_high"].severity == "info"  # it learns


def test_that_it_is_too_early_to_tell_is_said_only_while_it_is() -> None:
    rows = [row(step, 2.3 * math.exp(-step / 200), 1.0) for step in range(60)]
    rows[5] = replace(rows[5], update_ratio=1.2)
    meanings = [diagnose(rows[:count])["update_ratio_high"].meaning for count in (40, 60)]
    assert meanings[0] == "After so few steps nothing shows yet whether they do harm."
    assert meanings[1] == "Nothing shows that they did harm."


def test_a_tenth_of_an_absurd_rate_is_no_remedy() -> None:
    rows = [replace(each, lr=1e30, update_ratio=each.update_ratio * 1e27) for each in thrown_up(200, 30.0)]
    remedies = diagnose(rows)["update_ratio_high"].remedies
    assert [remedy for remedy in remedies if remedy.startswith("optimizer.lr=")] == ["optimizer.lr=0.91"]


def test_one_easy_batch_at_the_start_is_not_what_the_loss_is_compared_with() -> None:
    rows = thrown_up(200, 4.0, ratio=0.05)
    rows[1:] = [replace(each, loss=8 * math.exp(-each.step / 100)) for each in rows[1:]]
    rows[5] = replace(rows[5], update_ratio=0.2)
    assert {finding.severity for finding in diagnose(rows).values()} <= {"info"}


@pytest.mark.parametrize(
    ("others", "explained"),
    [
        ([("exploding_gradient", 381), ("nonfinite_loss", 383)], ("nonfinite_loss",)),
        ([("clipping_always", 0), ("update_ratio_low", 0)], ("update_ratio_low",)),
        ([("loss_not_decreasing", 200)], ("loss_not_decreasing",)),
    ],
)
def test_a_short_memory_is_no_cause_of_an_explosion_and_of_no_limit(
    others: list[tuple[str, int]], explained: tuple[str, ...]
) -> None:
    found = [
        Finding(rule, "critical", rule, first, 400, (), "", "", ())
        for rule, first in [("vanishing_in_time", 120), *others]
    ]
    causes = cause_ranking.causes_only(found)
    wanted = ["vanishing_in_time"] if len(others) == 1 else [others[0][0], "vanishing_in_time"]
    assert [cause.rule for cause in causes] == wanted and causes[0].explains == explained


def test_weight_decay_that_takes_away_what_the_first_update_made_is_no_cause_of_it() -> None:
    made = {
        rule: Finding(rule, "critical", title, first, 400, (), "", "", ())
        for rule, title, first in (
            ("update_ratio_high", cause_ranking.FIRST_UPDATE, 0),
            ("weight_decay_high", "Weight decay too strong", 19),
        )
    }
    (cause, _) = cause_ranking.rank_causes(made.values())
    assert (cause.rule, cause.explains) == ("update_ratio_high", ("weight_decay_high",))
    made["weight_decay_high"] = replace(made["weight_decay_high"], first_step=0)
    assert cause_ranking.rank_causes(made.values())[0].rule == "weight_decay_high"


def test_a_script_is_judged_by_every_rule_that_can_fire_without_what_only_the_studio_has() -> None:
    rules = {rule.rule for rule in rules_of_a_script()}
    assert rules == set(NAMES) - set(OF_THE_STUDIO)
    bare = [thrown_up(200, 30.0), vanishing(1e-5, 1.0), skipped_overflows(0), falling(0), large_at_the_start(0)]
    assert {rule for rows in bare for rule in diagnose(rows)} <= rules


def test_the_rows_after_the_last_look_are_looked_at_at_the_end() -> None:
    history, diagnosis = History(LAYERS), Diagnosis(all_rules())
    for made in thrown_up(8, 1e5):
        history.append(made)
        list(diagnosis.look(history))
    assert [finding.rule for finding in diagnosis.look_at_the_rest(history)] == ["update_ratio_high"]
    assert diagnosis.progress.count == 0  # it can go on as if nobody had looked


def test_a_loss_that_nobody_saw_is_not_told_as_nan() -> None:
    broken = row(4, UNKNOWN, math.nan, nonfinite=(0, 0.1, 0, 0, 0))
    finding = diagnose([*(row(step, UNKNOWN, 1.0) for step in range(4)), broken])["nonfinite_gradient"]
    assert finding.evidence == "At step 4 1 gradient entry is NaN or Inf while the loss is not known."
    assert "still finite" not in finding.meaning and "was not seen" in finding.meaning
    rows = [row(0, 1.0, 1.0), row(1, UNKNOWN, 1.0), row(2, math.nan, math.nan)]
    evidence = diagnose(rows)["nonfinite_loss"].evidence
    assert "One step before, the gradient norm was 1 and the update was 0.001 times as large" in evidence


@pytest.mark.parametrize(("step", "loss"), [(0, UNKNOWN), (9, UNKNOWN), (9, 1.0)])
def test_an_overflow_of_fp16_gradients_needs_no_loss(step: int, loss: float) -> None:
    made = [row(each, loss, 1.0) for each in range(step)] + [row(step, loss, math.inf, nonfinite=(0, 0.1, 0, 0, 0))]
    evidence = diagnose([replace(each, settings=FP16) for each in made])["fp16_overflow"].evidence
    while_ = ", while the loss is 1" if loss == 1 else ""
    assert f"1 gradient entry of step {step} left the range of fp16{while_}. The largest" in evidence


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
    """The last layer's gradient norm is 0.1, the first's `first` times that; the loss is multiplied by `fall` in 200
    steps."""
    shares = (first, math.sqrt(first), 0.5, 1, 0)
    return [row(step, 2.3 * fall ** (step / 200), 0.1, shares=shares) for step in range(200)]


def test_vanishing_gradient() -> None:
    finding = diagnose(vanishing(1e-5, 1.0))["vanishing_gradient"]
    assert finding.severity == "critical"
    assert finding.layers == ("first.weight",)
    assert finding.first_step < 60 and finding.last_step == 199
    assert "1e5 times smaller" in finding.evidence


def test_gradient_of_exactly_zero_vanishes_too() -> None:
    assert "0 in the first (medians" in diagnose(vanishing(0.0, 1.0))["vanishing_gradient"].evidence


@pytest.mark.parametrize(("first", "fall"), [(1e-2, 1.0), (1e-5, 0.2)], ids=["ratio of 100 only", "the loss falls"])
def test_no_vanishing_gradient(first: float, fall: float) -> None:
    assert "vanishing_gradient" not in diagnose(vanishing(first, fall))


def test_a_layer_that_the_loss_does_not_use_is_named_and_explains_nothing() -> None:
    found = diagnose(without(0, vanishing(1e-5, 1.0)))
    finding = found["unused_layers"]
    assert (finding.layers, finding.first_step, finding.remedies) == (("first.weight",), 0, ())
    assert "brought a gradient to first.weight in any of the 200 steps" in finding.evidence
    ranked = cause_ranking.rank_causes(found.values())
    assert not finding.explains and not any("unused_layers" in each.explains for each in ranked)
    assert diagnose(without(0, rows(fall(300))))["unused_layers"].severity == "info"


def test_rules_hold_their_peace_without_layers_or_steps() -> None:
    history = History()
    history.append(
        Row(0, 1.0, 500.0, 500.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, math.nan, 0.01, np.zeros((len(LAYER_METRICS), 0)))
    )
    findings = [rule.update(history, Progress()) for rule in all_rules()]
    assert [finding.rule for finding in findings if finding] == ["exploding_gradient"]


@pytest.mark.parametrize("count", [1, 2, 9, 10])
def test_the_median_is_that_of_numpy(count: int) -> None:
    values = np.random.default_rng(count).standard_normal((count, 4))
    values[count // 2, 1], values[0, 2], values[0, 3] = math.nan, math.inf, -math.inf
    assert np.array_equal([median(column) for column in values.T], np.median(values, axis=0), equal_nan=True)


# ---- rules that look every tenth row

STANDING = [2.3] * 300
FP16 = Settings("none", 0.0, "fp16")
CLIPPED = Settings("norm", 1.0, "fp32")


def rows(losses: Iterable[float], norm: float = 1.0, **more: Any) -> list[Row]:
    """A row for each loss; `more` are other fields of all rows."""
    made = [row(step, loss, norm) for step, loss in enumerate(losses)]
    return [replace(each, **more) for each in made] if more else made


def without(layer: int, made: list[Row]) -> list[Row]:
    """The same steps, in which no backward pass reaches this layer, so that its gradient is 0."""
    for each in made:
        each.layers[GRAD_NORM, layer], each.layers[ZERO_SHARE, layer] = 0.0, 1.0
    return [replace(each, unused=(LAYERS[layer].name,)) for each in made]


def telling(made: list[Row], name: str, figure: Callable[[int], float], every: int = 20) -> list[Row]:
    """The same steps, at some of which the script tells a number of its own."""
    return [
        replace(each, logged=(Logged(each.step, name, float(figure(each.step))),)) if each.step % every == 0 else each
        for each in made
    ]


def fall(steps: int, floor: float = 0.05) -> list[float]:
    return [floor + 2.3 * math.exp(-step / 40) for step in range(steps)]


def sampled(
    made: list[Row],
    *,
    dead: float = 0.0,
    saturated: float = 0.0,
    stds: tuple[float, ...] = (1.0, 1.0, 1.0),
    start: int = 0,
) -> list[Row]:
    """Activations of the first three layers from step `start` on; those of the second are dead or saturated."""
    for step in range(start, len(made), 120):
        layers = [Activation(name, 0.0, std, 0.0, 0.0) for name, std in zip(WEIGHTS[:3], stds, strict=True)]
        layers[1] = layers[1]._replace(dead=dead, saturated=saturated)
        made[step] = replace(made[step], activations=Activations(step, tuple(layers)))
    return made


def attending(made: list[Row], logit: float, entropy: float) -> list[Row]:
    """Attention with such a largest logit and least entropy at every look."""
    return [
        replace(each, attention_logit=logit, attention_entropy=entropy) if each.step % LOOK_EVERY == 0 else each
        for each in made
    ]


def remembering(made: list[Row], ratio: float) -> list[Row]:
    """Sequences whose first step gets such a share of the gradient of the last one, at every look."""
    return [replace(each, time_gradient=ratio) if each.step % SAMPLE_EVERY == 0 else each for each in made]


def acting(made: list[Row], **figures: float) -> list[Row]:
    """A policy with such figures at every step."""
    return [replace(each, **{f"policy_{name}": value for name, value in figures.items()}) for each in made]


def ranked(
    made: list[Row], norms: tuple[float, ...] = (1.0, 1.2), weights: tuple[float, ...] = (1.0, 1.0),
    batches: tuple[int, ...] = (99, 99), **more: Any
) -> list[Row]:  # fmt: skip
    """Rows of several ranks, whose own gradients have these norms, and their examples these weights; they come to so
    many steps. The second norm is NaN from a NaN loss on."""
    return [
        replace(
            each,
            **({"all_reduces": 1.0, "reduced_bytes": 168.0, "rank_drift": 0.0} | more),
            ranks=np.array(
                [
                    (
                        math.nan if rank and math.isnan(each.loss) else norms[rank],
                        0.0,
                        1e-3,
                        0.0,
                        weights[rank],
                        batches[rank] - each.step - 1,
                    )
                    for rank in range(2)
                ]
            ),
        )
        for each in made
    ]


def first_row(made: list[Row], **more: Any) -> list[Row]:
    return [replace(made[0], **more), *made[1:]]


def looped(
    made: list[Row],
    calls: str = "zero_grad forward backward step schedule",
    micro_batches: int = 1,
    scaling: str = "none",
) -> list[Row]:
    return [replace(each, loop=Loop(tuple(calls.split()), micro_batches, False, scaling, False)) for each in made]


def on_test_set(made: list[Row], accuracy: float) -> list[Row]:
    """The test set measured every 100 steps, after a start from nothing."""
    return [
        replace(each, test_accuracy=(accuracy if each.step else 0.1) if each.step % 100 == 0 else UNKNOWN)
        for each in made
    ]


DECAYED = Settings("none", 0.0, "fp32", "sgd", 0.0, 0.0, 0.0, 0.5)  # which takes 0.05 of the weights at a rate of 0.1


def shrinking(made: list[Row], share: float = 0.05, **more: Any) -> list[Row]:
    """Weights that lose a share of themselves at each step, down to a hundredth, beside a small gradient."""
    return [
        replace(
            each, weight_norm=7.0 * max((1 - share) ** step, 0.01), update_ratio=share, grad_norm=0.01,
            clipped_norm=0.01, **more
        )
        for step, each in enumerate(made)
    ]  # fmt: skip


def remembered(losses: Iterable[float], optimizer: str) -> list[Row]:
    """One large gradient at step 100, after which the updates are a quarter of what they were."""
    return [
        replace(
            each, settings=Settings("none", 0.0, "fp32", optimizer, 0.0, 0.9, 0.999, 0.0),
            clipped_norm=1e4 if each.step == 100 else 1.0, grad_norm=1e4 if each.step == 100 else 1.0,
            update_ratio=1e-3 if each.step <= 100 else 2.5e-4,
        )
        for each in rows(losses)
    ]  # fmt: skip


def raised(losses: Iterable[float], to: float = 1.0) -> list[Row]:
    """A learning rate of 0.1, and another from step 100 on."""
    return [replace(each, lr=0.1 if each.step < 100 else to) for each in rows(losses)]


FIRES: dict[str, tuple[Callable[[], list[Row]], str]] = {
    "rate_raised": (lambda: raised([*fall(100), *[2.9] * 150]), "critical"),
    "momentum_high": (lambda: rows(STANDING, settings=DECAYED._replace(weight_decay=0.0, momentum=1.0)), "critical"),
    "betas_crossed": (
        lambda: rows(STANDING, settings=Settings("none", 0.0, "fp32", "adam", 0.0, 0.99, 0.5)),
        "critical",
    ),
    "perturbation_large": (lambda: rows(STANDING, settings=Settings("none", 0.0, "fp32", "sgd", rho=5.0)), "critical"),
    "updates_after_spike": (lambda: remembered([2.3 - step / 1000 for step in range(300)], "adam"), "warning"),
    "weight_decay_high": (lambda: shrinking(rows(STANDING, settings=DECAYED)), "critical"),
    "loss_not_decreasing": (lambda: rows(STANDING), "warning"),
    "update_ratio_high": (lambda: rows(STANDING, update_ratio=0.2), "critical"),
    "update_ratio_low": (lambda: rows(STANDING, update_ratio=1e-6), "warning"),
    "loss_oscillating": (lambda: rows([2.3] * 20 + [1.0, 9.0] * 100), "warning"),
    "loss_spike": (lambda: rows([*fall(200), *[40.0] * 120]), "warning"),
    "dead_units": (lambda: sampled(rows(STANDING), dead=1.0), "critical"),
    "saturated_activation": (lambda: sampled(rows(STANDING), saturated=0.8), "critical"),
    "vanishing_in_time": (lambda: remembering(rows(STANDING), 1e-5), "critical"),
    "policy_far_off": (lambda: acting(rows(STANDING), ratio=200.0, kl=4.0), "critical"),
    "entropy_collapse": (lambda: acting(rows(STANDING), entropy=0.01), "critical"),
    "reward_hacked": (
        lambda: [
            *acting(rows(fall(400), accuracy=0.9)[:200], reward=1.0),
            *acting(rows(fall(400), accuracy=0.2)[200:], reward=1.5),
        ],
        "critical",
    ),
    "attention_collapse": (lambda: attending(rows(STANDING), 500.0, 0.02), "critical"),
    "poor_initialization": (lambda: sampled(rows(STANDING), stds=(1.0, 0.1, 1e-3)), "critical"),
    "clipping_always": (lambda: rows(STANDING, settings=CLIPPED, clip_coef=0.01), "warning"),
    "clip_overflow": (
        lambda: rows([*fall(60), *[9.0] * 100], norm=1e20, settings=CLIPPED, clip_coef=0.0, clipped_norm=0.0),
        "critical",
    ),
    "clipping_never": (lambda: rows(fall(300), settings=CLIPPED._replace(limit=1e3)), "info"),
    "fp16_underflow": (lambda: rows(STANDING, norm=0.0, settings=FP16), "critical"),
    "fp16_overflow": (lambda: rows(STANDING, norm=math.inf, settings=FP16, skipped=True, scale=64.0), "critical"),
    "scale_collapse": (
        lambda: looped(rows(STANDING, norm=math.inf, settings=FP16, skipped=True, scale=0.5), scaling="dynamic"),
        "critical",
    ),
    "accumulation_mismatch": (
        lambda: first_row(looped(rows(fall(60)), micro_batches=4), accumulated=AccumulationError(0, 3.0, 1e-3)),
        "warning",
    ),
    "nothing_learned": (
        lambda: [
            replace(each, test_accuracy=0.1 if step % 100 == 0 else UNKNOWN) for step, each in enumerate(rows(STANDING))
        ],
        "critical",
    ),
    "signal_lost": (lambda: first_row(rows(STANDING), head_cosine=0.996), "critical"),
    "test_gap": (lambda: on_test_set(rows(fall(300), accuracy=0.99), 0.5), "warning"),
    "accuracy_lost": (
        lambda: on_test_set(
            [replace(each, accuracy=0.97 if each.step < 100 else 0.6) for each in rows(fall(300))], 0.6
        ),
        "warning",
    ),
    "clip_without_effect": (lambda: rows(fall(60), norm=5.0, settings=CLIPPED), "warning"),
    "gradient_noise": (
        lambda: rows(STANDING, norm=0.6, clipped_norm=1.0, clip_coef=1 / 500, settings=CLIPPED),
        "critical",
    ),
    "clip_on_scaled_gradients": (
        lambda: rows(STANDING, norm=5.0, settings=CLIPPED, scale=65536.0, clipped_norm=1 / 65536),
        "warning",
    ),
    "reduced_too_often": (lambda: ranked(rows(fall(60)), all_reduces=4.0), "warning"),
    "ranks_apart": (lambda: ranked(rows(fall(60)), rank_drift=0.01), "critical"),
    "nan_on_a_rank": (lambda: ranked(rows([*fall(60), math.nan])), "critical"),
    "clip_before_reduction": (lambda: ranked(rows(fall(60), norm=5.0, settings=CLIPPED, clipped_norm=0.8)), "warning"),
    "ranks_alike": (lambda: ranked(rows(fall(60)), (1.2, 1.2)), "warning"),
    "uneven_shares": (lambda: ranked(rows(fall(60)), weights=(2 / 3, 2.0)), "warning"),
    "rank_ran_out": (lambda: ranked(rows(fall(55)), batches=(90, 55)), "critical"),
    "unused_layers": (lambda: without(0, vanishing(1e-5, 1.0)), "warning"),
    "test_loss_rises": (
        lambda: telling(rows(fall(300)), "val_loss", lambda step: 1 + abs(step - 100) / 100),
        "warning",
    ),
    "reward_lost": (lambda: telling(rows(STANDING), "reward", lambda step: 100 - abs(step - 100), 5), "critical"),
    "gradient_of_zero": (
        lambda: [
            replace(row(step, 2.3, 1.0, shares=(0.5, 0, 0.5, 0.5, 0)), accuracy=UNKNOWN, settings=CLIPPED, unused=())
            for step in range(200)
        ],
        "warning",
    ),
}
SILENT: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "a first layer that the loss does not use": ("vanishing_gradient", lambda: without(0, vanishing(1e-5, 1.0))),
    "a layer in the middle that the loss does not use": ("dead_units", lambda: without(1, rows(STANDING))),
    "a layer that is used at other steps": (
        "unused_layers",
        lambda: [replace(each, unused=("first.weight",) if each.step % 20 == 19 else ()) for each in rows(STANDING)],
    ),
    "a validation loss that falls": (
        "test_loss_rises",
        lambda: telling(rows(fall(300)), "val_loss", lambda step: 1 / (1 + step)),
    ),
    "two higher ones": (
        "test_loss_rises",
        lambda: telling(rows(fall(100)), "val_loss", lambda step: 1.0 + (step > 60)),
    ),
    "a reward that swings": ("reward_lost", lambda: telling(rows(STANDING), "reward", lambda step: step % 7, 1)),
    "one all-reduce a step": ("reduced_too_often", lambda: ranked(rows(fall(60)))),
    "ranks that differ by rounding": ("ranks_apart", lambda: ranked(rows(fall(60)), rank_drift=1e-7)),
    "a NaN in one process": ("nan_on_a_rank", lambda: rows([*fall(60), math.nan])),
    "ranks that clip their mean": (
        "clip_before_reduction",
        lambda: ranked(rows(fall(60), norm=5.0, settings=CLIPPED, clipped_norm=1.0)),
    ),
    "a mean below the limit": (
        "clip_before_reduction",
        lambda: ranked(rows(fall(60), norm=0.5, settings=CLIPPED, clipped_norm=0.5)),
    ),
    "a rank that has batches left": ("rank_ran_out", lambda: ranked(rows(fall(54)), batches=(90, 55))),
    "ranks that end together": ("rank_ran_out", lambda: ranked(rows(fall(60)), batches=(60, 60))),
    "shares of almost one size": ("uneven_shares", lambda: ranked(rows(fall(60)), weights=(0.98, 1.02))),
    "ranks of other data": ("ranks_alike", lambda: ranked(rows(fall(60)))),
    "a rate that was raised while the loss falls": ("rate_raised", lambda: raised(fall(300))),
    "a rate that was doubled": ("rate_raised", lambda: raised([*fall(100), *[2.9] * 150], to=0.2)),
    "a warmup": (
        "rate_raised",
        lambda: [replace(each, lr=0.001 * (each.step + 1)) for each in rows([*fall(100), *[2.9] * 150])],
    ),
    "a fault long after the rate was raised": ("rate_raised", lambda: raised([*fall(200), *[2.9] * 150])),
    "momentum of 1 in a run that learns": (
        "momentum_high",
        lambda: rows(fall(300), settings=DECAYED._replace(weight_decay=0.0, momentum=1.0)),
    ),
    "clipped, and thrown away": ("clip_overflow", lambda: rows(STANDING, settings=CLIPPED, clip_coef=0.0)),
    "a limit of 0": (
        "clip_overflow",
        lambda: rows(STANDING, norm=1e6, settings=CLIPPED._replace(limit=0.0), clip_coef=0.0),
    ),
    "usual betas": (
        "betas_crossed",
        lambda: rows(STANDING, settings=Settings("none", 0.0, "fp32", "adam", 0.0, 0.9, 0.95)),
    ),
    "crossed betas in a run that learns": (
        "betas_crossed",
        lambda: rows(fall(300), settings=Settings("none", 0.0, "fp32", "adam", 0.0, 0.99, 0.5)),
    ),
    "a usual rho": (
        "perturbation_large",
        lambda: rows(STANDING, settings=Settings("none", 0.0, "fp32", "sgd", rho=0.05)),
    ),
    "a usual momentum": (
        "momentum_high",
        lambda: rows(STANDING, settings=DECAYED._replace(weight_decay=0.0, momentum=0.99)),
    ),
    "a spike that SGD forgets": ("updates_after_spike", lambda: remembered(STANDING, "sgd")),
    "a gradient after gradients of 0": (
        "updates_after_spike",
        lambda: [replace(each, clipped_norm=1e-7 * (each.step == 100)) for each in remembered(STANDING, "adam")],
    ),
    "a spike in a run that learns": ("updates_after_spike", lambda: remembered(fall(300), "adam")),
    "a spike at which the rate was lowered": (
        "updates_after_spike",
        lambda: [replace(each, lr=0.1 if each.step <= 100 else 0.01) for each in remembered(STANDING, "adam")],
    ),
    "a spike after which the updates are as before": (
        "updates_after_spike",
        lambda: [replace(each, update_ratio=1e-3) for each in remembered(STANDING, "adam")],
    ),
    "weights that shrink in a run that learns": (
        "weight_decay_high",
        lambda: shrinking(rows(fall(300), settings=DECAYED)),
    ),
    "a usual decay": (
        "weight_decay_high",
        lambda: shrinking(rows(STANDING, settings=DECAYED._replace(optimizer="adamw", weight_decay=0.1)), 1e-3),
    ),
    "a decay that nobody recorded": (
        "weight_decay_high",
        lambda: shrinking(rows(STANDING, settings=DECAYED._replace(weight_decay=None))),
    ),
    "weights that the gradient shrinks": (
        "weight_decay_high",
        lambda: [replace(each, clipped_norm=9.0) for each in shrinking(rows(STANDING, settings=DECAYED))],
    ),
    "noise as long as the gradient": ("gradient_noise", lambda: rows(STANDING, norm=0.6, clipped_norm=0.8)),
    "clipping after the step": ("gradient_noise", lambda: rows(STANDING, norm=5.0, clip_coef=1e-3, settings=CLIPPED)),
    "the loss falls": ("loss_not_decreasing", lambda: rows(fall(300))),
    "large updates that learn": ("update_ratio_high", lambda: rows(fall(300), update_ratio=0.2)),
    "small updates that learn": ("update_ratio_low", lambda: rows(fall(300), update_ratio=1e-6)),
    "a gradient of exactly 0, whatever the rate": (
        "update_ratio_low",
        lambda: rows(STANDING, norm=0.0, update_ratio=0.0),
    ),
    "warmup": (
        "update_ratio_low",
        lambda: [replace(each, lr=1e-5 * (step + 1)) for step, each in enumerate(rows(STANDING, update_ratio=1e-6))],
    ),
    "noise of small batches": ("loss_oscillating", lambda: rows(2.3 * noise(0, 300, 0.25))),
    "a spike that comes down again": ("loss_spike", lambda: rows([*fall(200), 40.0, *[0.05] * 120])),
    "dead units in a run that learns": ("dead_units", lambda: sampled(rows(fall(300)), dead=1.0)),
    "half of the units": ("dead_units", lambda: sampled(rows(STANDING), dead=0.6)),
    "saturation in a run that learns": ("saturated_activation", lambda: sampled(rows(fall(300)), saturated=0.6)),
    "sharp attention in a run that learns": ("attention_collapse", lambda: attending(rows(fall(300)), 500.0, 0.02)),
    "a policy far off that learns": ("policy_far_off", lambda: acting(rows(fall(300)), ratio=200.0, kl=4.0)),
    "a large ratio of an action alone": ("policy_far_off", lambda: acting(rows(STANDING), ratio=200.0, kl=0.1)),
    "a policy that is sure and right": ("entropy_collapse", lambda: acting(rows(fall(300)), entropy=0.01)),
    "a policy that still tries": ("entropy_collapse", lambda: acting(rows(STANDING), entropy=0.3)),
    "reward and accuracy fall together": (
        "reward_hacked",
        lambda: (
            acting(rows(fall(400), accuracy=0.9)[:200], reward=1.0)
            + acting(rows(fall(400), accuracy=0.2)[200:], reward=0.5)
        ),
    ),
    "sharp attention with small logits": ("attention_collapse", lambda: attending(rows(STANDING), 30.0, 0.02)),
    "large logits, and attention to all": ("attention_collapse", lambda: attending(rows(STANDING), 500.0, 0.9)),
    "a memory that is short in a run that learns": ("vanishing_in_time", lambda: remembering(rows(fall(300)), 1e-5)),
    "a gradient that reaches the first time step": ("vanishing_in_time", lambda: remembering(rows(STANDING), 0.2)),
    "attention that nobody measured": ("attention_collapse", lambda: rows(STANDING)),
    "a net drawn unevenly that learns": (
        "poor_initialization",
        lambda: sampled(rows(fall(300)), stds=(1.0, 0.1, 1e-3)),
    ),
    "every step clipped, and it learns": ("clipping_always", lambda: rows(fall(300), settings=CLIPPED, clip_coef=0.01)),
    "a loss scale that is found": (
        "fp16_overflow",
        lambda: [replace(each, skipped=step < 16, settings=FP16) for step, each in enumerate(rows(fall(100)))],
    ),
    "tiny gradients in fp32": ("fp16_underflow", lambda: rows(STANDING, norm=0.0, settings=CLIPPED)),
    "rounding": (
        "accumulation_mismatch",
        lambda: first_row(rows(fall(60)), accumulated=AccumulationError(0, 1e-6, 1e-3)),
    ),
    "an overflow while it was compared": (
        "accumulation_mismatch",
        lambda: first_row(rows(fall(60)), accumulated=AccumulationError(0, math.nan, 1e-3)),
    ),
    "a signal that forgets its input in a run that learns": (
        "signal_lost",
        lambda: first_row(rows(fall(300)), head_cosine=0.996),
    ),
    "examples that are alike while no update was made": (
        "signal_lost",
        lambda: first_row(rows(STANDING, update_ratio=1e-6), head_cosine=1.0),
    ),
    "examples that are told apart": ("signal_lost", lambda: first_row(rows(STANDING), head_cosine=0.98)),
    "a test accuracy that has risen": (
        "nothing_learned",
        lambda: [
            replace(each, test_accuracy=0.1 + step / 400 if step % 100 == 0 else UNKNOWN)
            for step, each in enumerate(rows(STANDING))
        ],
    ),
    "gradients below the smallest float32": (
        "vanishing_gradient",
        lambda: [row(step, 2.3, 1e-39, shares=(0, 0, 0, 1, 0)) for step in range(300)],
    ),
    "a test set that is a little harder": ("test_gap", lambda: on_test_set(rows(fall(300), accuracy=0.99), 0.8)),
    "a model that has broken a moment ago": (
        "test_gap",
        lambda: [
            replace(
                each, accuracy=0.99 if each.step < 197 else 0.1, test_accuracy=0.14 if each.step == 200 else UNKNOWN
            )
            for each in rows(fall(201))
        ],
    ),
    "an accuracy that swings by chance": (
        "accuracy_lost",
        lambda: on_test_set(
            [replace(each, accuracy=float(each.step % 7 >= each.step // 100)) for each in rows(fall(201))], 0.6
        ),
    ),
    "a task that is half learned, and a little less": (
        "accuracy_lost",
        lambda: on_test_set(
            [replace(each, accuracy=0.6 if each.step < 100 else 0.42) for each in rows(fall(300))], 0.42
        ),
    ),
    "clipping at work": (
        "clip_without_effect",
        lambda: rows(fall(60), norm=5.0, settings=CLIPPED, clipped_norm=0.999999),
    ),
    "clipping under a loss scale": (
        "clip_on_scaled_gradients",
        lambda: rows(fall(60), norm=5.0, settings=CLIPPED, scale=65536.0, clipped_norm=1.0),
    ),
    "agc, which has no limit to hold it to": (
        "clip_on_scaled_gradients",
        lambda: rows(fall(60), norm=5.0, settings=Settings("agc", 0.01, "fp16"), scale=64.0, clipped_norm=0.1),
    ),
}


@pytest.mark.parametrize("rule", FIRES)
def test_fires_at_its_fault(rule: str) -> None:
    make, severity = FIRES[rule]
    finding = diagnose(make())[rule]
    assert finding.severity == severity
    assert finding.title and finding.evidence.endswith(".") and finding.meaning.endswith(".")


def told_by(state: Progress, made: list[Row]) -> dict[str, Finding]:
    """What the rules say of a run of which this is known."""
    history, diagnosis, found = History(LAYERS), Diagnosis(all_rules(), state), {}
    for each in made:
        history.append(each)
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    return found


@pytest.mark.parametrize("examples", [0, 2, 16])
def test_a_batch_norm_over_two_examples_is_named_where_the_run_does_badly(examples: int) -> None:
    found = told_by(Progress(normed_over=examples), rows(STANDING)).get("batch_norm_of_two")
    assert (found is not None) == (examples == 2)
    assert found is None or (found.first_step, found.remedies[0]) == (0, "model.norm=layer")
    assert "batch_norm_of_two" not in told_by(Progress(normed_over=examples), rows(fall(300)))


def test_a_loss_that_need_not_fall_is_not_asked_to() -> None:
    swinging = rows([2.3] * 20 + [1.0, 9.0] * 100, accuracy=0.1)
    for made in (rows(STANDING, accuracy=0.1), swinging):
        found = told_by(Progress(guess=0.125, by_accuracy=True), made)
        assert not found.keys() & {"loss_not_decreasing", "loss_oscillating"}


def test_large_updates_after_which_a_run_did_well_are_not_the_beginning_of_what_comes_later() -> None:
    made = rows([*fall(200), *[9.0] * 60])
    for step, ratio in ((21, 1.1), (200, 3.0), (201, 0.4)):
        made[step] = replace(made[step], update_ratio=ratio)
    found = diagnose(made)["update_ratio_high"]
    assert (found.first_step, found.last_step, found.evidence[:2]) == (200, 201, "2 ")


def test_underflow_that_goes_on_in_a_run_that_learns_is_a_note_that_does_not_say_it_is_over() -> None:
    made = rows([*STANDING[:100], *fall(200)], norm=0.0, settings=FP16)
    finding = diagnose(made)["fp16_underflow"]
    assert (finding.severity, finding.title, finding.last_step) == ("info", "Small gradients in fp16", 299)


def test_underflow_is_there_since_its_first_step() -> None:
    assert diagnose(FIRES["fp16_underflow"][0]())["fp16_underflow"].first_step == 0
    late = [
        replace(each, layers=np.ones_like(each.layers)) if each.step < 7 else each
        for each in rows(STANDING, norm=0.0, settings=FP16)
    ]
    assert diagnose(late)["fp16_underflow"].first_step == 7


@pytest.mark.parametrize("case", SILENT)
def test_holds_its_peace(case: str) -> None:
    rule, make = SILENT[case]
    finding = diagnose(make()).get(rule)
    assert finding is None or finding.severity == "info"


def test_dead_units_are_seen_between_two_samples_by_their_gradient() -> None:
    made = sampled(rows(fall(180) + [2.3] * 60), start=0)
    for step in range(180, 240):
        layers = made[step].layers.copy()
        layers[list(LAYER_METRICS).index("zero_share"), 1:4] = 1.0
        made[step] = replace(made[step], layers=layers, accuracy=0.1)
    made = [replace(each, accuracy=min(step / 150, 0.9) if step < 180 else 0.1) for step, each in enumerate(made)]
    finding = diagnose(made)["dead_units"]
    assert finding.severity == "critical" and finding.layers == WEIGHTS[1:] and finding.first_step == 180


@pytest.mark.parametrize(("steps", "since", "told"), [(160, 0, "warning"), (90, 0, ""), (160, 1, "")])
def test_a_tensor_whose_gradient_is_0_from_the_first_step_on_is_named(steps: int, since: int, told: str) -> None:
    """An adapter that begins at 0 has a gradient from its second step on."""
    made = [
        replace(
            row(step, 2.3, 1.0, shares=(0.5, float(step < since), 0.5, 0.5, 0.0)),
            unused=("last.bias",),
            accuracy=UNKNOWN,
            settings=CLIPPED,
        )
        for step in range(steps)
    ]
    finding = diagnose(made).get("gradient_of_zero")
    assert (finding.severity if finding else "") == told
    if finding:
        assert finding.layers == ("second.weight",) and "each of the 160 steps" in finding.evidence


@pytest.mark.parametrize(("norm", "rule"), [(1.0, "gradient_of_zero"), (1e-6, "fp16_underflow")])
def test_weights_without_gradient_beside_a_large_one_are_not_rounded_to_0(norm: float, rule: str) -> None:
    in_half = CLIPPED._replace(dtype="fp16")
    made = [
        replace(row(step, 2.3, norm, shares=(0, 0, 0, 0, 1.0)), accuracy=UNKNOWN, settings=in_half, unused=())
        for step in range(160)
    ]
    for each in made:
        each.layers[LARGEST_GRAD] = [0, 0, 0, 0, norm]
    found = set(diagnose(made)) & {"gradient_of_zero", "fp16_underflow"}
    assert found == {rule}


@pytest.mark.parametrize(("loss", "told"), [(2.3, True), (0.0, False)])
def test_all_gradients_at_0_are_a_fault_where_the_loss_is_not_0(loss: float, told: bool) -> None:
    made = rows([loss] * 200, norm=0.0, accuracy=UNKNOWN, settings=CLIPPED)
    finding = diagnose(made).get("vanishing_gradient")
    assert (finding is not None) is told
    assert finding is None or (finding.title, finding.first_step) == ("All gradients are exactly 0", 0)


@pytest.mark.parametrize(("role", "told"), [("weight", True), ("embedding", False)])
def test_rows_of_an_embedding_that_no_batch_asks_for_are_no_dead_units(role: Any, told: bool) -> None:
    made = rows(STANDING)
    for each in made:
        each.layers[ZERO_SHARE, 1] = 0.95
    layers = (LAYERS[0], LAYERS[1]._replace(role=role), *LAYERS[2:])
    assert ("dead_units" in diagnose(made, layers)) is told


def test_the_accuracy_at_the_end_of_a_run_that_trained_well_tells_that_it_is_useless() -> None:
    """As where outliers have spoiled the running statistics of a batch norm."""
    history, diagnosis = History(LAYERS), Diagnosis(all_rules(), Progress(guess=0.1))
    for each in rows(fall(150), accuracy=0.99, test_accuracy=0.09):
        history.append(replace(each, test_accuracy=0.09 if each.step == 0 else UNKNOWN))
        assert not [finding for finding in diagnosis.look(history) if finding.severity != "info"]
    [finding] = diagnosis.conclude(history, 0.08)
    assert (finding.rule, finding.severity, finding.title) == ("nothing_learned", "critical", cause_ranking.APART)
    assert "8 %" in finding.evidence and "99 %" in finding.evidence and "by heart" in finding.meaning
    assert not [*Diagnosis(all_rules(), Progress(guess=0.1)).conclude(history, 0.95)]


def test_a_batch_norm_that_a_bad_batch_went_into_is_the_reason_of_a_gap() -> None:
    history, state = History(LAYERS), Progress(guess=0.1, promised=0.75, batch_normed=True)
    diagnosis, found = Diagnosis(all_rules(), state), {}
    for each in on_test_set(rows([*fall(150), 40.0, *[0.1] * 150], accuracy=0.97), 0.5):
        history.append(each)
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    finding = found["test_gap"]
    assert finding.severity == "critical" and "50 %" in finding.evidence and "97 %" in finding.evidence
    assert finding.remedies == ("model.norm=layer",) and "The batch of step 150, with a loss of 40" in finding.meaning


@pytest.mark.parametrize(
    ("optimizer", "cosine", "said"), [("adam", -0.1, True), ("adam", 0.3, False), ("sgd", 1.0, False)]
)
def test_a_run_lost_its_accuracy_to_a_bad_batch_that_adam_remembers(optimizer: str, cosine: float, said: bool) -> None:
    """After one bad batch the updates follow their own gradients less, and the run comes to rest lower."""
    losses = [*fall(150, 0.2), 4e4, 0.3, *[1.0] * 148]
    made = [
        replace(
            each, settings=Settings("none", 0.0, "fp32", optimizer, 0.0, 0.9, 0.999),
            accuracy=0.97 if each.step < 152 else 0.65, update_cosine=0.35 if each.step <= 150 else cosine,
        )
        for each in rows(losses)
    ]  # fmt: skip
    history, diagnosis, found = History(LAYERS), Diagnosis(all_rules(), Progress(guess=0.1, promised=0.75)), {}
    for each in made:
        history.append(each)
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    found |= {finding.rule: finding for finding in diagnosis.conclude(history, 0.66)}
    assert found["accuracy_lost"].severity == "critical" and "97 %" in found["accuracy_lost"].evidence
    (cause,) = cause_ranking.causes_only(finding for finding in found.values() if finding.severity != "info")
    assert (cause.rule, cause.severity, cause.explains) == ("loss_spike", "critical", ("accuracy_lost",))
    assert ("their cosine with them is -0.1 in the median, and was 0.35 before" in cause.meaning) is said


def test_a_loss_that_grows_with_the_reward_is_no_explosion() -> None:
    made = [replace(row(step, 3.0 * 1.06**step, 1.1**step), accuracy=min(0.1 + step / 100, 0.9)) for step in range(100)]
    history, diagnosis, found = History(LAYERS), Diagnosis(all_rules(), Progress(guess=0.05, by_accuracy=True)), {}
    for each in made:
        history.append(each)
        found |= {finding.rule: finding.severity for finding in diagnosis.look(history)}
    assert found == {"exploding_gradient": "info"}


def test_a_loss_of_the_bad_batch_itself_is_no_harm() -> None:
    """The loss of a step is that of the weights before its update."""
    calm = [row(step, loss, 1.0) for step, loss in enumerate(fall(100, 0.5))]
    held = diagnose([*calm, row(100, 5e4, 3e4, 50.0), *[row(step, 0.6, 1.0) for step in range(101, 121)]])
    finding = held["exploding_gradient"]
    assert (finding.severity, finding.title, finding.remedies) == ("info", "Gradient spike, held by clipping", ())
    assert finding.meaning.startswith("It is over: the median loss of the 10 steps up to step 119 is 0.6")
    assert "high for this batch at these weights" in held["loss_spike"].meaning
    gone = diagnose([*calm, row(100, 5e4, 3e4), *[row(step, 9.0, 1.0) for step in range(101, 121)]])
    assert gone["exploding_gradient"].severity == "critical"


def test_what_was_usual_before_a_spike_is_the_loss_of_the_run_and_not_a_limit() -> None:
    made = [row(step, 4.0 if step < 10 else 0.05, 1.0) for step in range(120)]
    made[110] = row(110, 0.05, 3e4, 50.0)
    meaning = diagnose(made)["exploding_gradient"].meaning
    assert "of the 10 steps up to step 119 is 0.05; it was about 0.05 before" in meaning


def test_a_streak_of_skipped_updates_is_told_at_its_full_length() -> None:
    skipped = rows(STANDING[:80], norm=math.inf, settings=FP16, skipped=True, scale=64.0)
    evidence = diagnose(skipped)["fp16_overflow"].evidence
    assert "skipped 80 updates in a row up to step 79; its scale was 64 there" in evidence


def test_updates_left_out_at_a_finite_gradient_are_none_of_the_scaler() -> None:
    left_out = rows(STANDING[:80], norm=50.0, settings=FP16, skipped=True, scale=0.5)
    assert "fp16_overflow" not in diagnose(left_out)
    assert "scale_collapse" not in diagnose(looped(left_out, scaling="dynamic"))


def test_a_later_explosion_begins_where_it_begins() -> None:
    made = [row(step, 5 * math.exp(-step / 50), 500 * math.exp(-step / 20) + 1) for step in range(200)]
    storm = [row(200 + n, 1.0 if n < 3 else 50.0, 3.0 ** (n + 1)) for n in range(8)]
    finding = diagnose([*made, *storm])["exploding_gradient"]
    assert finding.severity == "critical" and 200 <= finding.first_step <= 204


ADAM = Settings("value", 0.5, "fp32", "adam", 0.0, 0.9, 0.999)


@pytest.mark.parametrize(("settings", "cosine", "said"), [
    (ADAM, 0.3, ["m for about 10 steps", "v for about 1000 steps", "cosine with the true gradient is 0.3"]),
    (ADAM._replace(clipping="norm", optimizer="sgd", momentum=0.9), 1.0, ["kept its direction", "it for about 10 steps"]),
    (ADAM._replace(clipping="norm"), 0.3, ["shortened this gradient; its cosine with the true gradient is 0.3"]),
    (ADAM._replace(clipping="agc"), 0.3, ["of each unit by itself", "cosine"]),
    (ADAM._replace(optimizer="rmsprop", beta2=0.95), 0.3, ["keeps this gradient for about 20 steps."]),
    (ADAM._replace(optimizer="rmsprop", beta2=0.0), 0.3, ["keeps this gradient. The update"]),
])  # fmt: skip
def test_what_a_gradient_does_is_told_by_clipping_and_optimizer(
    settings: Settings, cosine: float, said: list[str]
) -> None:
    history = History(LAYERS)
    history.append(replace(row(0, 1.0, 9.0), settings=settings, clip_cosine=cosine))
    told = f"{mechanism.clipping(history, 0)} {mechanism.update(history, 0)}"
    assert all(part in told for part in said), told


@pytest.mark.parametrize(
    ("momentum", "cosine", "said"), [(0.99, 0.12, "about 100 steps"), (0.99, 0.8, ""), (0.0, 0.12, ""), (1.0, 0.0, "")]
)
def test_a_loss_that_swings_says_what_carries_the_updates_on(momentum: float, cosine: float, said: str) -> None:
    settings = Settings("none", 0.0, "fp32", "sgd", momentum)
    made = rows([2.3] * 20 + [1.0, 9.0] * 100, settings=settings, update_cosine=cosine)
    meaning = diagnose(made)["loss_oscillating"].meaning
    assert (
        (said in meaning and "momentum carries them on" in meaning and "is 0.12" in meaning)
        if said
        else ("carries" not in meaning)
    )


@pytest.mark.parametrize(("decay", "said"), [
    (DECAYED, "weight decay took 0.05 of the weights away (lr × weight_decay), and the whole update was 0.05 times"),
    (DECAYED._replace(optimizer="adamw"), "weight decay took 0.05 of the weights away"),
    (DECAYED._replace(momentum=0.9), "added a vector of norm 3.5 (weight_decay × weights) to a gradient of norm 0.01"),
    (DECAYED._replace(optimizer="adam"), "added a vector of norm 3.5"),
])  # fmt: skip
def test_what_weight_decay_did_is_told_by_optimizer_and_with_the_numbers_of_the_run(decay: Settings, said: str) -> None:
    found = diagnose(shrinking(rows(STANDING, settings=decay)))["weight_decay_high"]
    assert (
        found.first_step == 0
        and said in found.evidence
        and "was 7 at step 0, and is 0.07 at step 299" in found.evidence
    )
    assert found.remedies[0].startswith("optimizer.weight_decay=") and "optimizer.weight_decay=0" in found.remedies


def test_clipping_that_was_switched_off_is_no_cause_of_what_came_after_it() -> None:
    made = rows(STANDING[:120], settings=CLIPPED, clip_coef=0.01, clipped_norm=0.01)
    assert diagnose(made)["clipping_always"].severity == "warning"
    off = [row(120 + n, 2.3 * 9.0**n, 3.0 * 9.0**n) for n in range(6)]
    found = diagnose([*made, *[replace(each, settings=CLIPPED._replace(clipping="none")) for each in off],
                      replace(row(126, math.nan, math.nan), nonfinite=9)])  # fmt: skip
    assert found["clipping_always"].severity == "info" and "off since step 120" in found["clipping_always"].meaning
    assert cause_ranking.rank_causes(found.values())[0].rule == "exploding_gradient"
    assert "Nothing has been clipped since step 120; the limit was 1 before." in found["exploding_gradient"].evidence


def test_a_rate_that_was_raised_is_told_with_the_numbers_before_and_after() -> None:
    calm = rows([0.5] * 100, update_ratio=1e-3)
    worse = [replace(row(100 + n, 0.9, 1.0), lr=2.0, update_ratio=0.02) for n in range(60)]
    finding = diagnose([*calm, *worse])["rate_raised"]
    assert "rose from 0.1 to 2 at step 100" in finding.evidence and "median loss was 0.5" in finding.evidence
    assert "is 0.9 in the last ones up to step 159" in finding.evidence and finding.first_step == 100
    assert "0.001 times as large as the weights before, and 0.02" in finding.meaning
    assert finding.remedies == ("optimizer.lr=0.1",)


def test_a_figure_after_the_rate_was_raised_hides_no_nan() -> None:
    calm = rows([0.5] * 100, update_ratio=1e-3)
    finite = replace(row(100, 0.4, 1.0), lr=math.inf, update_ratio=math.inf)
    broken = [replace(row(101 + n, math.nan, math.nan), lr=1e-3, update_ratio=math.nan) for n in range(3)]
    finding = diagnose([*calm, finite, *broken])["rate_raised"]
    assert "is 0.4 (without 1 step of NaN) in the last ones up to step 101" in finding.evidence
    assert "and NaN or Inf in the steps after it" in finding.meaning


@pytest.mark.parametrize(("beta2", "told"), [(0.999, True), (0.5, False)])
def test_an_optimizer_keeps_a_spike_only_while_its_mean_of_squares_does(beta2: float, told: bool) -> None:
    made = remembered([2.3 - step / 1000 for step in range(300)], "adam")
    made = [replace(each, settings=each.settings and each.settings._replace(beta2=beta2)) for each in made]
    found = diagnose(made).get("updates_after_spike")
    assert (found is not None) is told
    assert found is None or "such gradients still are 100 % of that mean" in found.meaning


def test_a_clip_whose_norm_overflows_is_named_and_the_explosion_stays_its_cause() -> None:
    made = rows([*fall(60), *[9.0] * 100], norm=0.5, settings=CLIPPED._replace(limit=50.0), clip_coef=1.0)
    made = [
        replace(each, grad_norm=1e20, clipped_norm=0.0, clip_coef=0.0, update_ratio=0.0) if each.step >= 80 else each
        for each in made
    ]
    finding = diagnose(made)["clip_overflow"]
    assert (finding.severity, finding.first_step, finding.remedies) == ("critical", 80, ("clipping.max_norm=0.5",))
    assert "exactly 0 of the gradient at 80 steps" in finding.evidence
    exploding = Finding("exploding_gradient", "critical", "b", 37, 159, (), "", "", ())
    (cause,) = cause_ranking.causes_only([finding, exploding])
    assert cause.rule == "exploding_gradient" and "clip_overflow" in cause.explains
    gradient = torch.full((4,), 1e20)  # as torch does it
    weight = torch.zeros(4, requires_grad=True)
    weight.grad = gradient
    torch.nn.utils.clip_grad_norm_([weight], 50.0)
    assert not weight.grad.any()


def test_clipping_that_is_tight_since_long_after_an_explosion_does_not_explain_it() -> None:
    clipped = Finding("clipping_always", "critical", "a", 194, 499, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", 37, 499, (), "", "", ())
    assert cause_ranking.causes_only([clipped, exploding])[0].rule == "exploding_gradient"


def test_updates_that_are_nan_after_a_spike_are_not_told_as_small() -> None:
    made = remembered([2.3 - step / 1000 for step in range(300)], "adam")
    spike = max(made, key=lambda each: each.clipped_norm).step
    broken = [replace(each, update_ratio=math.nan) if each.step > spike else each for each in made]
    assert "updates_after_spike" in diagnose(made) and "updates_after_spike" not in diagnose(broken)


@pytest.mark.parametrize(("values", "said"), [
    ([3.0, 1.0, 2.0], "2"),
    ([1.0, math.nan, math.inf], "1 (without 2 steps of NaN or Inf)"),
    ([math.inf, 1.0], "1 (without 1 step of Inf)"),
    ([math.nan, math.nan, UNKNOWN], "NaN"),
    ([math.nan, math.inf], "NaN or Inf"),
    ([UNKNOWN, 1.0], "1"),
    ([UNKNOWN], "not known"),
])  # fmt: skip
def test_a_median_that_is_told_hides_nothing(values: list[float], said: str) -> None:
    assert median_text(np.array(values)) == said


@pytest.mark.parametrize("changed", [80, 0])
def test_large_updates_of_a_decay_are_not_put_down_to_the_rate(changed: int) -> None:
    made = rows([*fall(100), *STANDING], settings=DECAYED._replace(weight_decay=0.0))
    strong = shrinking([replace(each, settings=DECAYED._replace(weight_decay=3.0)) for each in made[changed:]], 0.3)
    found = diagnose([*made[:changed], *strong])
    assert "learning rate" not in found["update_ratio_high"].meaning
    assert found["update_ratio_high"].remedies[0].startswith("optimizer.weight_decay=")
    assert cause_ranking.rank_causes(found.values())[0].rule == "weight_decay_high"
    assert found["weight_decay_high"].first_step == changed


def test_a_rate_that_was_high_enough_while_there_was_a_gradient_is_not_too_low() -> None:
    """As where a policy has become sure of itself, so that its gradient is gone."""
    made = [replace(each, update_ratio=0.05 if each.step < 3 else 1e-6) for each in rows(STANDING)]
    assert "update_ratio_low" not in diagnose(made)
    fallen = [replace(each, lr=0.1 if each.step < 3 else 1e-5) for each in made]
    assert "update_ratio_low" in diagnose(fallen)


def test_what_was_no_better_than_guessing_stays_so_until_it_is_better() -> None:
    made = rows(STANDING, test_accuracy=UNKNOWN)
    made = [replace(each, test_accuracy=0.1) if each.step in (0, 120, 280) else each for each in made]
    moving = [replace(each, accuracy=0.1 + 0.1 * (each.step >= 250)) for each in made]
    state = Progress(guess=0.1, by_accuracy=True)
    history, diagnosis, found = History(LAYERS), Diagnosis(all_rules(), state), {}
    for each in moving:
        history.append(each)
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    assert not state.stuck and found["nothing_learned"].severity == "critical"
    assert "At step 280" in found["nothing_learned"].evidence
    assert "has learned" in next(diagnosis.conclude(history, 0.2)).meaning


def ended(made: list[Row], accuracy: float, state: Progress) -> dict[str, Finding]:
    """What the rules say of a run that ends with an accuracy on the test set."""
    history, diagnosis, found = History(LAYERS), Diagnosis(all_rules(), state), {}
    for each in made:
        history.append(each)
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    return found | {finding.rule: finding for finding in diagnosis.conclude(history, accuracy)}


def test_a_run_that_ended_within_its_warmup_is_told() -> None:
    made = [replace(each, lr=1e-5 * (each.step + 1), accuracy=0.1) for each in rows(STANDING, update_ratio=1e-6)]
    found = ended(made, 0.2, Progress(guess=0.1, promised=0.75))
    assert found["update_ratio_low"].remedies == ("schedule.warmup_steps=30",)
    assert "at a learning rate of 0.003, which still rises." in found["update_ratio_low"].evidence
    assert found["nothing_learned"].title == "Hardly better than guessing so far"
    assert "nothing_learned" not in ended(made, 0.2, Progress(guess=0.1, promised=0.19))


def test_what_goes_wrong_in_evaluation_alone_has_no_cause_in_training() -> None:
    """An accuracy of a little above guessing at the end takes nothing back, and a mistake in the loop is no reason."""
    made = looped(on_test_set(rows(fall(300), accuracy=0.97), 0.12), micro_batches=4)
    found = ended(
        first_row(made, accumulated=AccumulationError(0, 0.6, 1e-3)), 0.135, Progress(guess=0.1, promised=0.75)
    )
    assert "13.5 %" in found["nothing_learned"].evidence
    causes = cause_ranking.rank_causes(found.values())
    assert [(cause.rule, cause.severity) for cause in causes[:2]] == [
        ("accumulation_mismatch", "warning"), ("test_gap", "critical"),
    ]  # fmt: skip
    assert causes[1].explains == ("nothing_learned",) and found["nothing_learned"].title == cause_ranking.APART
    narrow = ended(rows(fall(300), accuracy=0.95), 0.7, Progress(guess=0.1, promised=0.75))
    assert narrow["test_gap"].severity == "warning"


def test_clipping_that_became_too_tight_is_told_from_there_on() -> None:
    tight = [replace(each, clip_coef=0.5 if each.step < 130 else 1e-3) for each in rows(STANDING, settings=CLIPPED)]
    finding = diagnose(tight)["clipping_always"]
    assert (finding.severity, finding.first_step) == ("warning", 130)
    adam = [replace(each, settings=CLIPPED._replace(optimizer="adam"), clipped_norm=4e-6) for each in tight]
    assert "about 6.17e-7 (root mean square)" in diagnose(adam)["clipping_always"].meaning  # 4e-6 / sqrt(42)


def test_a_spike_that_passed_is_not_the_beginning_of_one_that_stayed() -> None:
    made = rows([*fall(100), 40.0, *fall(201)[101:], *[30.0] * 80])
    finding = diagnose(made)["loss_spike"]
    assert (finding.severity, finding.first_step) == ("warning", 201) and "and 30 at step 201" in finding.evidence


def test_a_run_that_learned_nothing_before_it_exploded_is_not_the_cause_of_that() -> None:
    useless = Finding("nothing_learned", "critical", "No better than guessing", 399, 499, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "Exploding gradient", 441, 462, (), "", "", ())
    assert [cause.rule for cause in cause_ranking.causes_only([useless, exploding])] == [exploding.rule, useless.rule]


def test_an_update_after_which_a_policy_fell_is_too_large() -> None:
    def played(after: float) -> list[Row]:
        made = [replace(each, accuracy=0.1 if not each.step else after) for each in rows(STANDING)]
        return first_row(made, update_ratio=0.8)

    state = Progress(guess=0.05, by_accuracy=True)
    finding = told_by(state, played(0.045))["update_ratio_high"]
    assert (finding.severity, finding.first_step) == ("critical", 0)
    assert "The accuracy was 10 % at step 0, and 4.5 % in the 5 steps after it." in finding.meaning
    assert "update_ratio_high" not in told_by(Progress(guess=0.05, by_accuracy=True), played(0.09))


def test_units_that_died_of_depth_are_an_effect_of_the_vanishing_gradient() -> None:
    vanished = Finding("vanishing_gradient", "critical", "Vanishing gradient", 0, 9, WEIGHTS[:2], "", "", ())
    dead = Finding("dead_units", "critical", "Dead units", 0, 9, WEIGHTS[1:2], "", "", ())
    assert cause_ranking.rank_causes([dead, vanished])[0].rule == "vanishing_gradient"
    assert cause_ranking.rank_causes([replace(dead, layers=WEIGHTS[:2]), vanished])[0].rule == "dead_units"


def test_a_note_on_what_is_over_speaks_in_the_past() -> None:
    finding = diagnose(rows([*STANDING[:150], *fall(200)], update_ratio=1e-6))["update_ratio_low"]
    assert finding.severity == "info" and finding.remedies == ()
    assert finding.title == f"Updates too small, last judged at step {finding.last_step}"
    assert "the run learned" in finding.meaning


def test_a_sum_that_nobody_divided_is_named() -> None:
    finding = diagnose(FIRES["accumulation_mismatch"][0]())["accumulation_mismatch"]
    assert "4 times too long" in finding.evidence and finding.remedies == ("mistakes.unscaled_accumulation=false",)


def test_right_calls_with_a_wrong_sum_point_to_the_weights_of_the_examples() -> None:
    made = first_row(looped(rows(fall(60)), micro_batches=4), accumulated=AccumulationError(0, 0.6, 1e-3))
    loop = made[0].loop._replace(calls=right(made[0].loop))
    finding = diagnose([replace(each, loop=loop) for each in made])["accumulation_mismatch"]
    assert "by 0.6 times the norm" in finding.evidence and "weighs them otherwise" in finding.meaning
    assert finding.remedies == ("mistakes.normalize_each_micro_batch=false",)


def test_a_fault_that_passes_is_a_note_in_the_end() -> None:
    made = rows([*STANDING[:150], *fall(200)], update_ratio=0.2)
    assert diagnose(made[:150])["update_ratio_high"].severity == "critical"
    assert diagnose(made)["update_ratio_high"].severity == "info"


@pytest.mark.parametrize("rule", [*FIRES, "exploding", "vanishing"])
def test_rules_that_go_on_from_a_copy_say_the_same(rule: str) -> None:
    """As at a snapshot: copied at a step, and asked of the rest of a history that grows again."""
    made = (
        {"exploding": exploding(), "vanishing": vanishing(1e-5, 1.0)}[rule]
        if rule in ("exploding", "vanishing")
        else FIRES[rule][0]()
    )
    whole, history, diagnosis, found = diagnose(made), History(LAYERS), Diagnosis(all_rules()), {}
    kept, kept_found = diagnosis, {}
    for each in made:
        if len(history) == len(made) // 2 + 3:
            kept, kept_found = diagnosis.copy(), dict(found)
        history.append(each)
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    assert found == whole
    assert kept is not diagnosis
    found = kept_found
    for grown in history.as_it_grew(len(made) // 2 + 3, len(made)):
        found |= {finding.rule: finding for finding in kept.look(grown)}
    assert found == whole


# ---- causes


def test_one_cause_stands_for_what_it_explains() -> None:
    made = sampled(rows(STANDING, update_ratio=1e-6), stds=(1.0, 0.1, 1e-3))
    found = diagnose(made)
    assert set(found) == {"poor_initialization", "update_ratio_low", "loss_not_decreasing"}
    (cause,) = cause_ranking.causes_only(found.values())
    assert (cause.rule, cause.severity) == ("poor_initialization", "critical")
    assert set(cause.explains) == {"update_ratio_low", "loss_not_decreasing"}
    assert "It explains: " in cause.meaning and "Updates too small" in cause.meaning
    assert next(finding.rule for finding in cause_ranking.rank_causes(found.values())) == "poor_initialization"
    assert len(cause_ranking.rank_causes(found.values())) == 3


def born(
    phase: str,
    name: str,
    of: str = "",
    *,
    module: str = "",
    taken_inf: int = 0,
    made_inf: int = 0,
    largest: float = 1.0,
    cause: str = "",
) -> Provenance:
    operation = Operation(
        phase, module, name, of, "float32", largest, 0, taken_inf, math.nan, 0 if made_inf else 1, made_inf
    )
    return Provenance(0, phase, module, name, cause, 0, 1, None, (), (operation,))


@pytest.mark.parametrize(("provenance", "named"), [
    (born("loss", "aten.div.Tensor"), "nonfinite_loss"),
    (born("loss", "aten.log.default"), "nonfinite_loss"),
    (born("backward", "aten.div.Tensor", "SqrtBackward0"), "nonfinite_loss"),
    (born("loss", "aten.mul.Tensor"), "exploding_gradient"),
    (born("loss", "aten.log.default", taken_inf=1), "exploding_gradient"),
    (born("forward", "aten.div.Tensor", module="hidden.0"), "exploding_gradient"),
    (born("loss", "aten.pow.Tensor_Scalar", made_inf=1), "nonfinite_loss"),
    (born("loss", "aten.pow.Tensor_Scalar", made_inf=1, largest=2e19), "exploding_gradient"),
    (born("loss", "MeanBackward0", cause=undefined_operations.MEAN_OF_NONE), "nonfinite_loss"),
    (born("loss", "MeanBackward0", made_inf=1, largest=3e38), "exploding_gradient"),
    (None, "exploding_gradient"),
])  # fmt: skip
def test_a_loss_that_made_the_first_nan_of_finite_values_is_the_cause(provenance: Provenance, named: str) -> None:
    nan = Finding("nonfinite_loss", "critical", "a", 9, 9, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", 8, 9, (), "", "", ("clipping.kind=norm",))
    assert cause_ranking.causes_only([exploding, nan], provenance)[0].rule == named


def test_a_nan_that_came_with_the_data_is_explained_by_nothing_else() -> None:
    loop = Finding("loop_order", "warning", "Calls in the wrong order", 0, 40, (), "", "", ())
    rate = Finding("rate_raised", "warning", "a", 3, 3, (), "", "", ())
    nan = Finding("nonfinite_loss", "critical", "b", 40, 40, (), "", "", ())
    of_a_rank = Finding("nan_on_a_rank", "critical", "c", 40, 40, (), "", "", ())
    found = {each.rule: each for each in cause_ranking.rank_causes([loop, rate, nan, of_a_rank], born("data", ""))}
    assert not {"nonfinite_loss", "nan_on_a_rank"} & {*found["loop_order"].explains, *found["rate_raised"].explains}
    assert found["nan_on_a_rank"].explains == ("nonfinite_loss",) and found["loop_order"].severity == "warning"


@pytest.mark.parametrize(("provenance", "told"), [
    (born("data", ""), False),
    (born("forward", "input", taken_inf=1), False),
    (born("forward", "aten.div.Tensor", module="hidden.0"), False),
    (born("forward", "aten.addmm.default", module="hidden.0", made_inf=1), True),
    (replace(born("data", ""), step=2), True),
    (None, True),
])  # fmt: skip
def test_a_nan_that_was_not_too_large_is_no_overflow_of_fp16(provenance: Provenance | None, told: bool) -> None:
    nan = Finding("nonfinite_loss", "critical", "a", 0, 0, (), "", "", ())
    overflow = Finding("fp16_overflow", "critical", "Too large for fp16", 0, 0, (), "", "", ())
    found = cause_ranking.rank_causes([overflow, nan], provenance)
    assert ("fp16_overflow" in [each.rule for each in found]) is told


def test_what_began_before_an_event_is_not_its_effect() -> None:
    early = Finding("exploding_gradient", "critical", "a", 10, 40, (), "", "", ())
    late = Finding("loop_order", "warning", "b", 100, 199, (), "", "", ())
    assert cause_ranking.causes_only([late, early])[0].rule == "exploding_gradient"
    assert cause_ranking.causes_only([late, replace(early, first_step=100)])[0].rule == "loop_order"


def test_what_the_loss_did_before_an_explosion_stands_behind_it_and_is_not_its_effect() -> None:
    swings = Finding("loss_oscillating", "warning", "a", 119, 200, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", 223, 223, (), "", "", ())
    found = cause_ranking.rank_causes([swings, exploding])
    assert [(each.rule, each.explains) for each in found] == [("exploding_gradient", ()), ("loss_oscillating", ())]


def test_what_was_over_is_not_the_effect_of_what_came_later() -> None:
    large = Finding("update_ratio_high", "warning", "a", 0, 13, (), "", "", ())
    nan = Finding("nonfinite_loss", "critical", "b", 14, 14, (), "", "", ())
    birth = born("loss", "aten.log.default")  # which puts the NaN first
    for last, explains in ((13, ()), (14, ("update_ratio_high",))):
        found = cause_ranking.rank_causes([nan, replace(large, last_step=last)], birth)
        assert (found[0].rule, found[0].explains) == ("nonfinite_loss", explains)


def test_a_mistake_in_the_loop_comes_before_a_nan_of_the_loss_that_came_later() -> None:
    nan = Finding("nonfinite_loss", "critical", "a", 20, 20, (), "", "", ())
    mismatch = Finding("accumulation_mismatch", "warning", "b", 0, 20, (), "", "", ())
    birth = born("loss", "aten.log.default")
    assert cause_ranking.causes_only([nan, mismatch], birth)[0].rule == "accumulation_mismatch"
    assert cause_ranking.causes_only([replace(nan, first_step=0), mismatch], birth)[0].rule == "nonfinite_loss"


def test_notes_come_last_and_explain_nothing() -> None:
    def made(rule: str, severity: Severity, step: int = 0) -> Finding:
        return Finding(rule, severity, rule, step, step, (), "", "", ())

    found = cause_ranking.rank_causes(
        [made("poor_initialization", "info"), made("loss_spike", "warning"), made("nonfinite_loss", "critical", 9)]
    )
    assert [(finding.rule, finding.explains) for finding in found] == [
        ("nonfinite_loss", ("loss_spike",)), ("loss_spike", ()), ("poor_initialization", ())
    ]  # fmt: skip


def test_a_cause_is_as_grave_as_what_it_brings_about() -> None:
    mismatch = Finding("accumulation_mismatch", "warning", "a", 0, 0, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", 5, 9, (), "", "", ())
    assert [(finding.rule, finding.severity) for finding in cause_ranking.causes_only([exploding, mismatch])] == [
        ("accumulation_mismatch", "critical")
    ]


@pytest.mark.parametrize(("first", "named"), [(0, "update_ratio_high"), (48, "update_ratio_high"), (50, "dead_units")])
def test_updates_that_were_large_before_the_units_died_are_the_cause(first: int, named: str) -> None:
    dead = Finding("dead_units", "critical", "a", 49, 99, (), "", "", ())
    high = Finding("update_ratio_high", "critical", "b", first, first + 5, (), "", "", ())
    assert cause_ranking.causes_only([dead, high])[0].rule == named


@pytest.mark.parametrize(
    ("title", "named"), [(cause_ranking.FIRST_UPDATE, "update_ratio_high"), ("", "exploding_gradient")]
)
def test_a_first_update_larger_than_the_weights_comes_before_the_explosion_that_it_makes(
    title: str, named: str
) -> None:
    dead = Finding("dead_units", "critical", "a", 5, 99, (), "", "", ())
    high = Finding("update_ratio_high", "critical", title, 0, 9, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", 3, 9, (), "", "", ())
    assert cause_ranking.causes_only([dead, high, exploding])[0].rule == named


@pytest.mark.parametrize(
    ("first", "named"), [(3, "exploding_gradient"), (60, "exploding_gradient"), (79, "dead_units")]
)
def test_an_explosion_before_the_units_died_is_the_cause(first: int, named: str) -> None:
    dead = Finding("dead_units", "critical", "a", 79, 99, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", first, first + 5, (), "", "", ())
    assert cause_ranking.causes_only([dead, exploding])[0].rule == named


def spiking(peaks: dict[int, float], usual: float = 0.5, last: float = math.nan) -> list[Row]:
    """A run of SGD whose update is a hundredth of the weights at the usual gradient norm, and as much larger as the
    gradient at some steps. At the end the loss is NaN."""
    made = [
        replace(
            each, grad_norm=(norm := peaks.get(each.step, usual)), clipped_norm=norm, update_ratio=0.01 * norm / usual,
            settings=Settings("none", 0.0, "fp32", "sgd"), accuracy=0.1,
        )
        for each in rows([2.3] * 120)
    ]  # fmt: skip
    return [*made, replace(made[-1], step=120, loss=last, nonfinite=1)]


@pytest.mark.parametrize("sign", [21, 104, 118])
def test_an_update_that_is_large_because_the_gradient_spiked_is_a_sign_of_the_explosion(sign: int) -> None:
    found = diagnose(spiking({sign: 60.0, 119: 1e23}))
    assert found["update_ratio_high"].title == cause_ranking.OF_A_SPIKE
    assert found["update_ratio_high"].remedies[0] == "clipping.kind=norm"
    assert "0.5 in the median of the 50 steps before" in found["update_ratio_high"].meaning
    (cause, *_) = cause_ranking.causes_only(found.values())
    assert cause.rule == "exploding_gradient" and "update_ratio_high" in cause.explains


def test_updates_that_are_large_with_the_usual_gradient_are_of_the_rate() -> None:
    made = [replace(each, update_ratio=0.2) for each in spiking({119: 1e23})]
    assert diagnose(made)["update_ratio_high"].title == "Updates too large"


@pytest.mark.parametrize(("spiked", "named"), [(True, "exploding_gradient"), (False, "update_ratio_high")])
def test_units_that_die_of_an_explosion_are_its_effect_whichever_threshold_was_passed_first(
    spiked: bool, named: str
) -> None:
    dead = Finding("dead_units", "critical", "a", 50, 99, (), "", "", ())
    title = cause_ranking.OF_A_SPIKE if spiked else "Updates too large"
    high = Finding("update_ratio_high", "critical", title, 45, 78, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "b", 78, 79, (), "", "", ())
    assert [each.rule for each in cause_ranking.causes_only([dead, high, exploding])] == [named]


def test_units_that_live_again_are_told_in_the_past() -> None:
    """Though the run does no better for it."""
    made = sampled(rows(STANDING), dead=1.0)
    made = [
        replace(each, activations=each.activations and Activations(each.step, tuple(
            layer._replace(dead=0.1) for layer in each.activations.layers
        ))) if each.step >= 200 else each
        for each in made
    ]  # fmt: skip
    finding = diagnose(made)["dead_units"]
    assert finding.severity == "info" and finding.title.startswith("Dead units, until step ")


@pytest.mark.parametrize(("exploded", "named"), [(120, "exploding_gradient"), (151, "update_ratio_high")])
def test_updates_that_were_large_long_before_the_explosion_are_its_cause(exploded: int, named: str) -> None:
    high = Finding("update_ratio_high", "critical", "a", 109, 139, (), "", "", ())
    spike = Finding("loss_spike", "critical", "b", 113, 199, (), "", "", ())
    exploding = Finding("exploding_gradient", "critical", "c", exploded, 199, (), "", "", ())
    assert cause_ranking.causes_only([exploding, spike, high])[0].rule == named


@pytest.mark.parametrize(("first", "named"), [(87, "update_ratio_high"), (130, "vanishing_gradient")])
def test_a_gradient_that_vanishes_long_after_large_updates_is_their_effect(first: int, named: str) -> None:
    high = Finding("update_ratio_high", "critical", "a", first, 199, (), "", "", ())
    vanishing = Finding("vanishing_gradient", "critical", "b", 142, 199, (), "", "", ())
    assert cause_ranking.causes_only([vanishing, high])[0].rule == named


@pytest.mark.parametrize(("since", "found"), [(100, True), (99, True), (60, False)])
def test_an_infinite_loss_in_the_first_steps_of_fp16_is_an_overflow(since: int, found: bool) -> None:
    made = rows([*fall(100), math.nan], settings=CLIPPED._replace(dtype="fp32"))
    made = [replace(each, settings=FP16) if step >= since else each for step, each in enumerate(made)]
    overflow = diagnose(made).get("fp16_overflow")
    assert (overflow is not None) == found
    if overflow:
        assert f"fp16 since step {since}" in overflow.evidence and overflow.remedies[0] == "precision.dtype=bf16"


@pytest.mark.parametrize("rule", FIRES)
def test_a_look_reads_no_more_of_a_long_run_than_of_a_short_one(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, short, long = FIRES[rule][0](), 600, 1200
    again = made[-100:]
    made = [*made, *(replace(again[step % len(again)], step=len(made) + step) for step in range(long - len(made)))]
    read: list[int] = []  # rows, of each step

    def counted(start: int, stop: int | None, count: int) -> list[tuple[int, int, int]]:
        found = row_blocks.stretches(start, stop, count)
        read[-1] += sum(last - first for _, first, last in found)
        return found

    for module in (core_history, rank_figures):
        monkeypatch.setattr(module, "stretches", counted)
    history, diagnosis = History(LAYERS), Diagnosis([each for each in all_rules() if each.rule == rule])
    for each in made:
        history.append(each)
        read.append(0)
        for _ in diagnosis.look(history):
            pass
    assert 0 < max(read[long - 100 :]) <= max(read[short - 100 : short])


def test_every_rule_has_its_place() -> None:
    assert sorted(ORDER) == sorted([*makers(), *HEARD])


def test_a_loss_that_falls_at_the_accuracy_of_guessing_is_said_at_the_end() -> None:
    history, diagnosis = History(LAYERS), Diagnosis(all_rules(), Progress(guess=0.08))
    for each in rows([2.3 - step / 400 for step in range(150)], accuracy=0.07):
        history.append(replace(each, test_accuracy=0.07 if each.step == 0 else UNKNOWN))
        assert "nothing_learned" not in {finding.rule for finding in diagnosis.look(history)}
    [finding] = [finding for finding in diagnosis.conclude(history, 0.08) if finding.rule == "nothing_learned"]
    assert finding.severity == "warning" and "8 %" in finding.evidence and "more steps" in finding.meaning
    assert not [*Diagnosis(all_rules(), Progress(guess=0.08)).conclude(history, 0.3)]


@pytest.mark.parametrize(("promised", "said"), [(0.75, True), (0.4, False)])
def test_gradients_cut_to_nothing_half_way_are_said_below_what_the_task_promises(promised: float, said: bool) -> None:
    made = rows([*fall(100), *[0.7] * 160], settings=CLIPPED._replace(limit=1e-5), clip_coef=1e-5)
    history, state = History(LAYERS), Progress(guess=0.1, promised=promised)
    diagnosis, found = Diagnosis(all_rules(), state), {}
    for each in made:
        history.append(replace(each, accuracy=min(0.1 + each.step / 200, 0.5)))
        found |= {finding.rule: finding for finding in diagnosis.look(history)}
    assert (found["clipping_always"].severity == "warning") is said


def test_a_rate_that_rises_does_not_excuse_a_loss_that_has_come_up_again() -> None:
    """As of a warmup that goes on past the rate at which the weights are lost."""
    losses = [*(0.8 - 0.004 * step for step in range(60)), *(0.6 + 0.01 * step for step in range(30)), *[0.9] * 110]
    made = rows(losses, settings=CLIPPED, accuracy=UNKNOWN)
    made = [replace(each, lr=0.01 * each.step, update_ratio=0.15 if 50 < each.step < 90 else 1e-3) for each in made]
    assert diagnose(made)["update_ratio_high"].severity == "critical"
    level = [replace(each, loss=0.8) for each in made]
    assert "update_ratio_high" not in diagnose(level) or diagnose(level)["update_ratio_high"].severity == "info"


def test_a_first_update_that_threw_away_what_was_learned_is_told_with_the_state_that_is_missing() -> None:
    adam = CLIPPED._replace(optimizer="adam", beta1=0.9, beta2=0.999)
    made = rows([1e-3, 1.0, *[0.1] * 60], settings=adam, accuracy=UNKNOWN)
    made[0] = replace(made[0], update_ratio=0.2)
    finding = diagnose(made)["update_ratio_high"]
    assert finding.severity == "critical" and "`load_state_dict`" in finding.meaning
