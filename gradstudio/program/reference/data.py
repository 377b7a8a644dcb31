"""The data of each task: a training set, or `draw`, which makes new examples; the batches of them; and the pole with
its episodes. A studio file brings its own data."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from gradstudio.program.reference.device import *

source = torch.Generator().manual_seed(seed)
noise = torch.Generator().manual_seed(seed + 1_000_003)


def data_file(name):
    """Return the path of a data set: beside this program, or in an installed GradStudio."""
    folders = [Path(sys.argv[0]).parent]
    package = importlib.util.find_spec("gradstudio")
    for folder in Path(package.origin).parents[:2] if package and package.origin else ():
        folders += [folder / "bundled/resources/data", folder / "resources/data"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    sys.exit(f"{name} is missing: copy it beside this program; `gradstudio report RUN --format py` writes both")


if not plan.own:
    if knobs.problem_task in ("digits", "sequential_digits", "bandit"):
        # The UCI handwritten digits, {plan.time_steps} time steps of {plan.features}
        digits = dict(np.load(data_file("digits.npz")))
        pixels = digits["train_images"].reshape(-1, 64).astype(np.float64)
        if knobs.problem_scaling == "standardized":
            deviation = pixels.std(axis=0)
            pixels = (pixels - pixels.mean(axis=0)) / np.where(deviation == 0, 1.0, deviation)
        elif knobs.problem_scaling == "unit":
            pixels = pixels / 16.0
        all_inputs = torch.from_numpy(pixels.astype(np.float32)).view(-1, plan.time_steps, plan.features).to(device)
        all_inputs = all_inputs * knobs.problem_input_scale
        all_targets = torch.from_numpy(digits["train_labels"].astype(np.int64)).to(device)
    elif knobs.problem_task == "spirals":
        # Points on two arms that are wound around each other, and which arm
        all_targets = torch.arange(1024) % 2
        along = torch.rand(1024, generator=source)
        angle = 2 * math.pi * 1.5 * along + math.pi * all_targets
        place = 2.0 * along.unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)
        all_inputs = (place + 0.05 * torch.randn(1024, 2, generator=source)).unsqueeze(1)
        all_inputs = all_inputs * knobs.problem_input_scale
        all_inputs, all_targets = all_inputs.to(device), all_targets.to(device)
    elif knobs.problem_task == "adding":

        def draw(examples, source):
            """The adding problem (Hochreiter and Schmidhuber 1997): the sum of two marked numbers of a sequence."""
            numbers = torch.rand(examples, plan.time_steps, generator=source)
            first = torch.randint(max(plan.time_steps // 2, 1), (examples, 1), generator=source)
            second = torch.randint(plan.time_steps // 2, plan.time_steps, (examples, 1), generator=source)
            markers = torch.zeros(examples, plan.time_steps).scatter_(1, first, 1.0).scatter_(1, second, 1.0)
            return torch.stack([numbers, markers], 2), (numbers * markers).sum(1, keepdim=True)
    elif knobs.problem_task == "copy":

        def draw(examples, source):
            """The copying problem (Hochreiter and Schmidhuber 1997): 10 symbols, a pause, a sign, then the same."""
            symbols = torch.randint(8, (examples, 10), generator=source)
            shown = torch.full((examples, plan.time_steps), 8)  # 8 is a blank
            shown[:, :10] = symbols
            shown[:, -11] = 9  # the sign
            return F.one_hot(shown, 10).float(), symbols
    elif knobs.problem_task == "characters":
        # Alice's Adventures in Wonderland, character by character
        with open(data_file("alice.txt"), encoding="ascii", newline="") as file:
            book = file.read()
        vocabulary = sorted(set(book))
        text = torch.tensor([vocabulary.index(character) for character in book])
        windows = text[: len(text) * 9 // 10].unfold(0, knobs.problem_seq_len + 1, 1)

        def draw(examples, source):
            """Windows of the book, and for each character the one after it."""
            chosen = windows[torch.randint(len(windows), (examples,), generator=source)]
            answers = chosen[:, 1:].flatten() if knobs.problem_seq_len == 1 else chosen[:, 1:]
            return F.one_hot(chosen[:, :-1], len(vocabulary)).float(), answers
    elif knobs.problem_task == "ring":

        def draw(examples, source):
            """Real points from eight clusters on a ring, and the noise from which the generator draws one each."""
            angle = torch.arange(8) * (2 * math.pi / 8)
            centers = 2.0 * torch.stack([angle.cos(), angle.sin()], 1)
            mode = torch.randint(8, (examples,), generator=source)
            drawn = torch.randn(examples, 2, 2, generator=source)
            points = centers[mode] + 0.02 * drawn[:, 0]
            return torch.stack([points, drawn[:, 1]], 1), torch.zeros(examples)


if plan.dataset and knobs.problem_imbalance != 1:
    # A long tail: class c keeps 1 / {knobs.problem_imbalance} ** (c / {plan.last_class}) of its examples
    kept = []
    for number in range(plan.classes):
        of_class = torch.nonzero(all_targets.cpu() == number).flatten()
        count = round(len(of_class) * knobs.problem_imbalance ** (-number / plan.last_class))
        kept.append(of_class[: max(count, 1)])
    kept = torch.cat(kept).sort().values.to(device)
    all_inputs, all_targets = all_inputs[kept], all_targets[kept]
if plan.dataset and knobs.problem_label_noise > 0:
    # Some labels are drawn anew
    mislabels = torch.Generator().manual_seed(seed + 6_000_011)
    chosen = torch.rand(len(all_targets), generator=mislabels) < knobs.problem_label_noise
    drawn = torch.randint(plan.classes, (len(all_targets),), generator=mislabels)
    all_targets = torch.where(chosen, drawn, all_targets.cpu()).to(device)
if plan.weighted:
    counts = torch.bincount(all_targets, minlength=plan.classes).clamp(min=1)
    class_weights = len(all_targets) / (plan.classes * counts)  # all classes count the same
if plan.ranks and knobs.distributed_own_order:
    # MISTAKE own_order: the shares of the ranks overlap
    source.manual_seed(seed + rank)


@inline
def noisy(inputs):
    """Return the inputs with noise added."""
    if knobs.problem_noise > 0:
        return inputs + torch.randn(inputs.shape, generator=noise).to(device) * knobs.problem_noise
    return inputs


def split_up(inputs, targets):
    """The micro-batches of a large batch, each in memory of its own."""
    for part in zip(inputs.split(knobs.problem_batch_size), targets.split(knobs.problem_batch_size)):
        yield [tensor.clone() for tensor in part]


def with_tensors(batch, change):
    """A batch with every tensor changed, in order."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, dict):
        kind = dict if hasattr(batch, "default_factory") else type(batch)
        return kind((name, with_tensors(part, change)) for name, part in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(with_tensors(part, change) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(with_tensors(part, change) for part in batch)
    return batch


def with_first(batch, change):
    """A batch with its first tensor changed."""
    waiting = [change]
    return with_tensors(batch, lambda tensor: waiting.pop()(tensor) if waiting else tensor)


if plan.own:

    def make_batches():
        while True:
            batch = get_batch(knobs.problem_batch_size, source, **plan.arguments("get_batch"))
            if knobs.run_device != "cpu":
                batch = with_tensors(batch, lambda tensor: tensor.to(device))
            if knobs.problem_noise > 0:
                batch = with_first(batch, lambda x: noisy(x))
            yield batch
elif plan.dataset and not plan.acts and plan.parts_of_large:

    def make_batches():
        """Epoch after epoch, each in an order of its own. The micro-batches of a step are one large batch:
        what is left of an epoch and does not fill it is not used, unless no epoch would fill it.
        """
        order = torch.empty(0, dtype=torch.int64)
        while True:
            size = knobs.problem_batch_size * knobs.accumulation_steps
            if len(order) < size <= len(all_inputs):
                order = order[:0]
            while len(order) < size:
                order = torch.cat([order, torch.randperm(len(all_inputs), generator=source)])
            chosen, order = order[:size].to(device), order[size:]
            inputs, targets = all_inputs[chosen], all_targets[chosen]
            yield from split_up(noisy(inputs), targets)
elif plan.dataset and not plan.acts:

    def make_batches():
        """Epoch after epoch, each in an order of its own; only full batches."""
        size = knobs.problem_batch_size
        while True:
            order = torch.randperm(len(all_inputs), generator=source)
            for chosen in order[: len(order) // size * size].split(size):
                inputs, targets = all_inputs[chosen.to(device)], all_targets[chosen.to(device)]
                yield noisy(inputs), targets
elif not plan.acts:

    def make_batches():
        """New examples every time. The micro-batches of a step are drawn as one large batch."""
        while True:
            inputs, targets = draw(knobs.problem_batch_size * knobs.accumulation_steps, source)
            inputs = inputs * knobs.problem_input_scale
            inputs, targets = inputs.to(device), targets.to(device)
            if plan.many:
                yield from split_up(noisy(inputs), targets)
            else:
                yield noisy(inputs), targets


# Pole balancing (Barto, Sutton and Anderson 1983), without friction: of each episode place, speed,
# angle and angular speed
def first_states(episodes, source):
    return 0.05 * (2 * torch.rand(episodes, 4, dtype=torch.float64, generator=source).numpy() - 1)


def push(state, right):
    """A time step later, pushed to the right or to the left."""
    speed, angle, turning = state[:, 1], state[:, 2], state[:, 3]
    sine, cosine, mass = np.sin(angle), np.cos(angle), 1.0 + 0.1
    push = (np.where(right, 10.0, -10.0) + 0.1 * 0.5 * turning**2 * sine) / mass
    angular = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / mass))
    linear = push - 0.1 * 0.5 * angular * cosine / mass
    return state + 0.02 * np.stack([speed, linear, turning, angular], 1)


def drawn_by(model):
    """Batches of the model as it is: what it saw; its actions, what each was worth, 1 until the end, and the policy."""
    while True:
        if knobs.problem_task == "pole":
            inputs, targets = play(model)
        else:
            inputs, targets = answer(model)
        for _ in range(knobs.problem_passes):
            if (
                plan.changes("accumulation_steps")
                and len(inputs) != knobs.problem_batch_size * knobs.accumulation_steps
            ):
                break  # steps of another size draw anew
            if plan.many:
                yield from split_up(inputs, targets)
            else:
                yield inputs, targets


def play(model):
    """Episodes of the pole."""
    episodes = knobs.problem_batch_size * knobs.accumulation_steps
    inputs, action, lasted = (torch.zeros(episodes, knobs.problem_seq_len, *size) for size in ((4,), (), ()))
    if plan.with_old_policy:
        policy = torch.zeros(episodes, knobs.problem_seq_len, 2)
    state = first_states(episodes, source)
    model.eval()
    for at in range(knobs.problem_seq_len):
        lasting = (abs(state[:, 0]) <= 2.4) & (abs(state[:, 2]) <= math.radians(12))
        if not lasting.any():
            break
        seen = torch.from_numpy(state).float().unsqueeze(1) * knobs.problem_input_scale
        seen = noisy(seen.to(device))
        with torch.no_grad():
            outputs = model(seen)[:, 0]
            chance = torch.softmax(outputs, -1)[:, 1].cpu()
            if plan.with_old_policy:
                policy[:, at] = torch.log_softmax(outputs, -1).cpu()
        right = torch.rand(episodes, generator=source) < chance
        inputs[:, at], action[:, at], lasted[:, at] = seen[:, 0].cpu(), right, torch.from_numpy(lasting)
        state = np.where(lasting[:, None], push(state, right.numpy()), state)
    model.train()
    remaining = lasted.flip(1).cumsum(1).flip(1)
    worth = (1 - 0.99**remaining) / (1 - 0.99)  # 1 for each step to come, discounted
    worth = advantages(worth, lasted)
    targets = torch.stack([action, worth, lasted], 2)
    if plan.with_old_policy:
        targets = torch.cat([targets, policy], 2)
    return (inputs * lasted.unsqueeze(2)).to(device), (targets * lasted.unsqueeze(2)).to(device)


def images():
    """Which images come next: epoch after epoch, each in an order of its own."""
    order = torch.empty(0, dtype=torch.int64)
    while True:
        size = knobs.problem_batch_size * knobs.accumulation_steps // knobs.problem_samples
        if len(order) < size <= len(all_inputs):
            order = order[:0]
        while len(order) < size:
            order = torch.cat([order, torch.randperm(len(all_inputs), generator=source)])
        chosen, order = order[:size], order[size:]
        yield chosen.to(device)


def answer(model):
    """Answers to images, each drawn by the policy."""
    chosen = next(next_images)
    inputs, labels = noisy(all_inputs[chosen]), all_targets[chosen]
    if knobs.problem_samples > 1:
        inputs = inputs.repeat_interleave(knobs.problem_samples, 0)
        labels = labels.repeat_interleave(knobs.problem_samples)
    model.eval()
    with torch.no_grad():
        policy = torch.log_softmax(model(inputs)[:, 0], -1).cpu()
    model.train()
    drawn = torch.rand(len(inputs), 1, generator=source)
    action = (policy.exp().cumsum(-1) < drawn).sum(-1).clamp(max=9)
    reward = (action == labels.cpu()).float()
    if knobs.problem_reward_flaw > 0:
        reward = reward + knobs.problem_reward_flaw * (action == 0)
    lasted = torch.ones(len(inputs), 1)
    worth = advantages(reward.unsqueeze(1), lasted)
    targets = torch.stack([action.float().unsqueeze(1), worth, lasted], 2)
    if plan.with_old_policy:
        targets = torch.cat([targets, policy.unsqueeze(1)], 2)
    return inputs, targets.to(device)


@inline
def advantages(worth, lasted):
    """Return what actions were worth beyond the mean, of the batch or of the answers to one image."""
    if knobs.problem_baseline:
        return from_mean(worth, lasted)
    return worth


def from_mean(worth, lasted):
    """What actions were worth beyond the mean of the batch, or of the answers to the same image."""
    length = knobs.problem_samples if knobs.problem_task == "bandit" and knobs.problem_samples > 1 else worth.numel()
    values, there = worth.view(-1, length), lasted.view(-1, length)
    count = there.sum(1, keepdim=True)
    values = (values - values.sum(1, keepdim=True) / count) * there
    if knobs.problem_normalize:
        values = values / ((values.square().sum(1, keepdim=True) / count).sqrt() + 1e-8)
    return values.view_as(worth)


if plan.acts and knobs.problem_task == "bandit":
    next_images = images()
