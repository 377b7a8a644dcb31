"""The data of a script: the lines that make it for each task, and `batches()`, which yields micro-batches without
end."""

from __future__ import annotations

import re
from pathlib import Path

from gradstudio.core.combinations import PIXELS
from gradstudio.core.files import RESOURCES
from gradstudio.session.script import class_weight_lines, pole_lines
from gradstudio.session.script.plan import Lines, Plan

_SCALINGS = {
    "standardized": """deviation = pixels.std(axis=0)
pixels = (pixels - pixels.mean(axis=0)) / np.where(deviation == 0, 1.0, deviation)""",
    "unit": "pixels = pixels / 16.0",
    "raw": "",
}


_FIND = '''
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

'''


def data_files(program: str) -> list[Path]:
    """Return the bundled data sets that a program reads, which it looks for beside itself."""
    return [RESOURCES / "data" / name for name in re.findall(r'data_file\("([^"]+)"\)', program)]


def digits(plan: Plan) -> str:
    steps = int(plan["problem.seq_len"]) if plan["problem.task"] == "sequential_digits" else 8
    lines = (
        f"# The UCI handwritten digits, {steps} time steps of {PIXELS // steps}",
        'digits = dict(np.load(data_file("digits.npz")))',
        f'pixels = digits["train_images"].reshape(-1, {PIXELS}).astype(np.float64)',
        _SCALINGS[str(plan["problem.scaling"])],
        f"all_inputs = torch.from_numpy(pixels.astype(np.float32)).view(-1, {steps}, "
        f"{PIXELS // steps}).to(device){factor(plan)}",
        'all_targets = torch.from_numpy(digits["train_labels"].astype(np.int64)).to(device)',
    )
    return "\n".join(line for line in lines if line)


def spirals(plan: Plan) -> str:
    return f"""# Points on two arms that are wound around each other, and which arm
all_targets = torch.arange(1024) % 2
along = torch.rand(1024, generator=source)
angle = 2 * math.pi * 1.5 * along + math.pi * all_targets
place = 2.0 * along.unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)
all_inputs = (place + 0.05 * torch.randn(1024, 2, generator=source)).unsqueeze(1){factor(plan)}
all_inputs, all_targets = all_inputs.to(device), all_targets.to(device)"""


DATASETS = {"digits": digits, "sequential_digits": digits, "spirals": spirals}


def adding(plan: Plan) -> str:
    steps = int(plan["problem.seq_len"])
    return f'''def draw(examples, source):
    """The adding problem (Hochreiter and Schmidhuber 1997): the sum of two marked numbers of a sequence."""
    numbers = torch.rand(examples, {steps}, generator=source)
    first = torch.randint({max(steps // 2, 1)}, (examples, 1), generator=source)
    second = torch.randint({steps // 2}, {steps}, (examples, 1), generator=source)
    markers = torch.zeros(examples, {steps}).scatter_(1, first, 1.0).scatter_(1, second, 1.0)
    return torch.stack([numbers, markers], 2), (numbers * markers).sum(1, keepdim=True)'''


def copy(plan: Plan) -> str:
    return f'''def draw(examples, source):
    """The copying problem (Hochreiter and Schmidhuber 1997): 10 symbols, a pause, a sign, then the same symbols."""
    symbols = torch.randint(8, (examples, 10), generator=source)
    shown = torch.full((examples, {10 + int(plan["problem.seq_len"]) + 1 + 10}), 8)  # 8 is a blank
    shown[:, :10] = symbols
    shown[:, -11] = 9  # the sign
    return F.one_hot(shown, 10).float(), symbols'''


def characters(plan: Plan) -> str:
    steps = int(plan["problem.seq_len"])
    return f'''# Alice's Adventures in Wonderland, character by character
with open(data_file("alice.txt"), encoding="ascii", newline="") as file:
    book = file.read()
vocabulary = sorted(set(book))
text = torch.tensor([vocabulary.index(character) for character in book])
windows = text[: len(text) * 9 // 10].unfold(0, {steps + 1}, 1)


def draw(examples, source):
    """Windows of the book, and for each character the one after it."""
    chosen = windows[torch.randint(len(windows), (examples,), generator=source)]
    return F.one_hot(chosen[:, :-1], len(vocabulary)).float(), chosen[:, 1:]{"" if steps > 1 else ".flatten()"}'''


def ring(plan: Plan) -> str:
    return '''def draw(examples, source):
    """Real points from eight clusters on a ring, and the noise from which the generator draws one each."""
    angle = torch.arange(8) * (2 * math.pi / 8)
    centers = 2.0 * torch.stack([angle.cos(), angle.sin()], 1)
    mode = torch.randint(8, (examples,), generator=source)
    drawn = torch.randn(examples, 2, 2, generator=source)
    points = centers[mode] + 0.02 * drawn[:, 0]
    return torch.stack([points, drawn[:, 1]], 1), torch.zeros(examples)'''


_IMBALANCE = """# A long tail: class c keeps 1 / {rarer!r} ** (c / {last}) of its examples
kept = []
for number in range({classes}):
    of_class = torch.nonzero(all_targets.cpu() == number).flatten()
    kept.append(of_class[: max(round(len(of_class) * {rarer!r} ** (-number / {last})), 1)])
kept = torch.cat(kept).sort().values.to(device)
all_inputs, all_targets = all_inputs[kept], all_targets[kept]"""
_LABEL_NOISE = """# Some labels are drawn anew
mislabels = torch.Generator().manual_seed(seed + 6_000_011)
chosen = torch.rand(len(all_targets), generator=mislabels) < {share!r}
drawn = torch.randint({classes}, (len(all_targets),), generator=mislabels)
all_targets = torch.where(chosen, drawn, all_targets.cpu()).to(device)"""
DRAWN = {"adding": adding, "copy": copy, "characters": characters, "ring": ring}


def data(plan: Plan, lines: Lines) -> None:
    """Add the lines of the task, and `batches`."""
    task, size = str(plan["problem.task"]), plan["problem.batch_size"]
    noise = (
        f" + torch.randn(inputs.shape, generator=noise).to(device) * {plan['problem.noise']!r}" if _noisy(plan) else ""
    )
    lines.add("source = torch.Generator().manual_seed(seed)")
    if noise:
        lines.add("noise = torch.Generator().manual_seed(seed + 1_000_003)")
    if task == "pole":
        if plan.above("accumulation.steps", 1):
            lines.add(PARTS.format(size=size))
        lines.add(pole_lines.episodes(plan, large(plan)))
        return
    read = (DATASETS.get(task) or DRAWN[task])(plan)
    if data_files(read):
        lines.add(_FIND)
    lines.add(read)
    classes, rarer = 2 if task == "spirals" else 10, plan["problem.imbalance"]
    if rarer != 1 and task in DATASETS:
        lines.add(_IMBALANCE.format(rarer=rarer, classes=classes, last=classes - 1))
    if float(plan["problem.label_noise"]) > 0 and task in DATASETS:
        lines.add(_LABEL_NOISE.format(share=plan["problem.label_noise"], classes=classes))
    class_weight_lines.data(plan, lines, classes)
    many = plan.above("accumulation.steps", 1) or rarer != 1  # then a batch may be larger than the training set
    if many:
        lines.add(PARTS.format(size=size))
    lines.add("def batches():")
    if many:
        _large_batches(plan, lines, noise)
    elif task in DATASETS:
        lines.add('"""Epoch after epoch, each in an order of its own; only full batches."""', 1)
        lines.add("while True:", 1)
        lines.add("order = torch.randperm(len(all_inputs), generator=source)", 2)
        lines.add(f"for chosen in order[: len(order) // {size} * {size}].split({size}):", 2)
        if noise:
            lines.add("inputs = all_inputs[chosen.to(device)]", 3)
        lines.add(
            f"yield {f'inputs{noise}' if noise else 'all_inputs[chosen.to(device)]'}, all_targets[chosen.to(device)]", 3
        )
    else:
        lines.add('"""New examples every time."""', 1)
        lines.add("while True:", 1)
        _draw(plan, lines, noise, str(size))
        lines.add(f"yield {f'inputs{noise}' if noise else 'inputs.to(device)'}, targets.to(device)", 2)
    lines.add("batches = batches()")


PARTS = '''def parts(inputs, targets):
    """The micro-batches of a large batch, each in memory of its own."""
    for part in zip(inputs.split({size}), targets.split({size})):
        yield [tensor.clone() for tensor in part]


'''


def large(plan: Plan) -> str:
    """Return an expression for the examples of a step."""
    size, count = int(plan["problem.batch_size"]), plan.text("accumulation.steps")
    return f"{size} * {count}" if plan.above("accumulation.steps", 1) else str(size)


def _large_batches(plan: Plan, lines: Lines, noise: str) -> None:
    """Add the body of `batches` where a step has several: they are parts of one large batch."""
    if plan["problem.task"] in DATASETS:
        lines.add(
            '"""Epoch after epoch, each in an order of its own. The micro-batches of a step are one large batch:', 1
        )
        lines.add("what is left of an epoch and does not fill it is not used, unless no epoch would fill it.", 1)
        lines.add('"""', 1)
        lines.add("order = torch.empty(0, dtype=torch.int64)", 1)
        lines.add("while True:", 1)
        lines.add(f"size = {large(plan)}", 2)
        lines.add("if len(order) < size <= len(all_inputs):", 2)
        lines.add("order = order[:0]", 3)
        lines.add("while len(order) < size:", 2)
        lines.add("order = torch.cat([order, torch.randperm(len(all_inputs), generator=source)])", 3)
        lines.add("chosen, order = order[:size].to(device), order[size:]", 2)
        lines.add("inputs, targets = all_inputs[chosen], all_targets[chosen]", 2)
    else:
        lines.add('"""New examples every time. The micro-batches of a step are drawn as one large batch."""', 1)
        lines.add("while True:", 1)
        _draw(plan, lines, noise, large(plan))
        lines.add("inputs, targets = inputs.to(device), targets.to(device)", 2)
    lines.add(f"yield from parts(inputs{noise}, targets)", 2)


def _draw(plan: Plan, lines: Lines, noise: str, examples: str) -> None:
    """Add the lines that draw so many new examples."""
    lines.add(f"inputs, targets = draw({examples}, source)", 2)
    if factor(plan):
        lines.add(f"inputs = inputs{factor(plan)}", 2)
    if noise:
        lines.add("inputs = inputs.to(device)", 2)


def sample(plan: Plan) -> str:
    """Return an expression for inputs, for an initialization that needs data."""
    if plan["problem.task"] in DATASETS:
        return "all_inputs[:256].cpu()"
    if plan["problem.task"] == "pole":
        return pole_lines.sample(plan)
    return f"draw(256, torch.Generator().manual_seed(seed + 5_000_011))[0]{factor(plan)}"


def factor(plan: Plan) -> str:
    """Return the factor behind the inputs; empty where it is 1."""
    return "" if plan["problem.input_scale"] == 1 else f" * {plan['problem.input_scale']!r}"


def _noisy(plan: Plan) -> bool:
    return float(plan["problem.noise"]) > 0
