"""What is wrong with a training though its numbers are sound is told; what only looks like it is not. Each fault is
mended by the line that is offered, which is its healthy twin here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional as F
from torch.optim import SGD, Adam

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.script_faults import HEARD
from gradstudio.core.history import LOOK_EVERY
from gradstudio.session.record.ranked_findings import in_order
from gradstudio.watching import training_watch
from gradstudio.watching.watcher import outcome_of
from tests.watching.conftest import runs_of, small_net

TOLD = pytest.mark.wants("autograd.Node._input_metadata")
STEPS = 60
Watch = Callable[..., Any]


def told(one: Any) -> dict[str, Finding]:
    """What was found of every run, at its end."""
    one.close()
    return {found.rule: found for run in runs_of(one) for found in in_order(run) if found.rule in HEARD}


def trained(watch: Watch, model: nn.Module, loss_of: Callable[[], Tensor], steps: int = 3) -> dict[str, Finding]:
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()
    return told(one)


THIRDS = torch.full((16, 3), 1 / 3)


def x() -> Tensor:
    return torch.randn(16, 6)


SOME = torch.tensor([-1.0, 0.0, 1.0]).repeat(16, 1)  # labels of which one is missing


def three(z: Tensor) -> Tensor:
    return z * torch.arange(3.0)


def maps(z: Tensor) -> Tensor:
    return z[:, :, None, None] * torch.ones(2, 2)


def frames(z: Tensor, *, blank: int) -> Tensor:
    """The CTC loss of two rows of labels, padded with 2."""
    scores = three(z).view(8, 2, 3).log_softmax(-1)
    return F.ctc_loss(scores, torch.tensor([[0, 1, 0], [1, 0, 2]]), (8, 8), (3, 2), blank=blank)


@TOLD
@pytest.mark.parametrize(("spoiled", "mended", "rule", "said"), [
    (lambda z: F.binary_cross_entropy_with_logits(z.sigmoid(), torch.ones(16, 1)),
     lambda z: F.binary_cross_entropy_with_logits(z, torch.ones(16, 1)), "activation_twice", "of a sigmoid"),
    (lambda z: F.cross_entropy(z.expand(-1, 3).softmax(-1), torch.zeros(16, dtype=torch.long)),
     lambda z: F.cross_entropy(z.expand(-1, 3), torch.zeros(16, dtype=torch.long)), "activation_twice", "cross_entropy"),
    (lambda z: F.nll_loss(z.expand(-1, 3).softmax(-1), torch.zeros(16, dtype=torch.long)),
     lambda z: F.nll_loss(z.expand(-1, 3).log_softmax(-1), torch.zeros(16, dtype=torch.long)), "probabilities_for_logs", "nll_loss"),
    (lambda z: ((z - torch.zeros(16)) ** 2).mean(), lambda z: ((z.squeeze(-1) - torch.zeros(16)) ** 2).mean(), "shapes_broadcast", "(16, 1)"),
    (lambda z: F.mse_loss(z, torch.zeros(16)), lambda z: F.mse_loss(z.squeeze(-1), torch.zeros(16)),
     "shapes_broadcast", "(16, 16)"),
    (lambda z: F.smooth_l1_loss(maps(z), torch.zeros(16, 2, 2)),
     lambda z: F.smooth_l1_loss(maps(z), torch.zeros(16, 1, 2, 2)), "shapes_broadcast", "(16, 16, 2, 2)"),
    (lambda z: F.kl_div(three(z).softmax(-1), THIRDS, reduction="batchmean"),
     lambda z: F.kl_div(three(z).log_softmax(-1), THIRDS, reduction="batchmean"), "probabilities_for_logs", "kl_div"),
    (lambda z: F.nll_loss(10 + three(z), torch.zeros(16, dtype=torch.long)),
     lambda z: F.nll_loss(three(z).log_softmax(-1), torch.zeros(16, dtype=torch.long)), "probabilities_for_logs", "above 0"),
    (lambda z: F.nll_loss(three(z).log_softmax(0), torch.zeros(16, dtype=torch.long)),
     lambda z: F.nll_loss(three(z).log_softmax(1), torch.zeros(16, dtype=torch.long)), "probabilities_for_logs", "dimension 0"),
    (lambda z: F.binary_cross_entropy_with_logits(three(z), SOME),
     lambda z: F.binary_cross_entropy_with_logits(three(z), SOME, reduction="none")[SOME >= 0].mean(), "targets_beyond", "-1 to 1"),
    (lambda z: F.huber_loss(z, torch.full((16, 1), 1e5)), lambda z: F.huber_loss(z, torch.ones(16, 1)),
     "large_targets", "`huber_loss` is given targets"),
    (lambda z: F.binary_cross_entropy_with_logits(z, torch.full((16, 1), 255.0)),
     lambda z: F.binary_cross_entropy_with_logits(z, torch.ones(16, 1)), "targets_beyond", "255"),
    (lambda z: -F.softplus(z).mean(), lambda z: F.softplus(-z).mean(), "saturating_loss", "softplus"),
    (lambda z: (1 - z.sigmoid()).log().mean(), lambda z: -z.sigmoid().log().mean(), "saturating_loss", "log(1 - sigmoid"),
    (lambda z: F.cross_entropy(z @ (2 * z).T / 0.1, torch.zeros(16, dtype=torch.long)),
     lambda z: F.cross_entropy(z @ (2 * z).T / 0.1, torch.arange(16)), "labels_alike", "16 queries with 16 keys"),
    (lambda z: frames(z, blank=1), lambda z: frames(z, blank=2), "label_is_blank", "2 of 5 labels that `ctc_loss` is given are 1"),
    (lambda z: F.mse_loss(z, torch.full((16, 1), 1e5)), lambda z: F.mse_loss(z, torch.ones(16, 1)),
     "large_targets", "root mean square of 1e5"),
    (lambda z: (z.squeeze(-1) * torch.ones(16, 1)).mean(), lambda z: (z.squeeze(-1) * torch.ones(16)).mean(),
     "shapes_broadcast", "multiplies an output of shape (16,)"),
    (lambda z: Categorical(logits=three(z).softmax(-1)).log_prob(torch.zeros(16)).mean(),
     lambda z: Categorical(logits=three(z)).log_prob(torch.zeros(16)).mean(), "activation_twice", "Categorical"),
    (lambda z: F.mse_loss(z.sigmoid(), torch.linspace(1, 5, 16)[:, None]),
     lambda z: F.mse_loss(1 + 4 * z.sigmoid(), torch.linspace(1, 5, 16)[:, None]), "out_of_reach", "1 to 5: 94 %"),
    (lambda z: F.smooth_l1_loss(z.relu(), torch.linspace(-1, 1, 16)[:, None]),
     lambda z: F.smooth_l1_loss(z.tanh(), torch.linspace(-1, 1, 16)[:, None]), "out_of_reach", "a relu, above 0"),
    (lambda z: F.soft_margin_loss(z, SOME[:, 1:2]), lambda z: F.soft_margin_loss(z, SOME[:, 2:]),
     "labels_not_signed", "16 of 16"),
    (lambda z: F.cosine_embedding_loss(three(z), 1 - three(z), torch.arange(16) % 2),
     lambda z: F.cosine_embedding_loss(three(z), 1 - three(z), torch.arange(16) % 2 * 2 - 1),
     "labels_not_signed", "8 of 16"),
    (lambda z: (F.layer_norm(z, (1,)) - 1).square().mean(),
     lambda z: (F.layer_norm(three(z), (3,)) - 1).square().mean(), "norm_of_one", "layer_norm"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_loss_that_gets_the_wrong_thing_is_named(
    watch: Watch, spoiled: Callable[[Tensor], Tensor], mended: Callable[[Tensor], Tensor], rule: str, said: str
) -> None:
    model = small_net()
    found = trained(watch, model, lambda: spoiled(model(x())))
    assert set(found) == {rule} and said in found[rule].evidence and found[rule].remedies
    assert not trained(watch, small_net(), lambda: mended(model(x())))


@pytest.mark.parametrize("loss", [
    lambda z: (z - z.T).square().mean(),  # all pairs are meant
    lambda z: (z.squeeze(-1).unsqueeze(1) - torch.zeros(16)).square().mean(),
    lambda z: F.kl_div(z.expand(-1, 3).log_softmax(-1), torch.full((16, 3), 0.3), reduction="sum"),
    lambda z: F.binary_cross_entropy(z.sigmoid(), torch.ones(16, 1)),
    lambda z: F.mse_loss(z.sigmoid(), torch.ones(16, 1)),
    lambda z: F.mse_loss(z.tanh(), torch.linspace(-1.001, 1.001, 16)[:, None]),
    lambda z: (z.squeeze(-1).unsqueeze(1) * torch.ones(16)).mean(),
    lambda z: F.gelu(z.squeeze(-1) * torch.ones(16, 1)).mean(),  # no factor of the loss
    lambda z: F.cross_entropy(torch.cat([z, z @ z.T], 1), torch.zeros(16, dtype=torch.long)),  # the match first
])  # fmt: skip
def test_a_loss_that_is_right_is_left_alone(watch: Watch, loss: Callable[[Tensor], Tensor]) -> None:
    model = small_net()
    assert not trained(watch, model, lambda: loss(model(x())))


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("by", ["script", "loss"])
def test_parts_that_stay_in_evaluation_mode_are_named(watch: Watch, by: str, back: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(STEPS):
        if by == "loss":  # each of which looks at a prediction
            model.train()
        if step == 5 or by == "loss":
            model.eval()
            model.train(back)
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
    found = told(one)
    assert ("evaluation_mode" in found) is not back
    if not back:
        assert "model.1 and model.2" in found["evaluation_mode"].evidence
        assert "`eval()` was called at test_training_checks.py:" in found["evaluation_mode"].evidence
        assert found["evaluation_mode"].remedies[0].startswith("`model.train()`")


def test_batch_norms_that_were_never_in_training_mode_are_meant_to_be(watch: Watch) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval()
    assert not trained(watch, model, lambda: model(x()).square().mean(), STEPS)


def test_batch_norms_that_are_taken_out_of_training_mode_at_each_step_are_meant_to_be(watch: Watch) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def loss_of() -> Tensor:
        model.train()[1].eval()
        return model(x()).square().mean()

    assert not trained(watch, model, loss_of, STEPS)


def test_steps_that_move_nothing_are_named(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    model, late = small_net(), nn.Linear(1, 1)
    optimizer = Adam(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        out = model(x()) if step < 5 else late(model(x()).detach())
        out.square().mean().backward()
        optimizer.step()
    found = told(one)["nothing_moves"]
    assert f"latest {STEPS - 5} calls of `optimizer.step()` moved nothing" in found.evidence


def test_an_optimizer_that_never_moves_anything_is_told_once(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    model, other = small_net(), nn.Linear(6, 1)
    optimizer = Adam(model.parameters(), lr=0.01)
    watch(model, optimizer)
    for _ in range(STEPS):
        other(x()).square().mean().backward()
        optimizer.step()
    assert capsys.readouterr().err.count("The steps of this optimizer move nothing") == 1


def test_a_loss_that_was_made_anew_is_named(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    model = small_net()
    optimizer = Adam(model.parameters(), lr=0.01)
    watch(model, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.tensor(model(x()).square().mean().item(), requires_grad=True).backward()
        optimizer.step()
    said = capsys.readouterr().err
    assert "begins at a tensor that has no graph" in said and "without `.item()`" in said


@pytest.mark.parametrize(("ends", "operation", "remedy"), [
    (lambda z: (z - 9).relu(), "relu", "F.softplus"),
    (lambda z: z.clamp(8, 9), "clamp", "wider bounds"),
    (lambda z: (z / 9).round(), "round", "x + (round(x) - x).detach()"),
    (lambda z: z.softmax(1), "softmax", "dim=..."),
    (lambda z: z - 9, "", ""),
])  # fmt: skip
def test_the_operation_is_named_in_which_every_gradient_ends(
    watch: Watch, ends: Callable[[Tensor], Tensor], operation: str, remedy: str
) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=1e-3)
    one = watch(model, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.mse_loss(ends(model(x())), torch.full((16, 1), 2.0)).backward()
        optimizer.step()
    one.close()
    found = [each for run in runs_of(one) for each in in_order(run) if each.rule == "gradient_of_zero"]
    assert len(found) == bool(operation)
    if operation:
        assert f"became 0 in {operation}" in found[0].evidence and remedy in found[0].remedies[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_updates_that_bfloat16_rounds_away_are_named(watch: Watch, dtype: torch.dtype) -> None:
    model = small_net()
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1.0)
    model = model.to(dtype)
    optimizer = SGD(model.parameters(), lr=1e-6)
    one = watch(model, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x().to(dtype)).float().square().mean().backward()
        optimizer.step()
    found = told(one)
    assert set(found) == ({"rounded_updates"} if dtype is torch.bfloat16 else set())


def divergence(z: Tensor) -> Tensor:
    return (z.exp() - z - 1).mean()


def far_square(z: Tensor, gain: float) -> Tensor:
    return (gain * z.tanh() - (z.tanh() - gain).square()).mean()


@pytest.mark.parametrize(("loss", "is_endless"), [
    (lambda z: -divergence(z), True), (divergence, False),
    (partial(far_square, gain=-3.0), False), (partial(far_square, gain=1.0), False),
])  # fmt: skip
def test_a_loss_that_falls_below_0_without_an_end_is_named(watch: Watch, loss: Any, is_endless: bool) -> None:
    """The square that a bounded output is far from may be subtracted: such a loss has a least value below 0."""
    model = small_net()
    optimizer = Adam(model.parameters(), lr=0.02)
    one = watch(model, optimizer)
    for _ in range(8 * LOOK_EVERY):
        optimizer.zero_grad()
        loss(model(x())).backward()
        optimizer.step()
    found = told(one)
    assert ("loss_without_floor" in found) is is_endless
    assert not is_endless or "`exp` is subtracted" in found["loss_without_floor"].evidence


@pytest.mark.parametrize(("middle", "operation"), [
    (torch.round, "round"), (torch.sign, "sign"), (lambda z: z + (z.round() - z).detach(), ""),
])  # fmt: skip
def test_the_operation_is_named_in_which_some_gradients_end(
    watch: Watch, middle: Callable[[Tensor], Tensor], operation: str
) -> None:
    model = small_net()
    optimizer = Adam(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for _ in range(7 * LOOK_EVERY):
        optimizer.zero_grad()
        inputs = x()
        F.mse_loss(model[2](middle(3 * model[1](model[0](inputs)))), inputs[:, :1]).backward()
        optimizer.step()
    one.close()
    found = {each.rule: each for run in runs_of(one) for each in in_order(run)}
    assert ("gradient_of_zero" in found) is bool(operation)
    if operation:
        finding = found["gradient_of_zero"]
        assert f"became 0 in {operation}" in finding.evidence and "0.weight" in finding.evidence
        assert "x + (round(x) - x).detach()" in finding.remedies[0] and finding.last_step == 7 * LOOK_EVERY - 1


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_term_without_a_gradient_is_named(watch: Watch, create_graph: bool) -> None:
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = Adam(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for _ in range(3 * LOOK_EVERY):
        inputs = torch.randn(16, 1, requires_grad=True)
        out = model(inputs)
        (slope,) = torch.autograd.grad(out.sum(), inputs, create_graph=create_graph, retain_graph=True)
        residual = (slope - 1 + 0 * inputs).square().mean()
        loss = 0.5 * residual + (out - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = told(one)
    assert ("constant_term" in found) is not create_graph
    if not create_graph:
        assert "`residual` is a term of the loss" in found["constant_term"].evidence
        assert "`create_graph=True`" in found["constant_term"].remedies[0]


def test_a_number_that_is_added_to_a_loss_is_no_term(watch: Watch) -> None:
    model, bias = small_net(), torch.tensor(1.0)
    optimizer = Adam(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(3 * LOOK_EVERY):
        noise, count = 0.1 * step, torch.tensor(step)
        loss = model(x()).square().mean() + bias + noise
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del count
    assert "constant_term" not in told(one)


@pytest.mark.parametrize("mended", [True, False])
def test_a_weight_that_is_divided_by_and_passes_0_is_named(watch: Watch, mended: bool) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Linear(6, 1), nn.Parameter(torch.full((1,), 0.05))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.inner(inputs) / (F.softplus(self.scale) if mended else self.scale)

    model = Scaled()
    optimizer = SGD([{"params": model.inner.parameters(), "lr": 0.0}, {"params": [model.scale], "lr": 1e-4}], lr=0.01)
    one = watch(model, optimizer)
    for _ in range(3 * LOOK_EVERY):
        inputs = x()
        optimizer.zero_grad()
        F.mse_loss(model(inputs), 60 * model.inner(inputs).detach()).backward()
        optimizer.step()
    found = told(one)
    assert ("divisor_passes_0" in found) is not mended
    if not mended:
        assert "of scale changed sign" in found["divisor_passes_0"].evidence
        assert "`F.softplus(scale)`" in found["divisor_passes_0"].remedies[0]


@pytest.mark.parametrize("apart", [True, False])
def test_parameters_of_two_optimizers_are_named(watch: Watch, apart: bool) -> None:
    maker, judge = nn.Linear(6, 6), nn.Linear(6, 1)
    both = nn.ModuleList([maker, judge])
    first = Adam(maker.parameters() if apart else both.parameters(), lr=0.01)
    second = Adam(judge.parameters(), lr=0.01)
    one, other = watch(both, first), watch(judge, second)
    for _ in range(STEPS):
        for optimizer, sign in ((second, 1), (first, -1)):
            optimizer.zero_grad()
            F.softplus(sign * judge(maker(x()))).mean().backward()
            optimizer.step()
    assert ("held_twice" in {**told(one), **told(other)}) is not apart


@TOLD
@pytest.mark.parametrize("spread", [30.0, 0.1])
def test_a_first_loss_far_above_that_of_a_guess_is_noted(watch: Watch, spread: float) -> None:
    model = nn.Linear(6, 8)
    nn.init.normal_(model.weight, std=spread)
    found = trained(watch, model, lambda: F.cross_entropy(model(x()), torch.randint(0, 8, (16,))))
    assert ("large_scores" in found) is (spread > 1)
    assert spread < 1 or "ln 8 = 2.08" in found["large_scores"].evidence


def test_a_loss_that_is_solved_is_not_called_flat(watch: Watch) -> None:
    model = nn.Linear(6, 2)
    optimizer = Adam(model.parameters(), lr=0.3)
    one = watch(model, optimizer)
    for _ in range(8 * LOOK_EVERY):
        optimizer.zero_grad()
        chances = model(torch.ones(16, 6)).softmax(1).clamp(1e-7, 1 - 1e-7)
        (-chances[:, 0].log()).mean().backward()
        optimizer.step()
    one.close()
    (run,) = runs_of(one)
    assert not run.history.column("grad_norm", len(run.history) - LOOK_EVERY).any()
    of_zeros = ("vanishing_gradient", "gradient_of_zero", "loss_not_decreasing")
    assert not [each for each in in_order(run) if each.rule in of_zeros and each.severity != "info"]


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 1)


class Always(Dropping):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(F.dropout(self.first(inputs), 0.5))


class InTraining(Dropping):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(F.dropout(self.first(inputs), 0.5, training=self.training))


@pytest.mark.parametrize("kind", [Always, InTraining])
def test_a_dropout_that_no_mode_ends_is_noted(watch: Watch, kind: Any) -> None:
    model = kind()
    found = trained(watch, model, lambda: model(x()).square().mean(), 5)
    assert ("endless_dropout" in found) is (kind is Always)
    assert kind is InTraining or "test_training_checks.py:" in found["endless_dropout"].evidence


@pytest.mark.parametrize(("share", "is_fault"), [(0.9, True), (0.5, False)])
def test_a_dropout_of_most_inputs_is_noted(watch: Watch, share: float, is_fault: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(share), nn.Linear(8, 1))
    found = trained(watch, model, lambda: model(x()).square().mean(), 5)
    assert ("dropout_high" in found) is is_fault
    assert not is_fault or "`nn.Dropout(0.1)`" in found["dropout_high"].remedies[0]


@pytest.mark.parametrize(("each", "forked"), [(1, False), (5, False), (1, True)])
def test_a_seed_that_is_set_in_each_step_is_named(watch: Watch, each: int, forked: bool) -> None:
    """A validation may set it now and then, and what draws samples for a person sets it back."""
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(STEPS):
        with torch.random.fork_rng(enabled=forked):
            if step % each == 0:
                torch.manual_seed(3)
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
    found, is_fault = told(one), each == 1 and not forked
    assert ("seed_each_step" in found) is is_fault
    assert not is_fault or "`torch.manual_seed(3)`" in found["seed_each_step"].evidence


@pytest.mark.parametrize("same", [True, False])
def test_a_term_that_is_always_0_is_noted(watch: Watch, same: bool) -> None:
    other = small_net(1)

    def step_of(_: Any, net: nn.Module, step: int) -> Tensor:
        inputs = x()
        goal = (net if same else other)(inputs).detach()
        return (net(inputs) - 1).square().mean() + F.mse_loss(net(inputs), goal)

    assert ("term_of_zero" in judged(watch, step_of)) is same


@TOLD
@pytest.mark.parametrize(("padded", "ignored"), [(True, -100), (False, -100), (True, 3)])
def test_labels_of_which_most_are_of_one_class_are_noted(watch: Watch, padded: bool, ignored: int) -> None:
    def step_of(_: Any, net: nn.Module, step: int) -> Tensor:
        labels = torch.arange(16) % 4 if not padded else torch.arange(16).clamp_max(3) % 4
        return F.cross_entropy(net(x()), labels, ignore_index=ignored)

    found = judged(watch, step_of, model=nn.Linear(6, 4))
    assert ("one_label" in found) is (padded and ignored < 0)
    if padded and ignored < 0:
        assert "81 % of the labels were 3." in found["one_label"].evidence
        assert "`ignore_index=3`" in found["one_label"].remedies[0]


@pytest.mark.parametrize("plain", [True, False])
def test_a_tensor_made_of_a_parameter_is_named(watch: Watch, plain: bool) -> None:
    class Centres(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            drawn = torch.randn(3, 6)
            self.centres = nn.Parameter(drawn.double()).float() if plain else nn.Parameter(drawn)
            self.body = nn.Linear(6, 6)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.body(inputs) @ self.centres.T

    found = judged(watch, lambda _, net, step: net(x()).square().mean(), model=Centres(), steps=10)
    assert ("plain_tensor" in found) is plain
    assert not plain or "`self.centres` is assigned" in found["plain_tensor"].remedies[0]


@pytest.mark.parametrize("spoiled", [True, False])
def test_attributes_that_freeze_nothing_are_named(watch: Watch, spoiled: bool) -> None:
    model: Any = small_net()
    if spoiled:
        model[0].weight.require_grad = model[2].requires_grad = False
    else:
        model[0].weight.requires_grad = False
    found = trained(watch, model, lambda: model(x()).square().mean(), 5)
    assert ("not_frozen" in found) is spoiled
    if spoiled:
        assert "`require_grad = False` was set on" in found["not_frozen"].evidence


@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator")
@pytest.mark.parametrize("spoiled", [True, False])
def test_a_clip_of_nothing_is_named(watch: Watch, spoiled: bool) -> None:
    model = small_net()
    parameters: Any = filter(lambda p: p.requires_grad, model.parameters())
    parameters = parameters if spoiled else list(parameters)
    optimizer = SGD(parameters, lr=0.01)
    one = watch(model, optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    found = told(one)
    assert ("clips_nothing" in found) is spoiled
    if spoiled:
        assert "`parameters` has nothing left" in found["clips_nothing"].evidence


@pytest.mark.parametrize(("momentum", "is_fault"), [(0.99, True), (0.1, False), (1.0, False), (None, False)])
def test_the_momentum_of_another_library_is_named(watch: Watch, momentum: Any, is_fault: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 1))
    found = trained(watch, model, lambda: model(x()).square().mean(), 5)
    assert ("norm_momentum" in found) is is_fault
    assert not is_fault or "`momentum=0.01`" in found["norm_momentum"].remedies[0]


def test_an_output_cut_off_from_its_own_loss_is_named(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    model, judge = small_net(), nn.Linear(1, 1)
    own, of_judge = Adam(model.parameters(), lr=0.01), Adam(judge.parameters(), lr=0.01)
    watch(model, own), watch(judge, of_judge)
    for _ in range(STEPS):
        for optimizer in (of_judge, own):
            optimizer.zero_grad()
            judge(model(x()).detach()).square().mean().backward()
            optimizer.step()
    assert "`x` in place of `x.detach()`" in capsys.readouterr().err


@pytest.mark.parametrize("summed", [True, False])
def test_a_term_that_rests_beside_a_sum_is_named(watch: Watch, summed: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 6))

    def step_of(_: Any, net: Any, step: int) -> Tensor:
        inputs = torch.randn(256, 6) + 1
        code = net[0](inputs)
        size = code.square()
        return F.mse_loss(net[1](code), inputs) + (100 * size.sum() if summed else 1e-3 * size.mean())

    found = judged(watch, step_of, model=model, lr=0.02, steps=400)
    assert ("loss_at_rest" in found) is summed
    if summed:
        assert "another term of the loss is a sum over 1,024 numbers" in found["loss_at_rest"].evidence
        assert "`reduction='sum'`" in found["loss_at_rest"].remedies[0]


def test_a_few_steps_without_gradients_are_no_fault(watch: Watch) -> None:
    model = small_net()
    optimizer = Adam(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        if step % 3:
            model(x()).square().mean().backward()
        optimizer.step()
    assert not told(one)


@pytest.mark.parametrize(("thawed", "count"), [(False, 2), (True, 0)])
def test_what_stays_frozen_to_the_end_is_noted(watch: Watch, thawed: bool, count: int) -> None:
    model = small_net()
    model[0].requires_grad_(False)
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(STEPS):
        if thawed and step == 20:
            model[0].requires_grad_(True)
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
    found = told(one).get("frozen_parameters")
    assert (found is not None) is bool(count)
    assert found is None or (found.severity == "info" and "2 of the 4 tensors" in found.evidence)


def accumulated(model: nn.Module, optimizer: Any, kind: str) -> None:
    optimizer.zero_grad()
    for _ in range(4):
        if kind == "cleared":
            optimizer.zero_grad()
        inputs = x().requires_grad_(kind == "attack")
        if kind == "attack":
            optimizer.zero_grad()
        loss = model(inputs).square().mean()
        (loss / 4 if kind == "divided" else loss).backward()
    if kind == "by hand":
        for weight in model.parameters():
            weight.grad.div_(4)
    optimizer.step()


@pytest.mark.parametrize(("kind", "rules"), [
    ("cleared", {"loop_order"}), ("added", {"undivided_sum"}), ("divided", set()), ("by hand", set()), ("attack", set()),
])  # fmt: skip
def test_micro_batches_are_added_up_and_divided(watch: Watch, kind: str, rules: set[str]) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for _ in range(6):
        accumulated(model, optimizer, kind)
    one.close()
    found = {each.rule: each for each in in_order(runs_of(one)[0])}
    assert set(found) == rules
    if kind == "cleared":
        assert found["loop_order"].evidence.startswith("Called: 4 × (zero_grad, forward, backward), step. Right: ")
        assert "right after `optimizer.step()`" in found["loop_order"].remedies[0]


def test_a_step_that_looks_ahead_throws_nothing_away(watch: Watch) -> None:
    """As of sharpness-aware minimization that is written by hand."""
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for _ in range(6):
        model(x()).square().mean().backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(weight.grad, alpha=0.01)
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    one.close()
    assert not [each for each in in_order(runs_of(one)[0]) if each.rule == "loop_order"]


def test_a_script_that_ends_at_a_matrix_without_factors_is_told(watch: Watch) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    matrix = torch.ones(3, 3) - torch.eye(3) * 1e-6  # of three points in one place
    for _ in range(3):
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
    watcher = training_watch.current()
    assert watcher is not None
    with pytest.raises(torch.linalg.LinAlgError) as fault:
        torch.linalg.cholesky(matrix)
    watcher.close(*outcome_of(fault.value))
    found = told(one)["singular_matrix"]
    assert found.severity == "critical" and found.last_step == 2 and "cholesky" in found.evidence
    line = found.remedies[0].split("`")[1]
    assert torch.linalg.cholesky(eval(line, {"matrix": matrix, "torch": torch})).isfinite().all()


def test_a_running_mean_that_is_spoiled_is_named(watch: Watch) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(8):
        with torch.no_grad():
            model(x() * (float("inf") if step == 3 else 1.0))  # a pass that nothing is trained with
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
    found = told(one)["spoiled_buffer"]
    assert found.severity == "critical" and "model.1.running_mean holds" in found.evidence
    assert found.remedies[0].startswith("`model.1.reset_running_stats()`")
    model[1].reset_running_stats()
    assert model.eval()(x()).isfinite().all()


def test_a_mean_of_squares_at_infinity_is_named_though_all_weights_are_finite(watch: Watch) -> None:
    model = small_net()
    optimizer = Adam(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(6):
        optimizer.zero_grad()
        (model(x()).square().mean() * (1e25 if step == 3 else 1.0)).backward()
        optimizer.step()
    found = told(one)["spoiled_state"]
    assert "exp_avg_sq of 0.weight holds" in found.evidence and found.remedies[0].startswith(
        "`optimizer.state.clear()`"
    )
    before = model[2].weight.detach().clone()
    model(x()).square().mean().backward()
    optimizer.step()
    assert torch.equal(model[2].weight, before), "nothing moves"
    optimizer.state.clear()
    optimizer.step()
    assert not torch.equal(model[2].weight, before)


def test_parameters_that_no_optimizer_holds_are_noted_where_all_optimizers_are_watched(watch: Watch) -> None:
    model = small_net()
    optimizer = SGD(model[2].parameters(), lr=0.01)
    one = watch(model, optimizer)
    watcher = training_watch.current()
    assert watcher is not None
    watcher._every_optimizer = True
    for _ in range(6):
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
    found = told(one)["without_optimizer"]
    assert found.severity == "info" and found.layers == ("model.0.weight", "model.0.bias")


def test_layers_in_a_plain_list_are_noted_with_the_name_of_the_list(watch: Watch) -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.last = [nn.Linear(6, 6), nn.Linear(6, 6)], nn.Linear(6, 1)

        def forward(self, inputs: Tensor) -> Tensor:
            for block in self.blocks:
                inputs = block(inputs)
            return self.last(inputs)

    found = judged(watch, lambda _, net, step: net(x()).square().mean(), model=Listed(), steps=6)["without_optimizer"]
    assert len(found.layers) == 4 and "`self.blocks`" in found.evidence
    assert found.remedies[0].startswith("`self.blocks = nn.ModuleList")


@pytest.mark.parametrize(("lasts", "outcome"), [(1, "finished"), (30, "nonfinite")])
def test_a_loss_that_alone_is_not_finite_is_no_divergence(watch: Watch, lasts: int, outcome: str) -> None:
    """As of a batch of which every label is left out: the mean over none is NaN, and its gradient 0."""
    model = nn.Linear(6, 3)
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for step in range(40):
        labels = torch.full((16,), -100 if 5 <= step < 5 + lasts else 1)
        optimizer.zero_grad()
        F.cross_entropy(model(x()), labels).backward()
        optimizer.step()
    found = told(one)
    (run,) = runs_of(one)
    assert run.status == outcome
    if lasts == 1:
        assert found["harmless_loss"].evidence.startswith(
            "The loss of step 5 is NaN, while the norm of its gradient is 0"
        )
        assert "`ignore_index`" in found["harmless_loss"].remedies[0]


# ---- the loss, the inputs, validation, schedules


@pytest.mark.parametrize("cut", [False, True])
def test_outputs_that_collapse_under_a_loss_of_two_outputs_are_named(watch: Watch, cut: bool) -> None:
    """Two views of each example, an encoder and a predictor; mended by cutting the gradient of one side."""
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
    predictor = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8))
    clips = torch.randn(20, 16)
    optimizer = SGD([*encoder.parameters(), *predictor.parameters()], lr=0.1, momentum=0.9)
    one = watch(encoder, optimizer)

    def distance(p: Tensor, z: Tensor) -> Tensor:
        return -F.cosine_similarity(p, z.detach() if cut else z, dim=-1).mean()

    for _ in range(100):
        optimizer.zero_grad()
        of = clips[torch.randint(0, 20, (32,))]
        first, second = (encoder(of + 0.5 * torch.randn(32, 16)) for _ in range(2))
        (distance(predictor(first), second) + distance(predictor(second), first)).backward()
        optimizer.step()
    spread = F.normalize(first, dim=1).std(0).mean() * 8**0.5
    found = told(one)
    assert (spread > 0.3) == cut and ("outputs_alike" in found) is not cut, (spread, found)
    assert cut or "at test_training_checks.py:" in found["outputs_alike"].evidence


def judged(
    watch: Watch, step_of: Callable[[Any, nn.Module, int], Tensor], *, steps: int = 240, **named: Any
) -> dict[str, Finding]:
    """What is found of a run in which `step_of` gives the loss, and every optimizer is watched."""
    model = named.get("model") or small_net()
    optimizer = Adam(model.parameters(), lr=named.get("lr", 0.01))
    schedule = named["schedule"](optimizer) if "schedule" in named else None
    one = watch(model, optimizer)
    watcher = training_watch.current()
    assert watcher is not None
    watcher._every_optimizer = True
    for step in range(steps):
        optimizer.zero_grad()
        step_of(schedule, model, step).backward()
        optimizer.step()
        if schedule is not None and (named.get("each", 1) == 1 or step % named["each"] == 0):
            schedule.step()
    return told(one)


def of_classes(model: nn.Module, *, random: bool, count: int = 4) -> Tensor:
    inputs = x()
    labels = torch.randint(count, (16,)) if random else inputs[:, :count].argmax(1)
    return F.cross_entropy(model(inputs), labels)


@TOLD
def test_a_loss_that_rests_at_chance_is_named(watch: Watch) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    found = judged(watch, lambda _, net, step: of_classes(net, random=True), model=model, lr=1e-6)["loss_at_rest"]
    assert "within 1% of ln 4 = 1.39 at each of 10 looks in the steps" in found.evidence and not found.remedies


@TOLD
@pytest.mark.parametrize("kind", ["mse", "two", "classes"])
def test_a_loss_that_rests_where_a_constant_prediction_leaves_it_is_named(watch: Watch, kind: str) -> None:
    """The model is cut off from its inputs; its bias alone learns."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3 if kind == "classes" else 1))

    def loss_of(_: Any, net: nn.Module, step: int) -> Tensor:
        inputs = torch.randn(256, 6)
        out = net(inputs * 0)
        if kind == "mse":
            return F.mse_loss(out, 1 + inputs[:, :1])
        if kind == "two":
            return F.binary_cross_entropy_with_logits(out, (inputs[:, :1] > 0.8).float())
        return F.cross_entropy(out, (inputs[:, 0] > 0).long() + (inputs[:, 0] > 1).long())

    found = judged(watch, loss_of, model=model, lr=0.02, steps=300)["loss_at_rest"]
    assert "that of a constant prediction" in found.evidence
    healthy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    assert not judged(watch, lambda _, net, step: of_classes(net, random=False), model=healthy)


@pytest.mark.parametrize(("scale", "norm", "report_line"), [
    (1000.0, None, True), (1.0, None, False), (1000.0, nn.BatchNorm1d(6), False), (1000.0, nn.LayerNorm(6), False),
    (1000.0, nn.Tanh(), False),
])  # fmt: skip
def test_inputs_that_nobody_has_scaled_are_noted(
    watch: Watch, scale: float, norm: nn.Module | None, report_line: bool
) -> None:
    model = nn.Sequential(*([norm] if norm else []), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    found = judged(watch, lambda _, net, step: net(x() * scale).square().mean(), model=model, steps=3)
    assert set(found) == ({"large_inputs"} if report_line else set())
    if report_line:
        assert (
            found["large_inputs"].severity == "info"
            and "A layer takes input 0 of the model as it is" in found["large_inputs"].evidence
        )


def test_large_inputs_are_noted_of_an_optimizer_whose_model_is_found_later(watch: Watch) -> None:
    other = small_net()  # as `gradstudio watch` hears of every optimizer, and has to find its model
    watch(other, SGD(other.parameters(), lr=0.1))
    watcher = training_watch.current()
    assert watcher is not None
    watcher.observers._every_optimizer = True
    model = small_net(1)
    optimizer = SGD(model.parameters(), lr=1e-9)
    for _ in range(30):
        optimizer.zero_grad()
        model(x() * 1000).square().mean().backward()
        optimizer.step()
    watcher.close()
    (watched_run,) = [each for each in watcher.runs if each.observer.optimizer is optimizer]
    assert watched_run.run is not None and "large_inputs" in watched_run.run.findings


def test_identities_and_inputs_that_the_model_scales_are_no_large_inputs(watch: Watch) -> None:
    class Scaling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.known, self.last = nn.Embedding(1000, 4), nn.Linear(10, 1)

        def forward(self, ids: Tensor, pixels: Tensor) -> Tensor:
            return self.last(torch.cat([self.known(ids), pixels / 255], 1))

    def loss_of(_: Any, net: nn.Module, step: int) -> Tensor:
        return net(torch.randint(1000, (16,)), torch.rand(16, 6) * 255).square().mean()

    assert not judged(watch, loss_of, model=Scaling(), steps=3)


@pytest.mark.parametrize(
    ("kind", "report_line"), [("mended", False), ("leaks", True), ("each step", False), ("at the end", False)]
)
def test_a_validation_in_training_mode_that_changes_batch_norms_is_named(
    watch: Watch, kind: str, report_line: bool
) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def loss_of(_: Any, net: nn.Module, step: int) -> Tensor:
        if (
            (step % 20 == 10 and kind in ("mended", "leaks"))
            or kind == "each step"
            or (kind == "at the end" and step == 59)
        ):
            net.train(kind != "mended")
            with torch.no_grad():
                net(x() + 9)
            net.train()
        return net(x()).square().mean()

    found = judged(watch, loss_of, model=model, steps=60)
    assert set(found) == ({"statistics_of_validation"} if report_line else set())
    if report_line:
        fault = found["statistics_of_validation"]
        assert "3 passes without gradient, before 3 of 60 steps" in fault.evidence
        assert fault.remedies[0].startswith("`model.eval()` before")


SCHEDULES = torch.optim.lr_scheduler


@pytest.mark.parametrize(("schedule", "each", "said"), [
    (lambda optimizer: SCHEDULES.CosineAnnealingLR(optimizer, 10), 1, "T_max=10: the rate went down and up again, 23 times"),
    (lambda optimizer: SCHEDULES.CosineAnnealingLR(optimizer, 240), 1, ""),
    (lambda optimizer: SCHEDULES.CosineAnnealingWarmRestarts(optimizer, 10), 1, ""),
    (lambda optimizer: SCHEDULES.StepLR(optimizer, 10, 0.1), 1, "the rate was"),
    (lambda optimizer: SCHEDULES.StepLR(optimizer, 80, 0.1), 1, ""),
    (lambda optimizer: SCHEDULES.ExponentialLR(optimizer, 0.98), 1, ""),
    (lambda optimizer: SCHEDULES.LinearLR(optimizer, 0.01, total_iters=100), 60, "its warmup has come to"),
    (lambda optimizer: SCHEDULES.LinearLR(optimizer, 0.01, total_iters=100), 1, ""),
    (lambda optimizer: SCHEDULES.LinearLR(optimizer, 0.01, total_iters=5), 60, ""),
    (lambda optimizer: SCHEDULES.LambdaLR(optimizer, lambda step: min(1.0, step / 2000)), 40, "its warmup has come to"),
    (lambda optimizer: SCHEDULES.LambdaLR(optimizer, lambda step: step // 300), 1, "the rate was 0 of"),
    (lambda optimizer: SCHEDULES.OneCycleLR(optimizer, 0.01, total_steps=240), 1, ""),
])  # fmt: skip
def test_a_schedule_on_another_beat_is_named(watch: Watch, schedule: Any, each: int, said: str) -> None:
    found = judged(watch, lambda _, net, step: net(x()).square().mean(), schedule=schedule, each=each, steps=240)
    assert ("schedule_off_beat" in found) is bool(said)
    assert not said or said in found["schedule_off_beat"].evidence


def test_a_plateau_that_waits_for_less_of_what_rises_is_named(watch: Watch) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    schedule = SCHEDULES.ReduceLROnPlateau(optimizer, patience=1)
    for step in range(120):
        optimizer.zero_grad()
        model(x()).square().mean().backward()
        optimizer.step()
        if step % 10 == 9:
            schedule.step(0.5 + step / 1000)
    assert 'mode="max"' in told(one)["schedule_off_beat"].remedies[0]


@pytest.mark.parametrize(("by", "rules"), [(2, {"loop_order"}), (1, set())])
def test_gradients_cleared_between_two_micro_batches_are_named_where_each_is_a_half(
    watch: Watch, by: int, rules: set[str]
) -> None:
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    for _ in range(6):
        for _ in range(2):
            optimizer.zero_grad()
            (model(x()).square().mean() / by).backward()
        optimizer.step()
    one.close()
    assert {each.rule for each in in_order(runs_of(one)[0])} == rules
