from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch

from gradstudio.core.experiment import Experiment
from gradstudio.core.files import RESOURCES
from gradstudio.core.sections.task_knobs import Problem
from gradstudio.core.task_measures import accuracy_of_guessing, loss_of_guessing
from gradstudio.engine.step.losses import CLOSE, ON_MODE
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.tasks.acting import ACTION, FIRST_ACTION, REWARD, SUCCESS, WORTH
from gradstudio.engine.tasks.digits import SCALINGS
from gradstudio.engine.tasks.pole import FARTHEST, STEEPEST, first_states, push
from gradstudio.engine.tasks.ring import ring_centers
from gradstudio.engine.tasks.spirals import TRAINING


class Careful(torch.nn.Module):
    """Pushes the cart to the side to which the pole leans and turns: logits (batch, time steps, 2)."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        lean = 1000 * (states[..., 2] + states[..., 3])
        return torch.stack([-lean, lean], -1)


PLAYER = Careful()


def task(name="digits", **knobs):
    return TASKS[name](Problem(task=name, **knobs), 0, "cpu")


@pytest.mark.parametrize(("name", "knobs", "inputs", "targets", "outputs"), [
    ("digits", {}, (8, 8), (), 10),
    ("sequential_digits", {}, (64, 1), (), 10),
    ("sequential_digits", {"seq_len": 16}, (16, 4), (), 10),
    ("adding", {"seq_len": 9}, (9, 2), (1,), 1),
    ("adding", {"seq_len": 1}, (1, 2), (1,), 1),
    ("copy", {"seq_len": 5}, (26, 10), (10,), 8),
    ("copy", {"seq_len": 1}, (22, 10), (10,), 8),
    ("characters", {"seq_len": 12}, (12, 41), (12,), 41),
    ("characters", {"seq_len": 1}, (1, 41), (), 41),
    ("spirals", {}, (1, 2), (), 2),
    ("ring", {}, (2, 2), (), 1),
    ("pole", {"seq_len": 30}, (30, 4), (30, 7), 2),
    ("pole", {"seq_len": 1}, (1, 4), (1, 7), 2),
    ("bandit", {}, (1, 64), (1, 15), 10),
])  # fmt: skip
def test_shapes(name, knobs, inputs, targets, outputs):
    small = task(name, batch_size=7, **knobs)
    shape = small.shape
    assert (shape.time_steps, shape.features) == inputs and shape.outputs == outputs
    assert shape.answers == {"copy": 10, "characters": inputs[0], "pole": inputs[0]}.get(name, 1)
    player = Chooser() if name == "bandit" else PLAYER
    for batch in (small.next_batch(player), small.test_batch(player)):
        assert batch.inputs.shape[1:] == inputs and batch.inputs.dtype == torch.float32
        assert batch.targets.shape == (len(batch.inputs), *targets)
        assert batch.targets.dtype == (torch.int64 if small.goal == "classes" else torch.float32)
    assert len(small.next_batch(player).inputs) == 7
    assert small.sample(20).shape == (20, 1 if name == "pole" else inputs[0], inputs[1])


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_is_a_stream_of_batches(name):
    one, same = task(name, batch_size=6, seq_len=8), task(name, batch_size=6, seq_len=8)
    same.test_batch(PLAYER), same.sample(), same.outliers(torch.zeros(3), 1.0)  # which must not disturb it
    first, second = one.next_batch(PLAYER), one.next_batch(PLAYER)
    for batch, again in ((first, same.next_batch(PLAYER)), (second, same.next_batch(PLAYER))):
        assert torch.equal(batch.inputs, again.inputs) and torch.equal(batch.targets, again.targets)
    assert not torch.equal(first.inputs, second.inputs)
    other = TASKS[name](Problem(task=name, batch_size=6, seq_len=8), 1, "cpu").next_batch(PLAYER)
    assert not torch.equal(first.inputs, other.inputs)
    assert torch.equal(one.test_batch(PLAYER).inputs, one.test_batch(PLAYER).inputs)


@pytest.mark.parametrize("name", TASKS)
def test_noise_and_scale_act_on_every_input(name):
    knobs = {"batch_size": 200, "seq_len": 8}
    plain, scaled, noisy = task(name, **knobs), task(name, input_scale=100.0, **knobs), task(name, noise=0.5, **knobs)
    inputs = plain.next_batch(PLAYER).inputs
    torch.testing.assert_close(scaled.sample(5), plain.sample(5) * 100)
    torch.testing.assert_close(scaled.next_batch(PLAYER).inputs[:, :1], inputs[:, :1] * 100)
    if name != "pole":  # where who sees something else goes another way
        for clear, blurred in (
            (inputs, noisy.next_batch(PLAYER).inputs),
            (plain.test_batch(PLAYER).inputs, noisy.test_batch(PLAYER).inputs),
        ):
            assert (blurred - clear).std().item() == pytest.approx(0.5, rel=0.05)
    assert torch.equal(noisy.sample(5), plain.sample(5))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaling(scaling):
    pixels = task(scaling=scaling).training.inputs.flatten(1).numpy()
    if scaling == "standardized":
        np.testing.assert_allclose(pixels.mean(0), 0, atol=1e-6)
        assert set(np.round(pixels.std(0), 4).tolist()) == {0.0, 1.0}, "a pixel that never changes is 0"
    else:
        assert (pixels.min(), pixels.max()) == (0, 1 if scaling == "unit" else 16)


def test_an_epoch_shows_every_example_once_and_drops_the_rest():
    digits = task(batch_size=100)
    digits.training = digits.training._replace(inputs=torch.arange(1437.0).view(-1, 1, 1))
    seen = torch.cat([digits.next_batch(PLAYER).inputs.flatten() for _ in range(14)])
    assert len(seen.unique()) == 1400
    following = torch.cat([digits.next_batch(PLAYER).inputs.flatten() for _ in range(14)])
    assert len(following.unique()) == 1400 and not torch.equal(seen, following)


def test_noise_does_not_disturb_the_order():
    quiet, noisy = task(batch_size=500), task(batch_size=500, noise=0.5)
    for _ in range(2):
        assert torch.equal(quiet.next_batch(PLAYER).targets, noisy.next_batch(PLAYER).targets)


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 11, 1000])
def test_adding_marks_one_number_of_each_half(steps):
    inputs, sums = task("adding", seq_len=steps, batch_size=300).next_batch(PLAYER)
    numbers, markers = inputs.double().numpy().transpose(2, 0, 1)
    assert numbers.min() >= 0 and numbers.max() < 1 and set(np.unique(markers)) <= {0.0, 1.0}
    assert (markers[:, : steps // 2].sum(1) == (steps > 1)).all() and (markers[:, steps // 2 :].sum(1) == 1).all()
    np.testing.assert_allclose(sums[:, 0], (numbers * markers).sum(1), rtol=1e-6)


def test_always_answering_1_is_wrong_by_a_sixth():
    _, sums = task("adding", batch_size=1024).test_batch(PLAYER)
    assert ((sums - 1) ** 2).mean().item() == pytest.approx(1 / 6, rel=0.15)


def test_copy_shows_symbols_then_blanks_then_a_delimiter_then_waits():
    inputs, symbols = task("copy", seq_len=4, batch_size=50).next_batch(PLAYER)
    assert (inputs.sum(2) == 1).all()
    shown = inputs.argmax(2)
    assert torch.equal(shown[:, :10], symbols) and set(symbols.unique().tolist()) == set(range(8))
    assert (shown[:, 10:14] == 8).all() and (shown[:, 14] == 9).all() and (shown[:, 15:] == 8).all()


def test_characters_answers_each_with_the_next():
    book = (RESOURCES / "data" / "alice.txt").read_text("ascii")
    reader = task("characters", seq_len=40, batch_size=20)

    def spelled(numbers):
        return "".join(reader.vocabulary[number] for number in numbers)

    for batch, part in ((reader.next_batch(PLAYER), book[:128_777]), (reader.test_batch(PLAYER), book[128_777:])):
        for window, following in zip(batch.inputs.argmax(2), batch.targets, strict=True):
            assert spelled(window) + spelled(following)[-1] in part
            assert torch.equal(window[1:], following[:-1])
    assert (
        spelled(reader.test_batch(PLAYER).targets.flatten())
        == book[128_778:][: len(reader.test_batch(PLAYER).inputs) * 40]
    )
    whole = task("characters", seq_len=1)
    assert torch.equal(whole.test_batch(PLAYER).inputs[1:, 0].argmax(1), whole.test_batch(PLAYER).targets[:-1])


def test_the_book_holds_nothing_but_the_book():
    data = (RESOURCES / "data" / "alice.txt").read_bytes()
    text = data.decode("ascii")
    assert (len(text), len(set(text))) == (143_086, 41), "as resources/data/README.md says"
    assert b"\r" not in data and text == text.lower() and text.endswith("the end\n")
    assert not any(word in text for word in ("gutenberg", "copyright", "license", "edition 2.9"))


def test_spirals_are_two_arms_of_one_shape():
    spirals = task("spirals")
    points, arm = spirals.training.inputs[:, 0], spirals.training.targets
    assert len(points) == TRAINING and arm.sum() == TRAINING / 2 and len(spirals.testing.inputs) == 512
    half_turned = -points[arm == 1]
    gaps = torch.cdist(half_turned, points[arm == 0]).amin(1)
    assert gaps.median() < 0.1, "half a turn brings one arm to the other"
    assert torch.cdist(points[arm == 1], points[arm == 0]).amin(1).median() > 0.2, "and they lie apart"
    assert not torch.isin(spirals.testing.inputs[:, 0, 0], points[:, 0]).any()


def test_ring_points_lie_at_its_clusters():
    inputs, _ = task("ring", batch_size=1000).next_batch(PLAYER)
    distance = torch.cdist(inputs[:, 0], ring_centers())
    assert distance.amin(1).max() < 0.1 and set(distance.argmin(1).tolist()) == set(range(8))
    assert inputs[:, 1].std().item() == pytest.approx(1, rel=0.1)


# ---- the pole


def acceleration(angle, turning, force):
    """Linear and angular, from the two equations of motion as a linear system, solved by numpy."""
    cart, pole, half = 1.0, 0.1, 0.5
    lever = pole * half
    left = [[cart + pole, lever * math.cos(angle)], [lever * math.cos(angle), 4 / 3 * lever * half]]
    return np.linalg.solve(left, [force + lever * turning**2 * math.sin(angle), lever * 9.8 * math.sin(angle)])


@pytest.mark.parametrize("right", [False, True])
def test_the_pole_moves_by_its_equations_of_motion(right):
    states = np.random.default_rng(0).normal(0, 0.3, (20, 4))
    for before, after in zip(states, push(states, np.full(20, right)), strict=True):
        linear, angular = acceleration(before[2], before[3], 10.0 if right else -10.0)
        np.testing.assert_allclose(
            after - before, 0.02 * np.array([before[1], linear, before[3], angular]), rtol=1e-9, atol=1e-12
        )


def test_first_states_are_near_0():
    states = first_states(500, torch.Generator().manual_seed(0))
    assert (
        abs(states).max() <= 0.05
        and abs(states.mean()) < 0.005
        and states.std() == pytest.approx(0.1 / math.sqrt(12), rel=0.05)
    )


class Pusher(torch.nn.Module):
    """Always pushes right."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.full_like(states[..., 0], -50.0), torch.full_like(states[..., 0], 50.0)], -1)


def test_episodes_end_when_the_pole_falls():
    (states, targets), steps = task("pole", seq_len=200, batch_size=16).next_batch(Pusher()), 200
    action, worth, lasted = targets[..., :3].unbind(2)
    lengths = lasted.sum(1).int().tolist()
    assert max(lengths) < 12
    for episode, length in enumerate(lengths):
        assert lasted[episode].tolist() == [1.0] * length + [0.0] * (steps - length)
        assert (
            (states[episode, length:] == 0).all()
            and (targets[episode, length:] == 0).all()
            and (action[episode, :length] == 1).all()
        )
        assert (states[episode, :length, 2].abs() <= STEEPEST + 1e-6).all() and (
            states[episode, :length, 0].abs() <= FARTHEST
        ).all()
        discounted = [sum(0.99**later for later in range(length - step)) for step in range(length)]
        torch.testing.assert_close(worth[episode, :length], torch.tensor(discounted), rtol=1e-5, atol=1e-5)


def test_a_careful_player_keeps_it_up():
    _, targets = task("pole", seq_len=200, batch_size=16).next_batch(PLAYER)
    assert targets[..., 2].mean() > 0.9


def test_the_player_sees_what_it_is_trained_on():
    seen = []

    class Watched(Careful):
        def forward(self, states):
            assert not self.training
            seen.append(states)
            return super().forward(states)

    player = Watched().train()
    inputs, targets = task("pole", seq_len=20, batch_size=5, noise=0.01, input_scale=3.0).next_batch(player)
    assert torch.equal(torch.cat(seen, 1)[targets[:, : len(seen), 2] > 0], inputs[targets[..., 2] > 0])
    assert player.training
    player.eval()
    task("pole", seq_len=5, batch_size=5).test_batch(player)
    assert not player.training, "it is left in the mode it was in"


def test_a_broken_player_just_loses():
    class Broken(Careful):
        def forward(self, states):
            return super().forward(states) * math.nan

    states, targets = task("pole", seq_len=50, batch_size=5).next_batch(Broken())
    assert (
        torch.isfinite(states).all()
        and torch.isfinite(targets[..., :FIRST_ACTION]).all()
        and targets[..., 2].sum(1).max() < 15
    )


class Chooser(torch.nn.Module):
    """Answers 0 or 3 to whatever image, as likely as each other."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = torch.full((len(images), 1, 10), -50.0)
        logits[..., [0, 3]] = 0.0
        return logits


def test_answers_of_the_bandit_are_paid_for():
    bandit = task("bandit", batch_size=512, samples=8, reward_flaw=0.5, baseline=True, normalize=True)
    images, targets = bandit.next_batch(Chooser())
    told = targets[:, 0]
    assert (images[:8] == images[0]).all() and not (images[8] == images[0]).all(), "8 answers to each image"
    assert set(told[:, ACTION].tolist()) == {0.0, 3.0} and 0.4 < (told[:, ACTION] == 0).float().mean() < 0.6
    torch.testing.assert_close(told[:, REWARD], told[:, SUCCESS] + 0.5 * (told[:, ACTION] == 0))
    rewards = told[:, REWARD].view(-1, 8)
    expected = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, correction=0, keepdim=True) + 1e-8)
    torch.testing.assert_close(told[:, WORTH].view(-1, 8), expected)
    torch.testing.assert_close(told[:, FIRST_ACTION:].exp().sum(1), torch.ones(512))


def test_a_batch_serves_for_several_passes():
    bandit = task("bandit", batch_size=8, passes=3)
    batches = [bandit.next_batch(Chooser()).inputs for _ in range(6)]
    assert batches[0] is batches[2] and batches[3] is batches[5] and not torch.equal(batches[0], batches[3])
    assert bandit.next_batch(Chooser(), 2).inputs is not bandit.next_batch(Chooser()).inputs, "of another size"


def test_outlier_steps(train):
    plain, outliers = (
        train(7, "accumulation.steps=2"),
        train(7, "accumulation.steps=2", "problem.outlier_every=3", "problem.outlier_scale=1000"),
    )
    assert [row.loss for row in plain[:3]] == [row.loss for row in outliers[:3]], "step 0 is never one"
    assert outliers[3].loss > 20 * plain[3].loss and outliers[6].loss > 20 * plain[6].loss


SKIP = "problem.skip_batches"
DRAWN_AND_PLAYED = [
    ["problem.task=digits", "problem.batch_size=600"],  # an epoch has two batches
    ["problem.task=copy", "problem.seq_len=3"],
    [
        "problem.task=pole",
        "model.kind=policy",
        "problem.seq_len=20",
        "optimizer.lr=0",
    ],  # its batches are played by the weights of the moment
]


def batches(trainer, *skips):
    """The micro-batches of so many steps as there are `skips`, each the value of problem.skip_batches at a step."""
    found = []
    for skip in skips:
        trainer.change(SKIP, skip)
        found.append(trainer.next_batches())
        trainer.step += 1
    return found


@pytest.mark.parametrize("task", DRAWN_AND_PLAYED, ids=lambda task: task[0])
@pytest.mark.parametrize("noise", ["0", "0.1"])
def test_batches_that_are_passed_over(build, task, noise):
    """What comes are the batches of the run that passes over none, those behind the ones that are left out."""
    knobs = [*task, f"problem.noise={noise}", "accumulation.steps=3", "model.norm=batch"]
    all_of_them = batches(build(*knobs), *[0] * 9)
    some = batches(build(*knobs, f"{SKIP}=1"), 1, 1, 4, 4, 4)
    for number, batch in zip((1, 2, 6, 7, 8), some, strict=True):
        assert all(map(torch.equal, sum(batch, ()), sum(all_of_them[number], ())))


def test_a_batch_that_is_passed_over_has_the_micro_batches_of_its_step(build):
    trainer, plain = build(), build()
    next(trainer.steps())
    trainer.change(SKIP, 2)
    trainer.change("accumulation.steps", 3)
    next(trainer.steps())
    for micro_batches in (1, 3, 3, 3):
        plain.task.next_batch(plain.model, micro_batches)
    assert torch.equal(trainer.task.next_batch(trainer.model).inputs, plain.task.next_batch(plain.model).inputs)


@pytest.mark.parametrize("skip", [1, 2])
def test_an_outlier_that_is_passed_over_does_not_come(build, skip):
    """It belongs to the data; and the noise of the outliers that do come is as if none had been passed over."""
    knobs = ["problem.outlier_every=3", "problem.outlier_scale=1000", "optimizer.lr=0"]
    trainer, plain = build(*knobs), build(*knobs)
    rows = list(islice(trainer.steps(), 3))
    trainer.change(SKIP, skip)
    rows += list(islice(trainer.steps(), 6 - skip))
    assert [row.loss > 100 for row in rows] == [number == 6 for number in (0, 1, 2, *range(3 + skip, 9))]
    zeros = torch.zeros(8, 8, 8)
    plain.task.outliers(zeros, 1.0)
    assert torch.equal(trainer.task.outliers(zeros, 1.0), plain.task.outliers(zeros, 1.0))


def test_an_outlier_at_the_start_when_batches_are_passed_over(train):
    losses = [row.loss for row in train(2, "problem.outlier_every=3", "problem.outlier_scale=1000", f"{SKIP}=3")]
    assert losses[0] > 100, "batch 3, though it is step 0"


@pytest.mark.parametrize(("knobs", "steps", "below"), [
    (["problem.task=spirals", "optimizer.kind=adam", "optimizer.lr=0.02", "problem.batch_size=64"], 150, 0.6),
    (["problem.task=adding", "problem.seq_len=4", "model.kind=gru", "optimizer.kind=adam", "optimizer.lr=0.02", "model.depth=1"], 120, 0.1),
    (["problem.task=copy", "problem.seq_len=1", "optimizer.kind=adam", "optimizer.lr=0.01", "model.width=128", "model.depth=1"], 100, 1.0),
    (["problem.task=characters", "problem.seq_len=8", "model.kind=lstm", "optimizer.kind=adam", "optimizer.lr=0.02", "model.depth=1"], 100, 2.9),
])  # fmt: skip
def test_each_task_can_be_learned(train, knobs, steps, below):
    rows = train(steps, *knobs)
    assert np.mean([row.loss for row in rows[-20:]]) < below


def experiment(name: str, model: str, **knobs: int) -> Experiment:
    return Experiment().with_values(
        {"problem.task": name, "model.kind": model} | {f"problem.{knob}": value for knob, value in knobs.items()}
    )


@pytest.mark.parametrize("name", ["digits", "sequential_digits", "copy", "characters", "spirals"])
def test_guessing_a_class_is_as_good_as_the_data_say(name: str) -> None:
    """The class that is most frequent in training, or one drawn by lot."""
    drawn, knobs = task(name), experiment(name, "rnn")
    if name == "copy":
        seen = drawn.draw(4096, drawn.order_generator).targets
    else:
        seen = drawn.training[1:] if name == "characters" else drawn.training.targets
    told = drawn.test_batch(PLAYER).targets
    most = (told == torch.bincount(seen.flatten()).argmax()).float().mean().item()
    classes = drawn.shape.outputs
    scatter = 0.0 if drawn.tests != 512 else 3 * (classes - 1) ** 0.5 / classes / told.numel() ** 0.5
    assert accuracy_of_guessing(knobs) == pytest.approx(max(most, 1 / classes), abs=0.0005 + scatter)
    assert loss_of_guessing(knobs) == pytest.approx(math.log(classes))


def test_guessing_a_sum_a_point_or_an_action_is_as_good_as_the_data_say() -> None:
    sums = task("adding").draw(100_000, torch.Generator().manual_seed(0)).targets
    assert accuracy_of_guessing(experiment("adding", "rnn")) == pytest.approx(
        ((sums - 1).abs() < CLOSE).float().mean().item(), abs=0.003
    )
    assert ((sums - 1) ** 2).mean().item() == pytest.approx(loss_of_guessing(experiment("adding", "rnn")), rel=0.02)

    centers = ring_centers()
    spread = torch.cdist(centers, centers) + torch.eye(8) * 9
    assert spread.min() > 2 * ON_MODE, "no point lies in two clusters"
    assert accuracy_of_guessing(experiment("ring", "gan")) == 1 / 8

    class Stubborn(torch.nn.Module):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return torch.tensor([0.0, 1e9]).expand(*states.shape[:-1], 2)

    held = task("pole", seq_len=60).test_batch(Stubborn()).targets[..., 2].mean().item()
    assert accuracy_of_guessing(experiment("pole", "policy", seq_len=60)) == pytest.approx(held, rel=0.01)
    assert accuracy_of_guessing(experiment("pole", "policy", seq_len=3)) == 1
