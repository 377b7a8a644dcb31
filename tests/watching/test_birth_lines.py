"""What a terminal says of the birth of a value that is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gradstudio.core.provenance import Provenance
from gradstudio.watching.birth_lines import LONGEST, act, birth_lines, unknown_lines
from gradstudio.watching.births import Births


def planted() -> Provenance:
    model = nn.Linear(4, 2)
    births = Births(model)
    inputs = torch.ones(3, 4)
    inputs[0, 0] = math.nan
    loss = model(inputs).sum()
    found = births.before_backward([loss])
    assert found is not None, births.unknown
    return found


def test_five_lines_say_what_where_why_from_what_and_the_line() -> None:
    lines = birth_lines(planted(), 41)
    assert [line.split()[0] for line in lines] == ["step", "born", "because", "went", "source"]
    assert lines[0] == "step 41 is not finite"
    assert lines[1] == "  born in  what the model was given"
    assert lines[2] == "  because  input 0 of the model holds 1 NaN before the pass"
    assert "1 NaN" in lines[3]
    assert all(len(line) <= LONGEST for line in lines)


def test_it_is_said_or_raised_or_ignored() -> None:
    lines, said = birth_lines(planted(), 41), []
    act(lines, "ignore", said.append)
    assert said == []
    act(lines, "explain", said.append)
    assert said == lines
    with pytest.raises(FloatingPointError, match=r"step 41 is not finite\n  born in"):
        act(lines, "raise", said.append)


def test_what_is_unknown_is_said_to_be() -> None:
    assert unknown_lines("the model is gone", 3)[1] == "  where it was born is not known: the model is gone"
