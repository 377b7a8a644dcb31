"""Parameters that no single module has: of several models, beside a model, of no model at all; and models of which it is
seen only in use which module is called as the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from watching.conftest import gradient_norm, near
from watching.test_births import Odd, root

from gradstudio.core.provenance import Provenance
from gradstudio.watching import training_watch
from gradstudio.watching.births.step_births import Births
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.recording.watched_run import WatchedRun
from gradstudio.watching.script.model_layers import models_of
from gradstudio.watching.watcher import Watcher

BROKEN = 2  # the step at which a value is planted


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    torch.manual_seed(0)
    watcher = training_watch.begin(tmp_path / "runs.db", Script(None), True)
    yield watcher
    watcher.close("finished", "")


def trained(watcher: Watcher, parameters: Any, loss_of: Callable[[int], Tensor], steps: int = 4) -> WatchedRun:
    """Train with one optimizer, and return the run."""
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(step).backward()
        optimizer.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    return found


def born(found: WatchedRun) -> Provenance:
    assert found.provenance is not None, found.unknown
    assert found.provenance.step == BROKEN
    return found.provenance


# Odd has 4 inputs and 2 outputs; the operation lies between its layers.
def first_and_second(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> tuple[Odd, Odd]:
    encoder, decoder = Odd(first), Odd(second)
    encoder.last = nn.Linear(4, 4)
    return encoder, decoder


def unchanged(hidden: Tensor) -> Tensor:
    return hidden


def not_a_number(hidden: Tensor) -> Tensor:
    return (hidden - hidden) / (hidden - hidden)


class At:
    """An operation that does its mischief at one step alone."""

    def __init__(self, mischief: Callable[[Tensor], Tensor]) -> None:
        self.mischief, self.step = mischief, 0

    def __call__(self, hidden: Tensor) -> Tensor:
        return self.mischief(hidden) if self.step == BROKEN else hidden


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema", "torch._C._current_autograd_node")
@pytest.mark.parametrize("place", ["encoder", "between", "decoder", "loss"])
@pytest.mark.parametrize("mischief", [not_a_number, root], ids=["forward", "backward"])
def test_a_value_of_an_encoder_and_a_decoder_is_found_where_it_was_born(
    watcher: Watcher, place: str, mischief: Callable[[Tensor], Tensor]
) -> None:
    at = At(mischief)
    encoder, decoder = first_and_second(
        at if place == "encoder" else unchanged, at if place == "decoder" else unchanged
    )

    def loss_of(step: int) -> Tensor:
        at.step = step
        code = encoder(torch.randn(3, 4))
        code = at(code) if place == "between" else code
        given = decoder(code)
        return (at(given) if place == "loss" else given).square().sum()

    found = born(trained(watcher, [*encoder.parameters(), *decoder.parameters()], loss_of))
    in_script = place in ("between", "loss")
    assert found.module == ("" if in_script else place)
    if mischief is root:
        assert found.phase == "backward" and "sqrt" in (found.chain[0].of or found.operation).lower()
    else:
        assert found.phase == ("loss" if in_script else "forward") and "div" in found.operation.lower()
    if in_script and mischief is root:  # one of several lines with a root
        assert found.operation == "SqrtBackward0" and not found.source
    else:
        assert "test_several_models.py:" in found.source or "test_births.py:" in found.source


def test_the_layers_of_several_models_are_named_after_them(watcher: Watcher) -> None:
    net, head = nn.Linear(4, 4), nn.Linear(4, 2)
    norms = []

    def loss_of(step: int) -> Tensor:
        return head(net(torch.ones(3, 4))).square().sum()

    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(step).backward()
        norms.append((gradient_norm(net) ** 2 + gradient_norm(head) ** 2) ** 0.5)
        optimizer.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and found.run.watched is not None
    assert [layer.name for layer in found.run.history.layers] == ["net.weight", "net.bias", "head.weight", "head.bias"]
    assert found.run.history.column("grad_norm").tolist() == near(norms)
    assert found.run.preset.title == "Watched training: Linear net, Linear head"
    facts = dict(found.run.watched.facts)
    assert facts["model"].startswith("Linear and Linear, ") and "model variable" not in facts


def test_models_without_a_name_of_their_own_are_numbered(watcher: Watcher) -> None:
    parts = nn.ModuleDict({"one": nn.Linear(4, 4), "other": nn.Linear(4, 2)})  # which computes nothing itself

    def loss_of(step: int) -> Tensor:
        hidden = parts["one"](torch.randn(3, 4))
        return parts["other"](hidden).rsqrt().sum() if step == BROKEN else parts["other"](hidden).sum()

    found = trained(watcher, parts.parameters(), loss_of)
    assert born(found).operation == "RsqrtBackward0" and found.run is not None
    names = [layer.name for layer in found.run.history.layers]
    assert names == ["Linear.weight", "Linear.bias", "Linear_2.weight", "Linear_2.bias"]


def test_a_parameter_beside_the_model_is_trained_with_it(watcher: Watcher) -> None:
    net, temperature = nn.Linear(4, 4), nn.Parameter(torch.tensor(1.0))

    def loss_of(step: int) -> Tensor:
        scale = temperature + 100 if step == BROKEN else temperature
        return functional.cross_entropy(scale.exp() * net(torch.ones(3, 4)), torch.tensor([0, 1, 2]))

    found = trained(watcher, [*net.parameters(), temperature], loss_of)
    assert (born(found).phase, born(found).operation) == ("loss", "ExpBackward0") and found.run is not None
    assert [layer.name for layer in found.run.history.layers][:2] == ["weight", "bias"]
    assert "model variable" not in dict(found.run.watched.facts if found.run.watched else ())


def test_tensors_of_no_model_are_explained_by_the_graph(watcher: Watcher) -> None:
    weight, bias = torch.zeros(4, requires_grad=True), torch.zeros((), requires_grad=True)

    def loss_of(step: int) -> Tensor:
        sure = torch.sigmoid(torch.ones(3, 4) @ weight + bias - (1000 if step == BROKEN else 0))
        return -sure.log().sum()

    found = born(trained(watcher, [weight, bias], loss_of))
    assert (found.phase, found.operation) == ("loss", "LogBackward0") and "the logarithm of 0" in found.cause


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_a_nan_is_followed_back_through_all_passes_that_took_it() -> None:
    step = Odd(unchanged)
    step.last = nn.Linear(4, 4)
    births, state = Births(step), torch.ones(1, 4)
    for number in range(1500):  # more than Python has calls within calls
        step.operation = not_a_number if number == 3 else unchanged
        state = step(state)
    step.operation = not_a_number  # as it was in that pass
    found = births.before_backward([state.sum()])
    assert found is not None and (found.phase, found.operation) == ("forward", "aten.div.Tensor"), births.unknown


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_what_the_first_of_two_models_was_given_is_said_of_that_one(watcher: Watcher, value: float) -> None:
    net, head = nn.Linear(4, 4), nn.Linear(4, 2)

    def loss_of(step: int) -> Tensor:
        return head(torch.relu(net(torch.full((3, 4), value if step == BROKEN else 1.0)))).sum()

    found = born(trained(watcher, [*net.parameters(), *head.parameters()], loss_of))
    assert found.operation == "input" and found.cause.startswith("input 0 of net holds 12 ")


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_a_batch_that_went_through_two_models_is_skipped_once(watcher: Watcher) -> None:
    net, head = nn.Linear(4, 4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-3)
    for step in range(6):
        loss = head(torch.relu(net(torch.full((3, 4), float("nan") if step in (2, 4) else 1.0)))).sum()
        if torch.isfinite(loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and [each.step for each in found.run.events if each.kind == "nan_batch"] == [2, 3]
    (first, _) = (each.text for each in found.run.events if each.kind == "nan_batch")
    assert "input 0 of net holds 12 NaN" in first


# ---- several optimizers


def losses_that_do_not_fall(watcher: Watcher, *, apart: bool) -> list[set[str]]:
    """Train two models of which one is given what the other makes, and return what is found in each run. `apart`: the
    gradients that one has left for the other are thrown away, as in a GAN."""
    maker, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    of_maker, of_judge = (torch.optim.SGD(each.parameters(), lr=1e-6) for each in (maker, judge))
    for _ in range(160):
        if apart:
            of_judge.zero_grad()
            judge(maker(torch.randn(4, 2)).detach()).square().sum().backward()
            of_judge.step()
        of_maker.zero_grad()
        judge(maker(torch.randn(4, 2))).square().sum().backward()
        of_maker.step()
        if not apart:
            of_judge.step()
            of_judge.zero_grad()
    watcher.close("finished", "")
    return [set(found.run.findings) for found in watcher.runs if found.run is not None]


def test_the_losses_of_a_gan_need_not_fall(watcher: Watcher) -> None:
    both = losses_that_do_not_fall(watcher, apart=True)
    assert len(both) == 2 and all("loss_not_decreasing" not in found for found in both)
    events = [event.text for found in watcher.runs if found.run is not None for event in found.run.events]
    assert len([text for text in events if "need not fall" in text]) == 2


def test_a_line_names_the_run_that_it_is_of_where_there_are_several(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    maker, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    of_maker, of_judge = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (maker, judge))
    for step in range(2):
        for optimizer, loss in ((of_maker, maker(torch.randn(4, 2))), (of_judge, judge(torch.randn(4, 2)))):
            optimizer.zero_grad()
            loss.square().sum().add(math.nan if step else 0.0).backward()
            optimizer.step()
    said = [line for line in capsys.readouterr().err.splitlines() if "is not finite" in line]
    titles = [found.run.title for found in watcher.runs if found.run is not None]
    assert len(said) == len(set(titles)) == 2
    for line, title in zip(said, titles, strict=True):
        assert line.startswith(f"gradstudio: {title}: step 1 is not finite: loss NaN")


def test_the_loss_of_a_head_is_to_fall_though_the_gradients_below_it_are_thrown_away(watcher: Watcher) -> None:
    body, head = nn.Linear(2, 2), nn.Linear(2, 1)
    of_body, of_head = (torch.optim.SGD(each.parameters(), lr=1e-6) for each in (body, head))
    for _ in range(160):  # the body is not trained yet
        of_body.zero_grad()
        of_head.zero_grad()
        head(body(torch.randn(4, 2))).square().sum().backward()
        of_head.step()
    watcher.close("finished", "")
    (found,) = watcher.runs
    assert found.run is not None and "loss_not_decreasing" in found.run.findings


def test_two_optimizers_that_share_a_loss_are_to_bring_it_down(watcher: Watcher) -> None:
    both = losses_that_do_not_fall(watcher, apart=False)
    assert len(both) == 2 and all("loss_not_decreasing" in found for found in both)


# ---- which module is called


class Around(nn.Module):
    """Has no weights beside those of the model within."""

    def __init__(self, inner: nn.Module, operation: Callable[[Tensor], Tensor] = unchanged) -> None:
        super().__init__()
        self.inner, self.operation = inner, operation

    def forward(self, inputs: Tensor) -> Tensor:
        return self.operation(self.inner(inputs))


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
@pytest.mark.parametrize("mischief", [not_a_number, root], ids=["forward", "backward"])
def test_what_a_module_does_around_its_only_part_is_of_the_model(
    watcher: Watcher, mischief: Callable[[Tensor], Tensor]
) -> None:
    at = At(mischief)
    model = Around(nn.Linear(4, 2), at)

    def loss_of(step: int) -> Tensor:
        at.step = step
        return model(torch.randn(3, 4)).square().sum()

    found = trained(watcher, model.parameters(), loss_of)
    assert born(found).phase == ("forward" if mischief is not_a_number else "backward")
    assert born(found).chain[0].name.startswith("aten.") and found.run is not None
    assert [layer.name for layer in found.run.history.layers] == ["inner.weight", "inner.bias"]
    assert found.run.preset.title == "Watched training: Around model"


def test_only_the_module_that_is_called_is_heard_from_then_on() -> None:
    inner = nn.Linear(4, 2)
    middle = Around(inner)
    outer = Around(middle)
    births = Births([inner, middle, outer])
    assert [len(each._forward_hooks) for each in (inner, middle, outer)] == [1, 1, 1]
    with torch.no_grad():
        inner(torch.ones(1, 4))  # an evaluation
    middle(torch.ones(1, 4)).sum().backward()
    assert [len(each._forward_hooks) for each in (inner, middle, outer)] == [0, 1, 0]
    assert births.passes.models == [middle]
    births.remove()
    assert not middle._forward_hooks


@pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")
def test_a_module_that_calls_itself_is_made_again_as_a_whole() -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.node = nn.Linear(4, 4)

        def forward(self, inputs: Tensor, depth: int = 0) -> Tensor:
            hidden = self.node(inputs)
            return self(hidden, depth + 1) if depth < 2 else not_a_number(hidden)

    model = Tree()
    births = Births(model)
    found = births.before_backward([model(torch.randn(3, 4)).sum()])
    assert found is not None and found.operation == "aten.div.Tensor"


def test_what_is_compiled_within_another_module_is_not_heard() -> None:
    inner = nn.Linear(4, 2)
    compiled = torch.compile(inner, backend="eager")
    around = Around(compiled)  # pyright: ignore[reportArgumentType]
    assert models_of(list(inner.parameters())) == [[compiled, around]]
