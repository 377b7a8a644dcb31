"""The data of each task: a training set, or `draw`, which makes new examples; and the batches of them. A studio file
brings its own data."""

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
        # The UCI handwritten digits, time steps x features: {plan.time_steps} x {plan.features}
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
    """Yield the micro-batches of a large batch, each in its own memory."""
    for part in zip(inputs.split(knobs.problem_batch_size), targets.split(knobs.problem_batch_size)):
        yield [tensor.clone() for tensor in part]


def with_tensors(batch, change):
    """Return a batch with every tensor in it changed, in order."""
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
    """Return a batch with its first tensor changed."""
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
