"""The benchmark of faults: what it draws is allowed, what it says of a case is right, and its commands repeat a run."""

from __future__ import annotations

import shlex
import zlib

import numpy as np
import pytest

from benchmarks.faults import KINDS
from benchmarks.faults.judgement import Outcome, Result, case, changed, experiment, timeline
from benchmarks.faults.repeat_line import repeat_line
from gradstudio.core import files, presets
from gradstudio.core.diagnosis.finding import Finding, Severity
from gradstudio.core.diagnosis.rule_names import NAMES
from gradstudio.core.experiment import parse_assignment
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind, Part, changes_at

GROUPS = ("one fault", "two faults", "from mid-run", "larger nets", "healthy")
NET = ["model.depth=1", "model.width=32", "model.init=he", "run.steps=60", "optimizer.lr=0.1"]


def drawn(kind: Kind, seed: int = 3) -> DrawnFault:
    return kind.draw(np.random.default_rng([zlib.crc32(kind.name.encode()), seed]))


@pytest.mark.parametrize("group", GROUPS)
def test_every_kind_draws_a_run_that_is_allowed_and_changed_by_each_part(group: str) -> None:
    for kind in (kind for kind in KINDS if kind.group == group):
        made = drawn(kind)
        assert made == drawn(kind), kind.name
        texts, at = changed(made, made.parts)
        whole, planned = experiment(texts, 3), timeline(at, experiment(texts, 3))
        assert kind.healthy or made.parts, kind.name
        for part in made.parts:
            assert set(part.named) <= set(NAMES), kind.name
            assert kind.healthy or part.named, kind.name
            without = [other for other in made.parts if other is not part]
            fewer, less = changed(made, without)
            assert part.since < whole.run.steps, kind.name
            assert experiment(fewer, 3) != whole or timeline(less, whole) != planned, kind.name
        assert [part.since for part in made.parts] == sorted(part.since for part in made.parts), kind.name


def test_there_are_ten_pairs_of_faults() -> None:
    pairs = [drawn(kind) for kind in KINDS if kind.group == "two faults"]
    assert len({(pair.parts[0].named, pair.parts[1].named) for pair in pairs}) >= 10
    assert all(len(pair.parts) == 2 for pair in pairs)


def test_a_repeat_line_makes_the_same_run() -> None:
    texts, at = [*NET, "optimizer.kind=adam", "model.init_gain=1.25"], ["40:optimizer.lr=3.5"]
    variable, program, verb, preset, *options = shlex.split(repeat_line(texts, at, 7))
    assert (variable, program, verb) == ("GRADSTUDIO_THREADS=1", "gradstudio", "run")
    pairs = list(zip(options[::2], options[1::2], strict=True))
    knobs = dict(parse_assignment(value) for option, value in pairs if option == "--set")
    assert presets.load(files.PRESETS / f"{preset}.toml").experiment.with_values(knobs) == experiment(texts, 7)
    assert [value for option, value in pairs if option == "--at"] == at


def told(rule: str, severity: Severity = "critical", step: int = 0) -> Finding:
    return Finding(rule, severity, "", step, step, (), "", "", ())


def result(*found: Finding, healthy: bool = False, accuracy: float = 0.5, finite: bool = True, code: int = 4) -> Result:
    parts = (Part(("loop_order",), silent=True), changes_at(80, "optimizer.lr=9", named=("update_ratio_high",)))
    sound = Outcome("digits", 200, True, 0.9, (), 0)
    end = Outcome("digits", 200, finite, accuracy, found, code)
    return Result("", "", healthy, 0, DrawnFault([], () if healthy else parts), sound, end, counts=True)


def test_both_faults_have_to_be_named_and_the_earlier_one_first() -> None:
    loop, rate = told("loop_order", "warning"), told("update_ratio_high", step=80)
    assert result(loop, rate).right
    late = result(rate, loop)
    assert late.named and not late.first_right and not late.right
    alone = result(loop)
    assert alone.first_right and not alone.named and not alone.right
    assert not result().first_right


def test_the_exit_code_is_that_of_the_end() -> None:
    both = told("loop_order"), told("update_ratio_high")
    assert not result(*both, finite=False, accuracy=0.0, code=4).exit_code_due
    assert result(*both, finite=False, accuracy=0.0, code=3).exit_code_due
    assert not result(*both, accuracy=0.1, code=0).exit_code_due
    assert result(*both, accuracy=0.5, code=0).exit_code_due


def test_a_healthy_run_must_not_be_critical_and_may_have_a_warning() -> None:
    assert result(told("clipping_always", "warning"), healthy=True, accuracy=0.9, code=0).right
    wrong = result(told("loss_spike"), healthy=True, accuracy=0.9, code=4)
    assert wrong.falsely_critical and not wrong.right


def test_a_real_case_counts_where_the_twin_learns_and_the_fault_harms() -> None:
    def raised(to: float) -> Kind:
        part = changes_at(30, f"optimizer.lr={to}", named=("rate_raised", "exploding_gradient"))
        return Kind("from mid-run", "rate", lambda random: DrawnFault(NET, (part,)))

    broken, harmless = case(raised(300), 1), case(raised(0.12), 1)
    assert broken and broken.counts and broken.right and broken.twin.exit_code == 0
    assert harmless and not harmless.counts and harmless.right
    frozen = Kind("from mid-run", "none", lambda random: DrawnFault([*NET, "optimizer.lr=0"], (Part(),)))
    assert case(frozen, 1) is None
