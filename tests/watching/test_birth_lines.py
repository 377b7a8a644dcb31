"""What a terminal says of the birth of a value that is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gradstudio.core.provenance import Provenance
from gradstudio.watching.births.step_births import Births
from gradstudio.watching.recording.birth_lines import LONGEST, act, birth_lines, unknown_lines
from gradstudio.watching.training_watch import TrainingWatch


def planted() -> Provenance:
    model = nn.Linear(4, 2)
    births = Births(model)
    inputs = torch.ones(3, 4)
    inputs[0, 0] = math.nan
    loss = model(inputs).sum()
    found = births.before_backward([loss])
    assert found is not None, births.unknown
    return found


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_five_lines_say_what_where_why_from_what_and_the_line() -> None:
    lines = birth_lines(planted(), 41)
    assert [line.split()[0] for line in lines] == ["step", "born", "because", "went", "source"]
    assert lines[0] == "step 41 is not finite"
    assert lines[1] == "  born in  what the model was given"
    assert lines[2] == "  because  input 0 of the model holds 1 NaN before the pass"
    assert "1 NaN" in lines[3]
    assert all(len(line) <= LONGEST for line in lines)


def test_a_place_that_is_no_birth_is_not_called_one() -> None:
    model = nn.Linear(4, 2)
    found = Births(model).before_backward([(model(torch.ones(3, 4)) - math.nan).sqrt().sum()])
    assert found is not None
    assert birth_lines(found, 41)[1:4] == [
        "  seen in  the script, loss code: sqrt; it may have been born before that",
        "  there    its result holds 6 NaN; what went in is not known, as autograd has not saved it",
        "  went in  not known",
    ]


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_it_is_said_or_raised_or_ignored() -> None:
    lines, said = birth_lines(planted(), 41), []
    act(lines, "ignore", said.append)
    assert said == []
    act(lines, "explain", said.append)
    assert said == lines
    with pytest.raises(FloatingPointError, match=r"step 41 is not finite\n  born in"):
        act(lines, "raise", said.append)


def test_what_is_unknown_is_said_to_be() -> None:
    _, why, advice = unknown_lines("the model is gone", 3)
    assert why == "  where it was born is not known: the model is gone" and "set_detect_anomaly" in advice
    assert len(advice) <= LONGEST


@pytest.mark.parametrize("by_script", [False, True])
def test_an_update_is_named_that_made_the_weights_nan(
    watch: Callable[..., TrainingWatch], capsys: pytest.CaptureFixture[str], by_script: bool
) -> None:
    """No derivative made them, so none is to be looked for."""
    model = nn.Linear(6, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch(model, optimizer)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = math.inf if step == 1 and not by_script else 0.1
        if step == 2 and by_script:
            model.weight.data.fill_(math.nan)
        optimizer.zero_grad()
        inputs = torch.randn(16, 6)
        (inputs @ model.weight.T - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    said = capsys.readouterr().err
    assert f"the weight weight held 6 {'NaN' if by_script else 'Inf'} before the loss" in said
    assert "set_detect_anomaly" not in said and ("the update of step 1 made them" in said) is not by_script
