"""The user's thresholds: read, checked in full, and in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradstudio.core import rule_thresholds
from gradstudio.core.diagnosis.rule_names import NAMES
from gradstudio.core.knobs import KnobError
from gradstudio.core.rule_thresholds import all_rules


def written(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text)
    return path


def test_every_rule_is_made_under_its_name() -> None:
    assert tuple(sorted(rule.rule for rule in all_rules())) == tuple(sorted(NAMES))


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert rule_thresholds.read(tmp_path / "rules.toml") == {}


def test_thresholds_of_the_file_are_in_force_and_others_stay(tmp_path: Path) -> None:
    path = written(
        tmp_path, "[exploding_gradient]\nnorm = 300\n[loss_spike]\ntimes = 3.5\n[update_ratio_low]\nafter = 200\n"
    )
    rules = {rule.rule: rule for rule in rule_thresholds.make(rule_thresholds.read(path))}
    assert (rules["exploding_gradient"].norm, rules["exploding_gradient"].times) == (300.0, 10.0)
    assert (rules["loss_spike"].times, rules["update_ratio_low"].after) == (3.5, 200)
    path.write_text("[exploding_gradient]\nnorm = 4e2\n")
    assert rule_thresholds.read(path) == {"exploding_gradient": {"norm": 400.0}}, "a file that has changed is read anew"


@pytest.mark.parametrize(("text", "said"), [
    ("[exploding]\nnorm = 1", "no rule exploding; there are: ranks_alike, "),
    ("exploding_gradient = 3", "exploding_gradient must be a section"),
    ("[exploding_gradient]\nnorms = 1", "exploding_gradient has no threshold norms; it has: norm, times, growing"),
    ("[loop_order]\nnorm = 1", "loop_order has no threshold norm; it has: none"),
    ("[exploding_gradient]\nnorm = 'a'", "exploding_gradient.norm = a is not allowed; allowed: a number at least 0 "
        "(default 100)"),
    ("[exploding_gradient]\nnorm = nan", "allowed: a number at least 0"),
    ("[exploding_gradient]\nnorm = -1", "allowed: a number at least 0"),
    ("[exploding_gradient]\ngrowing = 2.5", "exploding_gradient.growing = 2.5 is not allowed; allowed: a whole "
        "number at least 1 (default 3)"),
    ("[exploding_gradient]\ngrowing = true", "allowed: a whole number at least 1"),
    ("[exploding_gradient\n", "not valid TOML"),
])  # fmt: skip
def test_what_is_not_allowed_is_one_line_that_names_what_is(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(KnobError) as fault:
        rule_thresholds.read(written(tmp_path, text))
    assert said in str(fault.value) and "\n" not in str(fault.value) and "rules.toml" in str(fault.value)


def test_the_private_state_of_a_rule_is_no_threshold() -> None:
    for name in NAMES:
        assert not any(field.startswith("_") for field in rule_thresholds.thresholds(name))
