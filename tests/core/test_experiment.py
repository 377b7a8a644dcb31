from __future__ import annotations

import gc
import weakref

import pytest
from pydantic import ValidationError

from gradstudio.core.experiment import KNOBS, Experiment, experiment_from, parse_assignment
from gradstudio.core.knobs import KnobError


def test_an_experiment_has_every_knob_at_its_default() -> None:
    experiment = Experiment()
    assert {knob.name: value for knob, value in experiment.items()} == {
        name: knob.default for name, knob in KNOBS.items()
    }
    assert experiment.changed_knobs() == {}


def test_with_values_makes_a_copy_with_all_of_them() -> None:
    experiment = Experiment()
    other = experiment.with_values({"problem.task": "sequential_digits", "problem.seq_len": 8, "optimizer.lr": 1})
    assert other.changed_knobs() == {"problem.task": "sequential_digits", "problem.seq_len": 8, "optimizer.lr": 1.0}
    assert type(other["optimizer.lr"]) is float
    assert experiment == Experiment()


def test_with_values_refuses_all_when_one_is_wrong() -> None:
    experiment = Experiment()
    with pytest.raises(KnobError, match=r"optimizer\.lr = -1"):
        experiment.with_values({"run.steps": 5, "optimizer.lr": -1})
    assert experiment == Experiment()


def test_an_experiment_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        Experiment().optimizer.lr = 1.0


@pytest.mark.parametrize("length", range(1, 65))
def test_sequence_length_divides_the_picture(length: int) -> None:
    digits = Experiment().with_value("problem.task", "sequential_digits")
    if 64 % length:
        with pytest.raises(
            KnobError,
            match=rf"problem\.seq_len = {length} is not allowed with problem\.task = sequential_digits; allowed: a "
            rf"divisor",
        ):
            digits.with_value("problem.seq_len", length)
    else:
        assert digits.with_value("problem.seq_len", length)["problem.seq_len"] == length
    assert Experiment().with_values({"problem.task": "adding", "problem.seq_len": length}).problem.seq_len == length


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:13", "mps"])
def test_devices(device: str) -> None:
    assert Experiment().with_value("run.device", device)["run.device"] == device


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0 ", "CPU"])
def test_wrong_devices(device: str) -> None:
    with pytest.raises(KnobError, match=r"run\.device = .* is not allowed; allowed: auto, cpu"):
        Experiment().with_value("run.device", device)


def test_of_several_conditions_one_is_enough() -> None:
    name = "model.norm_position"
    assert not Experiment().applies(name)
    assert Experiment().with_value("model.norm", "layer").applies(name)
    transformer = Experiment().with_value("model.kind", "transformer")
    assert transformer.applies(name) and not transformer.applies("model.norm")
    assert not Experiment().with_values({"model.kind": "lstm", "model.norm": "layer"}).applies(name)


def test_applies_follows_the_other_knobs() -> None:
    experiment = Experiment()
    assert not experiment.applies("clipping.max_norm") and experiment.applies("clipping.kind")
    assert experiment.with_value("clipping.kind", "per_tensor").applies("clipping.max_norm")
    fp16 = experiment.with_value("precision.dtype", "fp16")
    assert fp16.applies("precision.growth_factor")
    assert not fp16.with_value("precision.scaling", "static").applies("precision.growth_factor")
    assert not experiment.applies("precision.growth_factor")


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"optimizer": 5}, "optimizer must be a section"),
        ({"optimizer": {"lr": {}}}, "optimizer.lr = "),
        ({"optimizer": {"speed": 1}}, "unknown knob optimizer.speed"),
        ({"zzz": {}}, "unknown knob zzz"),
        ({"optimizer": {"lr": 1 << 100_000}}, "optimizer.lr = "),
        ({"run": {"steps": 1 << 100_000}}, "run.steps = "),
        ({"run": {"seed": -(1 << 100_000)}}, "run.seed = "),
    ],
)
def test_plain_data_that_is_no_experiment(sections: dict, says: str) -> None:
    with pytest.raises(KnobError) as raised:
        experiment_from(sections)
    assert str(raised.value).startswith(says)


def test_a_value_that_had_another_name_means_the_same() -> None:
    today = Experiment().with_value("clipping.kind", "per_tensor")
    assert Experiment().with_value("clipping.kind", "per_layer") == today
    assert Experiment().with_texts(["clipping.kind=per_layer"]) == today
    assert parse_assignment("clipping.kind=per_layer") == ("clipping.kind", "per_tensor")
    assert experiment_from({"clipping": {"kind": "per_layer"}}) == today
    assert "per_layer" not in KNOBS["clipping.kind"].choices
    with pytest.raises(KnobError, match="allowed: one of: none, norm, value, agc, per_tensor"):
        Experiment().with_value("clipping.kind", 3)


def test_an_error_is_gone_with_whoever_caught_it() -> None:
    """It held pydantic's error, which held it, where the collector cannot see."""

    def refuse() -> weakref.ref[KnobError]:
        with pytest.raises(KnobError) as refused:
            Experiment().with_value("run.device", "toaster")
        return weakref.ref(refused.value)

    left = refuse()
    gc.collect()
    assert left() is None
