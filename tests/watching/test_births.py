"""Where the NaN of somebody's own training was born: planted, and named."""

from __future__ import annotations

import copy
import io
import math
import random
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from waiting import PATIENCE

from gradstudio.core.diagnosis import birth_remedies
from gradstudio.core.diagnosis.birth_remedies import IN_ONE, of_birth
from gradstudio.core.diagnosis.overflow_remedies import OF_EXP, OF_HALF
from gradstudio.core.diagnosis.undefined_operations import undefined_for
from gradstudio.core.provenance import Provenance
from gradstudio.session.running.investigation import sentence
from gradstudio.watching.births.pass_state import PassStates
from gradstudio.watching.births.step_births import Births
from gradstudio.watching.recording.birth_lines import place_and_cause
from gradstudio.watching.training_watch import TrainingWatch

pytestmark = pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
TOLD = pytest.mark.wants("autograd.Node._input_metadata")


class Odd(nn.Module):
    """A layer, then an operation, then a layer."""

    def __init__(self, operation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.operation = nn.Linear(4, 4), nn.Linear(4, 2), operation

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        hidden = self.operation(hidden)
        return self.last(hidden)


class Operation(nn.Module):
    """A module of one operation."""

    def __init__(self, operation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, inputs: Tensor) -> Tensor:
        return self.operation(inputs)


def root(hidden: Tensor) -> Tensor:
    """Give 0, whose derivative is not finite."""
    return (hidden * 0).sqrt()


class Inner(nn.Module):
    """Holds a module as one part of a whole."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, inputs: Tensor) -> Tensor:
        return self.part(inputs)


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


def trained(
    model: nn.Module, inputs: Tensor, loss_of: Callable[[Tensor], Tensor] = lambda outputs: outputs.square().sum()
) -> tuple[Births, Provenance | None]:
    """Make one step up to the gradients, and have what is not finite explained."""
    births = Births(model)
    loss = loss_of(model(inputs))
    found = births.before_backward([loss])
    loss.backward()
    return births, found or births.explain()


def known(model: nn.Module, inputs: Tensor, *loss_of: Callable[[Tensor], Tensor]) -> Provenance:
    births, found = trained(model, inputs, *loss_of)
    assert found is not None, births.unknown
    return found


# ---- in the model


@pytest.mark.parametrize(
    ("operation", "name", "cause"),
    [
        (lambda hidden: (hidden - hidden) / (hidden - hidden), "aten.div.Tensor", "0 divided by 0 is NaN"),
        (lambda hidden: (-hidden.abs() - 1).log(), "aten.log.default", "the logarithm of a negative number"),
        (lambda hidden: (hidden.abs() + 100).exp(), "aten.exp.default", "the largest float32 number"),
        (
            lambda hidden: hidden + hidden[hidden > 1e9].mean(),
            "aten.mean.default",
            "the mean of no numbers at all is 0 / 0",
        ),
        (lambda hidden: (hidden.abs() + 9e4).half().float(), "aten._to_copy.default", "does not fit into float16"),
    ],
)
def test_an_operation_of_the_forward_pass_is_named(operation: Any, name: str, cause: str) -> None:
    found = known(Inner(Odd(operation)), torch.randn(3, 4))
    assert (found.phase, found.module, found.operation) == ("forward", "part", name) and cause in found.cause
    assert found.chain[0].is_birth and "test_births.py:" in found.source and "lambda hidden" in found.source


def test_overflow_under_autocast_is_made_again_in_its_number_format() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    births = Births(model)
    with torch.autocast("cpu", torch.float16):
        outputs = model(torch.full((2, 4), 3e4))
        model[1].weight.data.fill_(1.0)
    assert births.explain() is None and "no forward pass" in births.unknown
    births.clear()
    model[0].weight.data.fill_(50.0)
    with torch.autocast("cpu", torch.float16):
        outputs = model(torch.full((2, 4), 3e4))
    loss = outputs.float().sum()
    found = births.before_backward([loss])
    assert found is not None and (found.phase, found.module, found.chain[0].dtype) == ("forward", "0", "float16")


class Attention(nn.Module):
    """Scores that are taken through a root, whose derivative at 0 is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        scores = self.query(inputs) @ self.key(inputs).transpose(1, 2)
        roots = torch.sqrt(scores.square())
        return roots.softmax(2) @ inputs


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_derivative_is_named_with_the_line_that_it_is_of() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Attention(), nn.Linear(4, 2))
    model[1].query.weight.data.zero_()
    model[1].query.bias.data.zero_()
    found = known(model, torch.randn(2, 3, 4))
    assert (found.phase, found.module, found.operation) == ("backward", "1", "aten.div.Tensor")
    assert found.chain[0].of == "SqrtBackward0" and "a division by 0" in found.cause and "zeros" in found.taken
    assert found.source.endswith("roots = torch.sqrt(scores.square())")


class Counting(nn.Module):
    """Goes wrong in its seventh pass, as something tells it that the pass itself changes."""

    calls = 0

    def __init__(self, told_by: str) -> None:
        super().__init__()
        self.layer, self.told_by, self.spoiled = nn.Linear(4, 2), told_by, False
        self.register_buffer("number", torch.zeros((), dtype=torch.long))
        random.seed(5)
        np.random.seed(3)

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        self.number += 1
        outputs = self.layer(inputs)
        if self.is_wrong():
            outputs = (-outputs.abs() - 1).log()
        return outputs

    def is_wrong(self) -> bool:
        match self.told_by:
            case "an attribute":
                return self.calls == 7
            case "a buffer":
                return int(self.number) == 7
            case "random":
                return random.random() < 0.2  # the seventh number is the first one of this seed
            case "numpy":
                return np.random.random() < 0.2  # and here
        spoiled, self.spoiled = self.spoiled, False
        return spoiled


def six_passes(births: Births, model: nn.Module, inputs: Tensor) -> None:
    for _ in range(6):
        loss = model(inputs).sum()
        assert births.before_backward([loss]) is None
        loss.backward()
        births.clear()


def seventh_pass(model: Counting) -> Provenance:
    births, inputs = Births(model), torch.randn(3, 4)
    six_passes(births, model, inputs)
    model.spoiled = True
    found = births.before_backward([model(inputs).sum()])
    assert found is not None, births.unknown
    return found


class DroppingLater(nn.Module):
    """Drops entries out from its tenth pass on, and takes the root of what may be below 0 in the last one."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.layer, self.calls, self.last = nn.Linear(4, 64), 0, last

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        outputs = nn.functional.dropout(self.layer(inputs), 0.5 if self.calls >= 10 else 0.0)
        return outputs.sqrt() if self.calls == self.last else outputs


@pytest.mark.parametrize("last", [20, 60, 61])
def test_random_numbers_that_are_drawn_later_are_kept_once_that_was_seen(last: int) -> None:
    """Before that, another pass is not taken for the same."""
    model, inputs = DroppingLater(last), torch.randn(3, 4)
    births = Births(model)
    for _ in range(last - 1):
        loss = model(inputs).sum()
        assert births.before_backward([loss]) is None
        loss.backward()
        births.clear()
    found = births.before_backward([model(inputs).sum()])
    if last == 20:
        assert found is None and births.unknown == "the model gave something else when the forward pass was made again"
    else:
        assert found is not None and found.operation == "aten.sqrt.default", births.unknown


def test_random_numbers_are_looked_at_where_the_mode_changes() -> None:
    model, inputs = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)), torch.randn(3, 4)
    states, kept = PassStates(), []
    for training in [False] * 6 + [True] * 3:
        began = states.before(model.train(training))
        model(inputs)
        states.after(model, began)
        kept.append(began.torch is not None)
    assert kept == [True] * 3 + [False] * 3 + [True] * 3


def test_a_hook_of_the_script_before_the_pass_is_called_once_when_that_is_made_again() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Operation(lambda hidden: (hidden * 0 - 1).log()))
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0].where(inputs[0] > 2, inputs[0] * 2),))
    births = Births(model)
    found = births.before_backward([model(torch.full((3, 4), 1.5)).sum()])
    assert found is not None and found.operation == "aten.log.default", births.unknown
    (kept,) = births.passes.latest[:1] if births.passes.latest else ()
    assert kept.inputs[0].max() == 1.5


def test_a_model_that_writes_into_what_it_is_given_is_explained() -> None:
    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            batch["energy"] = (-self.layer(batch["places"]).abs() - batch["least"]).log()
            return batch

    model = Energy()
    births = Births(model)
    for least in [-9.0] * 40 + [1.0]:
        batch = {"places": torch.zeros(3, 4), "least": torch.tensor(least)}
        found = births.before_backward([model(batch)["energy"].sum()])
        births.clear()
    assert found is not None and found.operation == "aten.log.default", births.unknown


@pytest.mark.parametrize("told_by", ["an attribute", "a buffer", "random", "numpy"])
def test_a_pass_is_made_again_with_what_it_has_changed_itself(told_by: str) -> None:
    model = Counting(told_by)
    found = seventh_pass(model)
    assert (found.phase, found.operation) == ("forward", "aten.log.default")
    assert found.source.endswith("outputs = (-outputs.abs() - 1).log()")
    assert model.calls == 7 and int(model.number) == 7  # it has not counted the pass that was made again
    drawn = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(3)
    of_python, of_numpy = [random.random() for _ in range(8)], np.random.random(8)
    assert drawn == (of_python[7 * (told_by == "random")], of_numpy[7 * (told_by == "numpy")])


class BreaksAtThird(nn.Module):
    """Breaks at its third call, by a count that is a number or a buffer."""

    def __init__(self, tensor: bool) -> None:
        super().__init__()
        self.part, self.calls = nn.Linear(4, 2), 0
        self.register_buffer("count", torch.tensor(0) if tensor else None)

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if self.count is not None:
            self.count += 1
        hidden = self.part(inputs)
        return hidden / (0 * hidden) if (self.calls if self.count is None else int(self.count)) == 3 else hidden


@pytest.mark.parametrize("tensor", [False, True])
def test_it_is_made_again_so_among_the_first_passes(tensor: bool) -> None:
    model = BreaksAtThird(tensor)
    births = Births(model)
    for _ in range(2):
        model(torch.randn(3, 4)).sum().backward()
        births.clear()
    loss = model(torch.randn(3, 4)).sum() + model(torch.randn(3, 4)).sum()
    found = births.before_backward([loss])
    assert found is not None and (found.phase, found.operation) == ("forward", "aten.div.Tensor"), births.unknown
    assert model.calls == 4 and (model.count is None or int(model.count) == 4)


def test_the_graph_tells_of_a_pass_that_cannot_be_made_again() -> None:
    found = seventh_pass(Counting("the script"))
    assert (found.phase, found.module, found.operation) == ("forward", "", "LogBackward0")
    assert "the logarithm of a negative number" in found.cause
    assert found.source.endswith("outputs = (-outputs.abs() - 1).log()")


def test_objects_that_cannot_be_looked_at_do_no_harm() -> None:
    class Stand:
        @property
        def __class__(self) -> Any:
            raise AssertionError("asked what it stands for")

    class Jealous:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("not yours")

    model, stand, jealous = nn.Linear(4, 2), Stand(), Jealous()
    model.register_forward_hook(lambda module, inputs, outputs: outputs if stand is not jealous else None)
    found = known(model, torch.randn(3, 4), lambda given: (given * 0).log().sum())
    assert (found.phase, found.operation) == ("loss", "LogBackward0")


def test_an_operation_is_not_blamed_for_what_it_may_have_been_given() -> None:
    def softmax(spoil: Callable[[Tensor], Tensor]) -> Provenance | None:
        answers = iter([spoil])
        model = Odd(lambda hidden: next(answers)(hidden).log_softmax(1))
        return Births(model).before_backward([model(torch.randn(3, 4)).sum()])

    assert softmax(lambda hidden: hidden + math.nan) is None  # autograd saves neither the sum nor what went in
    found = softmax(lambda hidden: hidden.tanh().sqrt())
    assert found is not None and (found.phase, found.operation) == ("forward", "SqrtBackward0")
    assert found.taken.startswith("-0.")


def test_a_mask_of_minus_infinity_is_no_birth() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = nn.Linear(4, 4)
            self.register_buffer("mask", torch.full((4, 4), -math.inf))

        def forward(self, inputs: Tensor) -> Tensor:
            return (self.scores(inputs) + self.mask).softmax(1)

    found = known(Masked(), torch.randn(4, 4))
    assert (found.phase, found.operation) == ("forward", "aten._softmax.default")


def test_data_of_infinity_are_no_mask() -> None:
    class TwoLayers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(self.first(inputs.view(-1, 4)).relu())

    for inf in (math.inf, -math.inf):
        inputs = torch.randn(8, 4)
        inputs[2, 1] = inf
        found = known(TwoLayers(), inputs)
        assert (found.phase, found.operation) == ("forward", "input")
        assert found.cause == "input 0 of the model holds 1 Inf before the pass"


def test_a_row_that_an_attention_masks_whole_is_told_to_be_that() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, inputs: Tensor) -> Tensor:
            mask = torch.tensor([[False, True], [True, True]])
            return self.attention(inputs, inputs, inputs, attn_mask=mask)[0]

    assert known(Attending(), torch.randn(3, 2, 4)).operation == "aten._softmax.default"


def test_a_row_that_is_masked_whole_is_told_to_be_that() -> None:
    class Masked(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            mask = torch.tensor([[False] * 4, [True] * 4, [False, True, True, True]])
            return super().forward(inputs).masked_fill(mask, -math.inf).softmax(1)

    found = known(Masked(4, 4), torch.randn(3, 4))
    assert (found.phase, found.operation) == ("forward", "aten._softmax.default")
    assert found.cause == "it was given 7 Inf: a row with +Inf, or of nothing but -Inf, has no softmax"
    assert "leaves each row one entry" in (of_birth(found) or ("",))[0]


def test_a_number_of_infinity_is_told() -> None:
    found = known(Odd(lambda hidden: hidden * math.inf), torch.randn(3, 4))
    assert found.operation == "aten.mul.Tensor" and found.cause == "it was given the number Inf"
    assert "on that number before it is used" in (of_birth(found) or ("",))[0]  # no smaller gradient mends it


class Encoder(nn.Module):
    """Gives its mean and its spread beside what it computes of them, as a VAE does."""

    def __init__(self, root: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.mean, self.spread, self.last, self.root = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(2, 4), root

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.mean(inputs), self.spread(inputs)
        return self.last(mean + self.root(spread.exp())), mean, spread


def test_a_part_of_an_output_without_use_has_no_gradient(watch: Callable[..., TrainingWatch]) -> None:
    model = nn.Sequential(nn.Linear(4, 2), Operation(lambda hidden: hidden.unbind(1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        (model(torch.randn(8, 4))[0].square() * (step != 2)).sum().sqrt().backward()
        optimizer.step()
    found = one.watched_runs[0].provenance
    assert found is not None and found.step == 2 and "SqrtBackward0" in found.operation


@pytest.mark.wants("torch._C._current_autograd_node")
def test_an_output_that_is_used_in_the_model_too_gets_its_gradient_from_there() -> None:
    def losses(outputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return outputs[0].square().mean() + outputs[1].square().sum() - outputs[2].sum()

    found = known(Encoder(lambda spread: (spread * 0).sqrt()), torch.randn(3, 4), losses)
    assert (found.phase, found.module, found.operation) == ("backward", "", "aten.div.Tensor")
    assert found.chain[0].of == "SqrtBackward0" and "self.root(spread.exp())" not in found.source
    assert of_birth(found) == ("`torch.sqrt(x + 1e-8)` in place of `torch.sqrt(x)`: its derivative at 0 is Inf",)
    assert place_and_cause(found).startswith(
        "born in the model itself, backward pass: div, the derivative of sqrt, because"
    )
    for place in range(3):  # of the output whose loss has the root
        found = known(
            Encoder(torch.sqrt), torch.randn(3, 4), lambda given, at=place: (given[at] * 0).sqrt().sum() + losses(given)
        )
        assert found.phase == "backward" and found.operation.endswith("SqrtBackward0")
        assert place_and_cause(found).startswith("born in the script, backward pass: ")


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("csr", [False, True])
def test_a_model_that_multiplies_by_a_sparse_matrix(csr: bool) -> None:
    class Graph(nn.Linear):
        def forward(self, inputs: Tensor, edges: Tensor) -> Tensor:
            return torch.sparse.mm(edges, super().forward(inputs).relu() - 1).sqrt()

    edges = torch.eye(3).to_sparse_csr() if csr else torch.eye(3).to_sparse()
    model, inputs = Graph(4, 2), torch.randn(3, 4)
    births = Births(model)
    found = births.before_backward([model(inputs, edges).sum()])
    assert found is not None and found.operation == "aten.sqrt.default", births.unknown
    births.clear()
    spoiled = edges * math.nan
    found = births.before_backward([model(inputs, spoiled).sum()])
    assert found is not None and found.cause == "input 1 of the model holds 3 NaN before the pass", births.unknown


# ---- outside of the model


def test_the_loss_code_is_named_with_its_line() -> None:
    def loss_of(outputs: Tensor) -> Tensor:
        probabilities = outputs.relu()
        return -probabilities.log().mean()

    model = nn.Linear(4, 2)
    model.weight.data.zero_()
    model.bias.data.zero_()
    found = known(model, torch.randn(8, 4), loss_of)
    assert (found.phase, found.module, found.operation) == ("loss", "", "LogBackward0")
    assert "the logarithm of 0 is -Inf" in found.cause
    assert "16 zeros" in found.taken and "test_births.py:" in found.source


@pytest.mark.parametrize(
    ("loss_of", "name", "cause"),
    [
        (lambda given: (given / torch.zeros(8, 2)).sum(), "DivBackward0", "a division by 0 is Inf"),
        (lambda given: given.square().sum() / (given > 1e9).sum(), "DivBackward0", "a division by 0 is Inf"),
        (lambda given: given.abs().add(100).exp().sum(), "ExpBackward0", "16 Inf"),
        (
            lambda given: (1 - given.add(9).square()).sqrt().sum(),
            "SqrtBackward0",
            "the root of a negative number",  # and which, where no other file that is loaded has such a line
        ),
        (
            lambda given: torch.logdet(given @ given.T * 0),
            "LinalgSlogdetBackward0",
            "the determinant of a matrix is 0 or negative",
        ),
        (
            lambda given: functional.mse_loss(given, torch.full((8, 2), math.nan)),
            "MseLossBackward0",
            "its target holds 16 NaN",
        ),
        (
            lambda given: (given - torch.full((8, 2), math.nan)).square().sum(),
            "SubBackward0",
            "its second operand holds NaN, which the model did not compute: it takes no gradient, as a target",
        ),
    ],
)
def test_other_operations_of_the_loss_code_are_named(loss_of: Any, name: str, cause: str) -> None:
    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert (found.phase, found.operation) == ("loss", name) and cause in found.cause


@pytest.mark.parametrize(
    ("loss_of", "operation", "is_birth"),
    [
        (lambda given: (given * 0 + 100).exp().sum(), "ExpBackward0", False),  # the sum may have been Inf already
        (lambda given: given.sigmoid().mul(200).exp().sum(), "ExpBackward0", True),
        (lambda given: given.square().sub(0.1).sqrt().sum(), "SqrtBackward0", False),
        (lambda given: given.sigmoid().sub(1).mul(0).log().sum(), "LogBackward0", True),
        (
            lambda given: torch.baddbmm(given[None], given[None], torch.zeros(1, 2, 2)).sub(0.1).sqrt().sum(),
            "Sqrt",
            False,
        ),
        (lambda given: given.sqrt().sum(), "SqrtBackward0", True),
        (lambda given: (given * 1e39).square().sum(), "MulBackward0", True),
    ],
)
def test_what_may_have_passed_a_value_on_is_no_birth(loss_of: Any, operation: str, is_birth: bool) -> None:
    model = nn.Linear(4, 2)
    found = Births(model).before_backward([loss_of(model(torch.randn(8, 4)))])
    assert found is not None and found.phase == "loss" and operation in found.operation
    assert (found.is_birth, found.was_given) == (is_birth, False)
    assert ("was born" in sentence(found), "was first seen" in sentence(found)) == (is_birth, not is_birth)
    assert place_and_cause(found).startswith("born in" if is_birth else "first seen in")


def test_the_gradient_of_an_inner_loop_is_not_born_where_it_is_used() -> None:
    """As in MAML: autograd knows nothing of the inner gradient, which is NaN."""
    model = nn.Linear(4, 4, bias=False)
    births = Births(model)
    inner = functional.linear(torch.zeros(8, 4), model.weight).square().sum(1).sqrt().mean()
    (gradient,) = torch.autograd.grad(inner, [model.weight])
    loss = functional.linear(torch.randn(8, 4), model.weight - 0.4 * gradient).square().mean()
    found = births.before_backward([loss])
    assert found is not None and found.was_given
    assert found.cause == "its second operand, `gradient`, holds NaN, which the model did not compute"


@pytest.mark.parametrize("loss_of", [
    lambda given: (given - math.nan).square().sum(),
    lambda given: given.sub(math.nan).exp().sum(),
    lambda given: given.sub(math.nan).div(2).exp().sum(),
    lambda given: (given + math.nan).sum(),
    lambda given: torch.baddbmm(given[None], given[None], torch.full((1, 2, 2), math.nan)).sum(),
])  # fmt: skip
def test_an_operand_that_was_not_saved_holds_the_nan_where_all_others_are_finite(
    loss_of: Callable[[Tensor], Tensor],
) -> None:
    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert found.phase == "loss" and found.was_given and "was given" in place_and_cause(found)


def test_the_operand_is_called_what_the_script_calls_it() -> None:
    model = nn.Linear(4, 2)
    births, outputs = Births(model), None
    for spoiled in ("advantages", "targets"):
        outputs = model(torch.randn(8, 4))
        advantages = torch.full((8, 2), math.nan if spoiled == "advantages" else 1.0)
        targets = torch.full((8, 2), math.nan if spoiled == "targets" else 1.0)
        found = births.before_backward([((outputs - targets) * advantages).mean()])
        assert found is not None and f"`{spoiled}`, holds " in found.cause
        births.clear()


SCALED = """
def train(births, model, inputs, old):
    scores = model(inputs)
    halves = (scores * 0 + 50) / 2
    ratio = (halves - old).exp()
    found = births.before_backward([ratio.sum()])
    return found
"""


@pytest.mark.parametrize(("old", "is_birth"), [(-100.0, True), (-math.inf, True)])
def test_what_the_script_has_tells_of_an_operand_that_autograd_does_not(
    tmp_path: Path, old: float, is_birth: bool
) -> None:
    (tmp_path / "train.py").write_text(SCALED)
    model = nn.Linear(4, 2)
    train = runpy.run_path(str(tmp_path / "train.py"))["train"]
    found = train(Births(model), model, torch.rand(8, 4), torch.tensor(old))
    assert found.is_birth and found.was_given is math.isinf(old)
    if not found.was_given:
        assert found.cause == "exp(125) is beyond 3.4e38, the largest float32 number"
        assert found.source == "train.py:5: ratio = (halves - old).exp()"
    else:
        assert found.cause == "its second operand, `old`, holds 1 Inf, which the model did not compute"


def test_a_result_that_the_script_still_has_tells_what_went_in() -> None:
    def loss_of(given: Tensor) -> Tensor:
        kept.append(given.square().sub(torch.full((8, 2), 9.0)))
        return kept[0].sqrt().sum()

    kept: list[Tensor] = []
    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert found.operation == "SqrtBackward0" and "the root of a negative number, -" in found.cause
    assert "clamp_min" in (of_birth(found) or ("",))[0]


def test_a_derivative_behind_a_parameter_of_the_loss_code_itself_is_named() -> None:
    """As the spread of a policy, which no model has."""
    spread = nn.Parameter(torch.zeros(1))
    found = known(nn.Linear(4, 2), torch.randn(8, 4), lambda given: given.square().mean() + spread.sqrt().sum() * 0)
    assert (found.phase, found.operation) == ("backward", "SqrtBackward0")


@pytest.mark.parametrize(("loss_of", "operation", "cause"), [
    (lambda given: ((given * 0 + 1).acos() * given.exp()).sum(), "AcosBackward0", "the derivative of acos is not finite"),
    (lambda given: ((given * 0).norm(dim=1) * given.exp().sum(1)).sqrt().mean(), "SqrtBackward0", "a division by 0"),
    (lambda given: torch.where(given < 9, given, (given * 0 + 100).mul(1).exp()).sum(), "ExpBackward0", ""),
    (lambda given: torch.nan_to_num((given * 0) / (given * 0)).sum(), "DivBackward0", "0 divided by 0 is NaN"),
])  # fmt: skip
def test_of_several_derivatives_the_first_that_is_not_finite_is_told(
    loss_of: Callable[[Tensor], Tensor], operation: str, cause: str
) -> None:
    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert found.operation == operation and cause in found.cause


TWO_ROOTS = """
def train(births, model, inputs):
    scores = model(inputs)
    near = (scores.square() + 1).sqrt()
    far = (scores * 0).sqrt()
    loss = (near + far).mean()
    births.before_backward([loss])
    loss.backward()
    return births.explain()
"""


def test_of_two_lines_with_the_operation_the_one_is_told_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO_ROOTS)
    model = nn.Linear(4, 2)
    found = runpy.run_path(str(tmp_path / "train.py"))["train"](Births(model), model, torch.rand(8, 4))
    assert (found.operation, found.source) == ("SqrtBackward0", "train.py:5: far = (scores * 0).sqrt()")


def test_of_a_derivative_in_the_loss_code_those_are_named_that_it_can_be() -> None:
    model = nn.Linear(4, 2)
    model.weight.data.zero_()
    model.bias.data.zero_()
    found = known(model, torch.randn(8, 4), lambda given: given.square().sum().sqrt())
    assert (found.phase, found.module) == ("backward", "") and "SqrtBackward0" in found.operation


@pytest.mark.parametrize(
    "exponent",
    [
        lambda given: given[:, 1],
        pytest.param(lambda given: given[:, -1:].squeeze(-1), marks=TOLD),
        lambda given: given[..., 1],
        lambda given: given.unbind(1)[1],
        lambda given: given.chunk(2, -1)[1],
        pytest.param(lambda given: -(-given[0, 1]).view(1), marks=TOLD),
    ],
)
def test_exp_is_named_whose_infinity_the_loss_has_divided_by(exponent: Callable[[Tensor], Tensor]) -> None:
    """As of a variance: the loss is finite, and the remedy for a division heals nothing."""
    model = nn.Linear(4, 2)
    model.weight.data.zero_()
    model.bias.data[:] = torch.tensor([2.0, 100.0])
    found = known(model, torch.randn(8, 4), lambda given: (given[:, :1] / exponent(given).exp()).mean())
    assert (found.phase, found.module, found.operation, found.is_birth) == ("loss", "", "ExpBackward0", True)
    assert found.cause.startswith("exp(100) is beyond 3.4e38, the largest float32 number")
    assert (found.taken, of_birth(found)) == ("100 to 100", OF_EXP)


@pytest.mark.parametrize("exponent", [lambda given: given[:, 0], lambda given: given.t()[1] / 2])
def test_exp_is_not_named_where_it_is_finite_or_its_input_unknown(exponent: Callable[[Tensor], Tensor]) -> None:
    model = nn.Linear(4, 2)
    model.weight.data.zero_()
    model.bias.data[:] = torch.tensor([2.0, 100.0])
    found = known(model, torch.randn(8, 4), lambda given: exponent(given).exp().mul(0).sum().sqrt())
    assert found.phase == "backward" and "SqrtBackward0" in found.operation


def test_exp_of_the_second_output_is_told_by_that() -> None:
    model = Operation(lambda inputs: inputs)
    weight = model.weight = nn.Parameter(torch.tensor([2.0, 100.0]))
    model.operation = lambda inputs: (inputs * weight[0], *(inputs * weight[1]).unbind(1))
    births = Births(model)
    first, _, last = model(torch.tensor([[0.0, 1.0]]))
    loss = (first / last.exp()).sum()
    assert births.before_backward([loss]) is None
    loss.backward()
    found = births.explain()
    assert found is not None and found.cause.startswith("exp(100) is beyond")


def test_a_derivative_of_which_nothing_is_known_may_be_the_one() -> None:
    found = known(
        nn.Linear(4, 9), torch.zeros(1, 4), lambda given: torch.linalg.svd(given.view(3, 3) * 0)[0].pow(3).sum() / 8
    )
    assert (found.phase, found.operation) == ("backward", "LinalgSvdBackward0") and not of_birth(found)


class LogSafe(torch.autograd.Function):
    """Has a derivative of 0 / 0, and a name that says log."""

    @staticmethod
    def forward(_context: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(_context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 0 / 0


def test_a_function_of_the_script_is_named_and_not_taken_for_what_its_name_says() -> None:
    def loss_of(given: Tensor) -> Tensor:
        made: Any = LogSafe.apply(given)
        return made.mean()

    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert (found.phase, found.operation) == ("backward", "LogSafeBackward")
    assert "the derivative of log_safe is not" in found.cause and "hook" not in found.cause
    (line,) = of_birth(found) or ("",)
    assert "`backward` of `LogSafe`" in line and "torch.log" not in line


def masked(given: Tensor) -> Tensor:
    return given.masked_fill(torch.tensor([False, True]), -math.inf).log_softmax(-1)


@pytest.mark.parametrize(("loss_of", "operation", "cause", "remedy"), [
    (lambda given: (masked(given).exp() * masked(given)).sum(), "MulBackward0", "0 times the Inf of a mask is NaN", "-1e9"),
    (lambda given: -masked(given).mean(), "MeanBackward1", "it takes the Inf of a mask into its result", "masked_fill"),
    (lambda given: 1 / (given.square() * 2).sub(torch.rand(1)).div(torch.zeros(2)).sum(), "DivBackward0",
     "a division by 0 is not finite", "a / (b + 1e-8)"),
    (lambda given: torch.nn.functional.kl_div(given.log_softmax(-1), torch.tensor([[-3.0, 2.0]]).expand(8, 2), reduction="sum"),
     "SubBackward0", "and its target goes down to -3: that has no logarithm", "log_target=True"),
])  # fmt: skip
def test_what_loss_code_makes_of_a_mask_a_divisor_and_a_target(
    loss_of: Callable[[Tensor], Tensor], operation: str, cause: str, remedy: str
) -> None:
    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert operation.rstrip("01") in found.operation and cause in found.cause
    assert remedy in (of_birth(found) or ("",))[0]
    assert found.was_given is (operation == "SubBackward0")


WEIGHED = """
def train(births, model, inputs, positives):
    scores = model(inputs)
    weight = (8 - positives) / positives
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores), pos_weight=weight)
    return births.before_backward([loss])
"""


def test_the_line_is_told_that_gave_a_variable_what_is_not_finite(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import torch\n{WEIGHED}")
    model = nn.Linear(4, 1)
    train = runpy.run_path(str(tmp_path / "train.py"))["train"]
    found = train(Births(model), model, torch.rand(8, 4), torch.zeros(1))
    assert found.source == "train.py:5: weight = (8 - positives) / positives" and "`weight`, holds 1 Inf" in found.cause
    assert "a / (b + 1e-8)" in (of_birth(found) or ("",))[0]


def test_a_parameter_before_the_model_is_trained_by_a_derivative_that_is_not_finite() -> None:
    gain, model = nn.Parameter(torch.ones(4)), nn.Linear(4, 2)
    births = Births(model)
    loss = model((gain * torch.zeros(8, 4)).sqrt()).mean()
    births.before_backward([loss])
    loss.backward()
    found = births.explain()
    assert found is not None and (found.phase, found.operation) == ("backward", "SqrtBackward0")


def test_the_remedy_of_another_operation_with_log_in_its_name_is_not_that_of_log() -> None:
    found = known(nn.Sequential(nn.Linear(4, 4), Operation(lambda x: torch.linalg.slogdet(x * 0)[1])), torch.ones(4, 4))
    assert "slogdet" in found.operation and not any("torch.log(" in line for line in of_birth(found) or ())


@pytest.mark.parametrize("loss_of", [
    lambda given: (given[given > 1e9] ** 2).mean(), lambda given: given[:0].mean(0).sum(),
])  # fmt: skip
def test_the_mean_of_nothing_is_told(loss_of: Callable[[Tensor], Tensor]) -> None:
    """As of a mask that leaves nothing. A power of 2 has nothing to do with it."""
    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert (found.phase, found.cause) == (
        "loss",
        "the mean of no numbers at all is 0 / 0",
    ) and "Mean" in found.operation
    assert (of_birth(found) or ("",))[0].startswith("no step for a batch of which nothing is left")
    assert undefined_for(found)


@pytest.mark.parametrize("first", [True, False])
def test_a_mean_of_nothing_that_the_script_has_mended_is_not_blamed(first: bool) -> None:
    def loss_of(given: Tensor) -> Tensor:
        mended, broken = torch.nan_to_num(given[:0].mean()), (given.softmax(1) * 0).log().mean()
        return mended + broken if first else broken + mended

    found = known(nn.Linear(4, 2), torch.randn(8, 4), loss_of)
    assert "Log" in found.operation and "Mean" not in found.operation


def test_an_operation_is_not_blamed_for_a_hook_on_the_loss() -> None:
    def hooked(given: Tensor) -> Tensor:
        loss = (given**2).mean()
        loss.register_hook(lambda gradient: gradient * math.nan)
        return loss

    found = known(nn.Linear(4, 2), torch.randn(8, 4), hooked)
    assert "a hook of the script changed it" in found.cause
    assert not undefined_for(found) and "hooks" in (of_birth(found) or ("",))[0]


def test_the_line_of_the_update_is_not_taken_for_that_of_the_backward_pass() -> None:
    model = nn.Linear(4, 2)
    births = Births(model)
    outputs = model(torch.randn(8, 4))
    loss = torch.sqrt(outputs - outputs.detach()).mean()
    loss = loss + torch.sqrt(outputs - outputs.detach()).mean()  # one of two lines, so neither is named
    births.before_backward([loss])
    loss.backward()
    found = births.explain()
    assert found is not None, births.unknown
    assert (found.phase, found.source) == ("backward", "") and "sqrt" in found.operation.lower()


# ---- in what the model was given


def test_the_input_is_named() -> None:
    inputs = torch.randn(8, 4)
    inputs[3, 1] = math.nan
    found = known(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), inputs)
    assert (found.phase, found.operation) == ("forward", "input") and "input 0 of the model holds 1 NaN" in found.cause


def test_weights_that_an_update_has_broken_are_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=math.inf)
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    found = known(model, torch.randn(8, 4))
    assert (found.phase, found.module, found.operation) == ("update", "0", "0.weight")
    assert "so an earlier update or the script made them" in found.cause
    told = "The weights held what is not finite before step 0 (0): 0.weight holds 16 Inf before the pass, so"
    assert sentence(found).startswith(told)
    remedy = of_birth(found, gradient=0.1, optimizer="opt")  # no smaller gradient would have helped
    assert remedy is not None and "opt.state" in remedy[0] and of_birth(found, gradient=1e20) is None


class Undefined(nn.Linear):
    """Gives NaN for inputs of the usual size: the mean of nothing, or 0 times Inf."""

    def __init__(self, spoil: Callable[[Tensor], Tensor]) -> None:
        super().__init__(4, 2)
        self.spoil = spoil

    def forward(self, inputs: Tensor) -> Tensor:
        return self.spoil(super().forward(inputs))


DECOYS = """
import math as m
import torch

def train(births, model, inputs):
    losses = getattr(torch, "lo" + "g")(0 * model(inputs)).sum()
    found = births.before_backward([losses])
    bits = m.log(2)
    after = torch.log(inputs)
    return found
"""


def test_a_line_that_was_not_called_yet_or_is_of_plain_numbers_is_not_blamed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DECOYS)
    model = nn.Linear(4, 2)
    found = runpy.run_path(str(tmp_path / "train.py"))["train"](Births(model), model, torch.rand(8, 4))
    assert found.operation == "LogBackward0" and "found = births.before_backward" in found.source


@pytest.mark.parametrize(
    ("spoil", "remedies"),
    [
        (lambda hidden: hidden + hidden[:0].mean(), birth_remedies._OF_NONE),
        (lambda hidden: hidden * (0 * torch.full((2,), 1.0) * math.inf), birth_remedies._OF_A_PRODUCT),
        (lambda hidden: hidden * (0 * torch.full((2,), 1.0) * torch.full((2,), math.inf)), birth_remedies._OF_A_MASK),
    ],
)
def test_smaller_gradients_are_no_remedy_for_an_operation_that_is_undefined(
    spoil: Callable[[Tensor], Tensor], remedies: tuple[str, ...]
) -> None:
    assert of_birth(known(Undefined(spoil), torch.randn(8, 4))) == remedies


# ---- several forward passes in a step


def test_the_micro_batch_is_told() -> None:
    model = Odd(lambda hidden: hidden.square().sqrt())
    model.first.bias.data.zero_()
    births = Births(model)
    for inputs in (torch.ones(2, 4), torch.zeros(2, 4), torch.ones(2, 4)):
        model(inputs).sum().backward()
    found = births.explain()
    assert found is not None, births.unknown
    assert (found.micro_batch, found.micro_batches, found.phase) == (1, 3, "backward")


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_the_micro_batch_of_a_loss_is_told(watch: Callable[..., TrainingWatch], broken: int) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    one = watch(model, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(3):
            inputs = torch.full((3, 4), math.nan if (step, part) == (2, broken) else 1.0)
            (model(inputs).square().mean() / 3).backward()
        optimizer.step()
    found = one.watched_runs[0].provenance
    assert found is not None and (found.step, found.micro_batch, found.micro_batches) == (2, broken, 3)


@pytest.mark.parametrize("together", [False, True])
def test_two_losses_of_one_pass_are_no_micro_batches(watch: Callable[..., TrainingWatch], together: bool) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    one = watch(model, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        outputs = model(torch.ones(3, 4))
        losses = [outputs.square().mean(), (outputs.abs() * (step != 2)).log().mean()]
        if together:
            torch.autograd.backward(losses)
        else:
            losses[0].backward(retain_graph=True)
            losses[1].backward()
        optimizer.step()
    found = one.watched_runs[0].provenance
    assert found is not None and (found.step, found.operation) == (2, "LogBackward0")
    assert (found.micro_batch, found.micro_batches) == (0, 1)


def test_weights_that_are_not_those_of_the_pass_are_noticed() -> None:
    model = Odd(lambda hidden: root(hidden) + hidden)
    births = Births(model)
    model(torch.ones(2, 4)).sum().backward()
    model.first.bias.data.fill_(9.0)
    assert births.explain() is None and "something else" in births.unknown


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_model_that_takes_its_own_output_is_explained() -> None:
    """The gradient of the later pass goes on through the earlier one."""
    cell = Odd(root)
    cell.last = nn.Linear(4, 4)
    births = Births(cell)
    state = torch.ones(2, 4)
    for _ in range(3):
        state = cell(state)
    state.sum().backward()
    found = births.explain()
    assert found is not None and found.phase == "backward" and found.chain[0].of == "SqrtBackward0"
    assert (found.micro_batch, found.micro_batches) == (0, 3)  # the one that the gradient reached first


@pytest.mark.wants("torch._C._current_autograd_node")
def test_both_models_of_a_gan_are_explained() -> None:
    generator, judge = nn.Linear(2, 4), Odd(root)
    of_generator, of_judge = Births(generator), Births(judge)
    judge(generator(torch.randn(3, 2))).sum().backward()
    found = of_judge.explain()
    assert found is not None and found.chain[0].of == "SqrtBackward0"
    behind = of_generator.explain()
    assert behind is None and "its graph is gone" in of_generator.unknown  # nobody said that a backward pass began


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_model_that_gives_its_loss_too_is_explained() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = Odd(root)

        def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.head(inputs)
            return logits, functional.cross_entropy(logits, targets)

    model = WithLoss()
    births = Births(model)
    _, loss = model(torch.randn(3, 4), targets=torch.tensor([0, 1, 0]))
    loss.backward()
    found = births.explain()
    assert found is not None and (found.module, found.chain[0].of) == ("head", "SqrtBackward0")


def test_what_broke_another_model_is_not_said_of_this_one(watch: Callable[..., TrainingWatch]) -> None:
    generator, judge = nn.Linear(2, 4), Odd(lambda hidden: hidden)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (generator, judge)]
    of_generator, of_judge = (watch(*each) for each in zip((generator, judge), optimizers, strict=True))
    for step in range(3):
        optimizers[1].zero_grad()
        judged = judge(generator(torch.randn(3, 2)).detach())
        torch.log(judged.square().sum() * (step != 1)).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(generator(torch.randn(3, 2))).sum().backward()
        optimizers[0].step()
    (behind,), (broken,) = of_generator.watched_runs, of_judge.watched_runs
    assert broken.provenance is not None and broken.provenance.operation == "LogBackward0"
    assert behind.provenance is None and "a weight of another model held" in behind.unknown


@pytest.mark.wants("torch._C._current_autograd_node")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_explained(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.odd = nn.Linear(4, 4), Odd(root)

        def forward(self, inputs: Tensor) -> Tensor:
            return checkpoint(self.odd, self.first(inputs), use_reentrant=reentrant)

    model = Checkpointed()
    births = Births(model)
    model(torch.randn(3, 4)).sum().backward()
    before = [parameter.grad for parameter in model.parameters()]
    found = births.explain()
    assert found is not None, births.unknown
    assert (found.phase, found.module) == ("backward", "odd")
    assert all(one is parameter.grad for one, parameter in zip(before, model.parameters(), strict=True))


class Blank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.fill_(math.nan)


@pytest.mark.wants("torch._C._current_autograd_node")
def test_nan_that_is_filled_in_is_born_there_as_no_mask_is() -> None:
    found = known(Odd(Blank.apply), torch.randn(3, 4))
    assert (found.phase, found.operation, found.cause) == (
        "backward", "aten.fill_.Scalar", "it was given the number NaN in the derivative of Blank",
    )  # fmt: skip
    assert found.source.endswith("return gradient.fill_(math.nan)")
    spoiled = known(Odd(lambda hidden: (-1 - hidden.abs()).log().masked_fill(hidden > 9, 0.0)), torch.randn(3, 4))
    assert spoiled.operation == "aten.log.default"


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_hook_of_a_weight_is_told_as_that() -> None:
    model = Odd(torch.tanh)
    model.first.weight.register_hook(lambda gradient: gradient / 0)
    found = known(model, torch.randn(3, 4))
    assert place_and_cause(found).startswith(
        "born in module first, backward pass: div, because a division by the number 0 where the gradient of a weight "
        "arrives"
    )


def test_passes_of_one_loss_are_no_micro_batches() -> None:
    model = nn.Linear(4, 2)
    found = known(model, torch.randn(3, 4), lambda given: (given * 0 * model(given @ torch.ones(2, 4))).sqrt().sum())
    assert (found.micro_batch, found.micro_batches) == (0, 1)
    remedies = of_birth(found) or ()
    assert len(remedies) == 1 and "torch.sqrt" in remedies[0]  # of "mul or sqrt"


TOO_LARGE = "gave a result beyond 3.4e38, the largest float32 number"
OF_ZERO, OF_LESS = "`(x + 1e-8) ** p`", "`x.clamp_min(1e-8) ** p`"
LESS = "a fractional power of a negative number is NaN"


@pytest.mark.parametrize(
    ("operation", "cause", "remedy"),
    [
        (lambda x: (x * 0 + 1e10) ** 4, TOO_LARGE, ""),
        (lambda x: torch.cat([x * 0, x * 0 + 1e10]) ** 4, TOO_LARGE, ""),
        (lambda x: 10.0 ** (x * 0 + 200), TOO_LARGE, ""),
        (lambda x: (x * 0 + 1e30) ** (x * 0 + 2), TOO_LARGE, ""),
        (lambda x: (x * 0) ** -1, "a division by 0 is Inf", OF_ZERO),
        (lambda x: (x * 0).pow_(-0.5), "a division by 0 is Inf", OF_ZERO),
        (lambda x: 0.0 ** (x * 0 - 1), "a division by 0 is Inf", OF_ZERO),
        (lambda x: (x * 0 + 1e-20) ** -2, "a division by a number near 0 is Inf", OF_ZERO),
        (
            lambda x: (x * 0) ** (x * 0 - 1),
            "a power that is too large, or a negative one of 0, is Inf",
            OF_ZERO,
        ),
        (lambda x: (-x.abs() - 1) ** 0.5, LESS, OF_LESS),
        (lambda x: (-2.0) ** (x * 0 - 0.5), LESS, OF_LESS),
        (lambda x: torch.cat([x * 0 - 1, x * 0 + 1e30]) ** 1.5, LESS, OF_LESS),
    ],
)
def test_a_power_that_is_too_large_is_told_from_one_that_is_not_defined(
    operation: Callable[[Tensor], Tensor], cause: str, remedy: str
) -> None:
    found = known(nn.Sequential(nn.Linear(4, 4), Operation(operation)), torch.randn(3, 4))
    assert "pow" in found.operation and cause in found.cause
    assert remedy in (of_birth(found) or ("",))[0] and undefined_for(found) == bool(remedy)


@pytest.mark.parametrize(
    ("operation", "cause", "remedy"),
    [
        (lambda x: torch.cat([x * 0, x * 0 + 1e10]) ** 4, f"inputs up to 1e10 {TOO_LARGE}", ""),
        (lambda x: (x * 0) ** -1, "a division by 0 is Inf", OF_ZERO),
        (lambda x: torch.cat([x * 0 - 1, x * 0 + 1e30]) ** 1.5, LESS, OF_LESS),
    ],
)
def test_a_power_of_loss_code_is_told_so_too(operation: Callable[[Tensor], Tensor], cause: str, remedy: str) -> None:
    found = known(nn.Linear(4, 4), torch.randn(3, 4), lambda given: operation(given).sum())
    assert "Pow" in found.operation and cause == found.cause
    assert remedy in (of_birth(found) or ("",))[0] and undefined_for(found) == bool(remedy)


def test_what_float16_cannot_hold_is_computed_in_float32() -> None:
    model, inputs = nn.Linear(4, 4).half(), torch.randn(3, 4).half()
    in_float32 = ("`.float()` on what the loss is computed from: float16 holds no more than 65,504",)
    found = known(model, inputs, lambda given: ((given - 500) ** 2).mean())
    assert "gave a result beyond 6.55e4, the largest float16 number" in found.cause
    assert of_birth(found) == in_float32
    found = known(model, inputs, lambda given: (given * 0).log().sum())
    assert "as float16 rounds so small a number away" in (of_birth(found) or ("",))[0]
    assert torch.tensor(1e-8).half() == 0
    assert of_birth(known(Operation(lambda given: model(given).abs().add(1) * 6e4 * 4), inputs)) == OF_HALF
    found = known(model, inputs, lambda given: functional.cross_entropy(given, torch.full((3,), -100)))
    assert "float16" not in (of_birth(found) or ("",))[0]  # nothing is too large there


@pytest.mark.parametrize(
    ("operation", "value"),
    [(torch.atanh, 1), (torch.erfinv, 1), (torch.logit, 1), (torch.acos, 3), (torch.lgamma, 0)],
    ids=["atanh", "erfinv", "logit", "acos", "lgamma"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_pole_is_no_overflow(operation: Callable[[Tensor], Tensor], value: float, dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Operation(lambda hidden: operation(hidden * 0 + value))).to(dtype)
    found = known(model, torch.randn(3, 4).to(dtype))
    assert found.cause == f"it has no finite value for one of what it was given, from {value} to {value}"
    assert "log(" not in (of_birth(found) or ("",))[0]


@pytest.mark.parametrize(("form", "loss", "in_one"), [
    ("prod(x).log()", lambda z: (z.sigmoid() * 1e-30).prod(1).log(), lambda z: (z.sigmoid() * 1e-30).log().sum(1)),
    ("exp(x).sum().log()", lambda z: (z - 200).exp().sum(1).log(), lambda z: torch.logsumexp(z - 200, 1)),
    ("exp(x).sum().log()", lambda z: (z.softmax(1) * (z + 200).exp()).sum(1).log(),
     lambda z: torch.logsumexp(z.log_softmax(1) + z + 200, 1)),
    ("(1 + exp(x)).log()", lambda z: (1 + (z + 200).exp()).log(), lambda z: functional.softplus(z + 200)),
    ("softmax(x).log()", lambda z: far(z).softmax(1).log(), lambda z: functional.log_softmax(far(z), 1)),
    ("sigmoid(x).log()", lambda z: torch.sigmoid(z - 200).log(), lambda z: functional.logsigmoid(z - 200)),
    ("(1 - sigmoid(x)).log()", lambda z: (1 - torch.sigmoid(z + 200)).log(), lambda z: functional.logsigmoid(-(z + 200))),
    ("exp(x) / exp(x).sum()", lambda z: (z + 200).exp() / (z + 200).exp().sum(1, keepdim=True), lambda z: (z + 200).softmax(1)),
    ("mask * softmax(x) / sum", lambda z: share(far(z).softmax(1) * torch.tensor([1.0, 0.0])),
     lambda z: far(z).masked_fill(torch.tensor([False, True]), -1e9).softmax(1)),
])  # fmt: skip
def test_what_is_written_in_several_operations_is_mended_by_the_one_for_it(
    form: str, loss: Callable[[Tensor], Tensor], in_one: Callable[[Tensor], Tensor]
) -> None:
    model, inputs = nn.Linear(4, 2), torch.randn(3, 4)
    found = known(model, inputs, lambda z: loss(z).sum())
    assert found.phase == "loss" and found.cause.endswith(f"it is written as `{form}`")
    assert of_birth(found) == (IN_ONE[f"`{form}`"],)
    out = model(inputs)
    (gradient,) = torch.autograd.grad(in_one(out).sum(), out)
    assert gradient.isfinite().all() and in_one(out).isfinite().all()


def far(z: Tensor) -> Tensor:
    return z + torch.tensor([0.0, 300.0])


def share(parts: Tensor) -> Tensor:
    return parts / parts.sum(1, keepdim=True)


def test_a_cosine_that_rounding_took_beyond_1_is_told_by_how_much() -> None:
    found = known(nn.Linear(4, 2), torch.randn(3, 4), lambda given: (given * 0 + 1.0000001).mul(1).acos().sum())
    assert found.cause == "it was given a number by 1.19e-7 beyond 1 or -1, as rounding leaves it, and is NaN there"


@pytest.mark.parametrize(("model", "shape", "node"), [
    (nn.Linear(4, 2), (3, 4), "NllLossBackward0"), (nn.Conv2d(4, 2, 1), (3, 4, 5, 5), "NllLoss2DBackward0"),
])  # fmt: skip
def test_a_mean_over_no_label_is_told(model: nn.Module, shape: tuple[int, ...], node: str) -> None:
    labels = torch.full((3, *shape[2:]), -100)
    found = known(model, torch.randn(shape), lambda given: functional.cross_entropy(given, labels))
    assert (found.phase, found.operation) == ("loss", node) and "mean over no label" in found.cause
    assert "every label is `ignore_index`" in (of_birth(found) or ("",))[0]


def ctc(given: Tensor) -> Tensor:
    """Give the loss of two targets, of which the second is longer than what the model gave."""
    labels, lengths = torch.ones(2, 9, dtype=torch.long), torch.tensor([2, 9])
    scores = given.view(4, 2, 4).log_softmax(-1)
    return functional.ctc_loss(scores, labels, torch.tensor([4, 4]), lengths, reduction="none").sum()


@pytest.mark.parametrize("in_model", [False, True])
def test_of_a_ctc_loss_the_losses_are_counted(in_model: bool) -> None:
    """Its table of probabilities holds -Inf in every step."""
    model = nn.Sequential(nn.Linear(4, 4), Operation(ctc)) if in_model else nn.Linear(4, 4)
    found = known(model, torch.randn(8, 4), *([] if in_model else [ctc]))
    assert "ctc_loss" in found.operation.lower().replace("ctcloss", "ctc_loss") and found.chain[0].given_inf == 1
    assert "zero_infinity=True" in (of_birth(found) or ("",))[0]


def test_the_remedy_tells_who_spoiled_the_gradients() -> None:
    model = nn.Linear(4, 2)
    model.weight.data[0, 0] = math.nan
    found = known(model, torch.randn(3, 4))
    assert (of_birth(found, math.nan) or ("",))[0].startswith(
        "`torch.isfinite(p.grad).all()` for every `p` right before"
    )
    assert (of_birth(found, 3.0) or ("",))[0].startswith("`print(optimizer.param_groups") and of_birth(found) is None


# ---- nothing is changed


class Stateful(nn.Module):
    """Draws random numbers, counts, and keeps a state."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.odd = Odd(root)
        self.calls, self.seen = 0, []

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        print("pass", self.calls)
        return self.odd(self.drop(self.norm(inputs)))


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_replay_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    model = Stateful()
    births = Births(model)
    model(torch.randn(5, 4)).sum().backward()
    state = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    numbers = (torch.get_rng_state(), random.getstate())
    found = births.explain()
    assert found is not None and found.module == "odd", births.unknown
    assert all(torch.equal(one, other) for one, other in zip(state.values(), model.state_dict().values(), strict=True))
    for before, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, before, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.get_rng_state(), numbers[0]) and random.getstate() == numbers[1]
    assert (model.calls, model.seen) == (1, [1]) and capsys.readouterr().out == "pass 1\n"


def test_training_has_the_same_bits() -> None:
    def losses(watched: bool) -> list[str]:
        torch.manual_seed(3)
        model = Stateful()
        model.odd.operation = torch.tanh
        births = Births(model) if watched else None
        optimizer, found = torch.optim.Adam(model.parameters()), []
        for _ in range(5):
            loss = model(torch.randn(5, 4)).square().mean()
            if births:
                births.before_backward([loss])
            optimizer.zero_grad()
            loss.backward()
            if births:
                assert births.explain() is None and births.unknown == "all was finite when the step was made again"
            optimizer.step()
            if births:
                births.clear()
            found.append(repr(loss.item()))
        return found

    assert losses(True) == losses(False)


def test_models_are_saved_and_copied_without_the_hooks(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    births = Births(model)
    whole, copied = io.BytesIO(), copy.deepcopy(model)
    torch.save(model, whole)
    (tmp_path / "model.pt").write_bytes(whole.getvalue())
    assert torch.equal(copied(torch.ones(1, 4)), model(torch.ones(1, 4)))
    assert b"gradstudio" not in whole.getvalue()
    births.remove()
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_a_pass_without_a_backward_pass_is_forgotten_at_the_next() -> None:
    import weakref

    model = nn.Linear(4, 2)
    births = Births(model)
    outputs = model(torch.randn(3, 4))
    kept = weakref.ref(outputs.grad_fn.metadata[births.passes.mark])
    assert kept() is not None and births.at_the_end() is None
    outputs = model(torch.randn(3, 4))
    assert kept() is None
    kept = weakref.ref(outputs.grad_fn.metadata[births.passes.mark])
    births.clear()
    del outputs
    assert kept() is None
    with torch.no_grad():
        model(torch.randn(3, 4))
    assert births.explain() is None and births.unknown == "no forward pass of the model was seen"


# ---- what cannot be known is unknown


def test_inputs_changed_afterwards_are_said_to_be() -> None:
    model, inputs = Odd(root), torch.randn(3, 4)
    births = Births(model)
    model(inputs).sum().backward()
    inputs.zero_()
    assert births.explain() is None and "changed in place" in births.unknown


def test_a_model_that_is_not_deterministic_is_said_to_be() -> None:
    numbers = iter([0.0, 1.0])
    births, found = trained(Odd(lambda hidden: root(hidden) + next(numbers)), torch.randn(3, 4))
    assert found is None and "something else when the forward pass was made again" in births.unknown


def test_a_model_that_cannot_be_called_again_is_said_to_be() -> None:
    answers = iter([torch.tensor(0.0)])
    births, found = trained(Odd(lambda hidden: (hidden * next(answers)).sqrt()), torch.randn(3, 4))
    assert found is None and "repeating the step ended with StopIteration" in births.unknown


def test_gradients_of_gradients_are_said_to_be_unknown() -> None:
    model = Odd(root)
    births = Births(model)
    inputs = torch.randn(3, 4, requires_grad=True)
    outputs = model(inputs)
    (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
    (outputs.sum() + slope.square().sum()).backward()
    assert births.explain() is None and "more than one backward pass" in births.unknown


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_compiled_model_is_explained_as_it_is_written() -> None:
    model = Odd(root)
    births, found = trained(torch.compile(model, backend="eager"), torch.randn(3, 4))
    assert found is not None, births.unknown
    assert (found.phase, found.chain[0].of) == ("backward", "SqrtBackward0")


@pytest.mark.wants("torch._C._current_autograd_node")
def test_a_model_that_was_compiled_in_place_is_heard_and_can_be_copied_and_left() -> None:
    model = Odd(root)
    model.compile(backend="eager")
    called = vars(model)["_compiled_call_impl"]
    births, found = trained(model, torch.randn(3, 4))
    assert found is not None, births.unknown
    assert (found.phase, found.chain[0].of) == ("backward", "SqrtBackward0")
    assert torch.equal(copy.deepcopy(model)(torch.ones(1, 4)), model(torch.ones(1, 4)))
    assert copy.deepcopy(vars(model)["_compiled_call_impl"]) is called
    births.remove()
    assert vars(model)["_compiled_call_impl"] is called


@pytest.mark.wants("torch._C._current_autograd_node")
@pytest.mark.parametrize("first", [True, False])
def test_a_model_that_was_compiled_in_place_may_have_several_optimizers(first: bool) -> None:
    model = Odd(root)
    model.compile(backend="eager")
    called = vars(model)["_compiled_call_impl"]
    both = [Births(model), Births(model)]
    both.pop(not first).remove()
    (left,) = both
    model(torch.randn(3, 4)).sum().backward()
    found = left.explain()
    assert found is not None and found.chain[0].of == "SqrtBackward0", left.unknown
    left.remove()
    assert vars(model)["_compiled_call_impl"] is called


def test_a_model_loads_where_gradstudio_is_not(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    Births(model)
    torch.save(model, tmp_path / "model.pt")
    code = (
        "import sys, torch; sys.modules['gradstudio'] = None\n"
        "print(torch.load(sys.argv[1], weights_only=False)(torch.ones(1, 4)).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.pt")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "torch.Size([1, 2])\n", done.stderr
