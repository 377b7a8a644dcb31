"""A studio file in the engine: what is trained, what a snapshot holds, and what each bad file is told."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from collections import OrderedDict, defaultdict
from pathlib import Path

import pytest
import torch
from own_models import GOOD, WRITING, preset
from torch import nn

from gradstudio.core import trust
from gradstudio.core.check_note import NOTE, CheckNote
from gradstudio.core.columns import LAYER_METRICS
from gradstudio.core.knobs import KnobError
from gradstudio.core.studio_file import StudioFileError
from gradstudio.core.unknown import is_known
from gradstudio.engine import runtime
from gradstudio.engine.models.state import preserve_state
from gradstudio.engine.own_model import check, line_at_work, shared_state, torch_itself, trees
from gradstudio.engine.own_model.program import WENT_ON
from gradstudio.engine.probes import OnDemandGauges
from gradstudio.engine.provenance_search import explain
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.trainer import Trainer


def losses(trainer: Trainer, steps: int = 6) -> list[float]:
    return [next(trainer.steps()).loss for _ in range(steps)]


def trainer(folder: Path, *sets: str, text: str = GOOD) -> Trainer:
    return Trainer(preset(folder, text).experiment.with_texts(list(sets)))


def test_what_is_trained_is_what_the_file_builds(tmp_path: Path) -> None:
    made = trainer(tmp_path, "model_file.hidden=5")
    assert [(layer.name, layer.role, layer.size) for layer in made.layers] == [
        ("unused", "weight", 3), ("first.weight", "weight", 10), ("first.bias", "bias", 5), ("norm.weight", "norm", 5),
        ("norm.bias", "norm", 5), ("last.weight", "weight", 10), ("last.bias", "bias", 2),
    ]  # fmt: skip
    row = next(made.steps())
    assert math.isfinite(row.loss) and row.grad_norm > 0
    assert not is_known(row.accuracy) and not is_known(row.test_accuracy)
    assert made.evaluate() is None
    with torch.no_grad():
        made.flat.weights.data[0] = math.inf
    assert math.isnan(made.evaluate() or 0.0)


def test_no_pass_beside_the_training_counts_in_a_model_that_counts_its_passes(tmp_path: Path) -> None:
    text = GOOD.replace(
        "        self.first =", "        self.calls, self.cache = 0, None\n        self.first ="
    ).replace("        return self.last(", "        self.calls += 1\n        self.cache = x\n        return self.last(")
    made = trainer(tmp_path, "accumulation.steps=2", text=text)
    assert (made.model.calls, made.model.cache) == (0, None)
    losses(made, 3)
    made.requests.accumulation = True
    losses(made, 1)
    assert made.model.calls == 8


def test_what_a_pass_makes_a_buffer_of_is_not_hidden_by_what_it_was() -> None:
    model = nn.Linear(2, 2)
    model.late = None
    with preserve_state(model):
        del model.late
        model.register_buffer("late", torch.ones(1))
    assert model.late is not None and model.late.item() == 1


def test_a_parameter_without_entries_measures_0(tmp_path: Path) -> None:
    text = GOOD.replace("self.unused = nn.Parameter(torch.ones(3))", "self.unused = nn.Parameter(torch.empty(0))")
    made = trainer(tmp_path, text=text)
    row = next(made.steps())
    cut_share = list(LAYER_METRICS).index("cut_share")
    assert made.layers[0].size == 0 and not row.layers[:cut_share, 0].any()  # a NaN counts as true
    assert not is_known(float(row.layers[cut_share, 0]))


def test_a_snapshot_has_the_state_of_dropout_and_of_the_data(tmp_path: Path) -> None:
    made = trainer(tmp_path, "accumulation.steps=2", "model_file.dropout=0.5")
    losses(made, 3)
    state = Snapshot.take(made)
    expected = losses(made)
    torch.randn(100)  # whoever else draws from torch's global generator
    state.restore(made)
    assert losses(made) == expected
    stored = Snapshot.unpack(state.pack(), "cpu", made.experiment.studio_file)
    again = Trainer(made.experiment)
    assert stored.fits(again) and stored.experiment == made.experiment
    stored.restore(again)
    assert losses(again) == expected


def test_torchs_global_generator_is_left_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    made = trainer(tmp_path)
    made.requests.accumulation = made.requests.activations = made.requests.test = made.requests.compare = True
    losses(made)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_measured_beside_a_step_leaves_no_trace(tmp_path: Path) -> None:
    plain, watched = (trainer(tmp_path, "accumulation.steps=2", "model_file.dropout=0.5") for _ in range(2))
    expected = losses(plain)
    gauges = OnDemandGauges(watched)
    found = []
    for _ in expected:
        watched.requests.accumulation = watched.requests.activations = watched.requests.test = True
        watched.requests.compare = True
        row = next(watched.steps())
        found.append(row.loss)
        assert "studio file" in row.joined_problem
        for name in ("exponents", "sharpness", "noise_scale", "overshoot"):
            gauges.measure(name)
    assert found == expected


# A model with all that a pass may change in it: a buffer that is replaced, one that is written to, a teacher that
# follows the parameters and is not trained, layers that keep
# more or less than usual, and one with a sparse gradient.
CHANGES_ITSELF = """
import copy
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 8))
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)
        self.table = nn.Embedding(2, 8, sparse=True)
        self.last = nn.Linear(8, 1)
        self.teacher = copy.deepcopy(self.last).requires_grad_(False)
        self.register_buffer('mean', torch.zeros(2))
        self.register_buffer('count', torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.count += 1
        with torch.no_grad():
            for mine, its in zip(self.teacher.parameters(), self.last.parameters()):
                mine.mul_(0.9).add_(its, alpha=0.1)
        hidden = self.norm(self.first(x - self.mean)) / self.count + self.table((x[:, 0] > 0).long())
        return self.last(hidden), self.teacher(hidden)
def build_model():
    return Net()
def get_batch(batch_size, generator):
    return torch.randn(batch_size, 2, generator=generator)
def compute_loss(model, batch):
    outputs, aims = model(batch)
    return (outputs - batch.prod(1, keepdim=True)).square().mean() + (outputs - aims).square().mean()
"""


def test_what_a_model_changes_in_itself_comes_back_with_a_snapshot(tmp_path: Path) -> None:
    made = trainer(tmp_path, text=CHANGES_ITSELF)
    losses(made, 3)
    state = Snapshot.take(made)
    expected = losses(made)
    state.restore(made)
    assert losses(made) == expected
    stored = Snapshot.unpack(state.pack(), "cpu", made.experiment.studio_file)
    again = Trainer(made.experiment)
    assert stored.fits(again)
    stored.restore(again)
    assert losses(again) == expected


def test_a_rewind_undoes_that_a_parameter_was_frozen(tmp_path: Path) -> None:
    text = CHANGES_ITSELF.replace(
        "self.count += 1\n", "self.count += 1\n        self.last.requires_grad_(bool(self.count < 4))\n"
    )
    made = trainer(tmp_path, text=text)
    states, expected = [], []
    for _ in range(6):
        states.append(Snapshot.take(made))
        expected.append(next(made.steps()).loss)
    for step in (5, 2, 4, 0):
        stored = Snapshot.unpack(states[step].pack(), "cpu", made.experiment.studio_file)
        again = Trainer(made.experiment)
        for one in (made, again):
            stored.restore(one)
            assert [each.requires_grad for _, each in one.flat.named if each.ndim == 2][-1] == (step < 4)
            assert losses(one, 6 - step) == expected[step:]


def test_no_check_of_a_step_changes_what_a_model_keeps(tmp_path: Path) -> None:
    assert check.fault(preset(tmp_path, CHANGES_ITSELF).experiment) == ""
    plain, watched = (trainer(tmp_path, "accumulation.steps=2", text=CHANGES_ITSELF) for _ in range(2))
    assert watched.model.count == 0  # also after the passes in which the trainer tries the model
    expected = losses(plain)
    gauges, found = OnDemandGauges(watched), []
    for _ in expected:
        watched.requests.accumulation = True
        row = next(watched.steps())
        found.append(row.loss)
        assert row.accumulated is not None and row.accumulated.difference < 1e-6
        gauges.measure("exponents")
    assert found == expected
    (standin,) = gauges._standins.values()
    standin.follow()
    theirs = dict(watched.model.named_parameters())
    assert all(torch.equal(mine, theirs[name]) for name, mine in standin.model.named_parameters())


# What a trainer or a check may not do by itself: the norm of rows is limited, and a weight decays, in a pass.
LIMITED = """
import torch
from torch import nn
def build_model():
    return nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.Linear(4, 1))
def get_batch(batch_size, generator):
    return torch.randint(0, 9, (batch_size,), generator=generator)
def compute_loss(model, batch):
    with torch.no_grad():
        model[1].weight.mul_(0.9)
    return (model(batch).squeeze() - batch).square().mean()
"""


def test_no_check_changes_the_weights_that_are_trained(tmp_path: Path) -> None:
    assert check.fault(preset(tmp_path, LIMITED).experiment) == ""
    plain, watched = (trainer(tmp_path, "accumulation.steps=2", text=LIMITED) for _ in range(2))
    assert watched.model[0].weight.norm(dim=1).max() > 0.5  # pyright: ignore[reportIndexIssue] - as it was built
    expected = losses(plain, 3)
    plain.experiment = plain.experiment.with_value("precision.dtype", "bf16")  # without the check
    expected += losses(plain, 3)
    watched.requests.accumulation = True
    found = losses(watched, 3)
    watched.change("precision.dtype", "bf16")
    assert [*found, *losses(watched, 3)] == expected


REENTRANT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
def build_model():
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
def get_batch(batch_size, generator):
    return torch.randn(batch_size, 2, generator=generator)
def compute_loss(model, batch):
    return (model[2](checkpoint(model[1], model[0](batch), use_reentrant=True)).squeeze() - 1).square().mean()
"""


def test_what_works_in_a_backward_pass_alone_is_trained_and_checked(tmp_path: Path) -> None:
    assert check.fault(preset(tmp_path, REENTRANT).experiment) == ""
    made = trainer(tmp_path, "accumulation.steps=2", text=REENTRANT)
    assert not made.flat.gradients.any()
    made.requests.accumulation = True
    row = next(made.steps())
    assert row.accumulated is not None and row.accumulated.difference < 1e-6


def test_two_trainers_do_not_disturb_each_other(tmp_path: Path) -> None:
    expected = losses(trainer(tmp_path))
    one, other = trainer(tmp_path), trainer(tmp_path)
    pairs = [(next(one.steps()).loss, next(other.steps()).loss) for _ in expected]
    assert pairs == [(loss, loss) for loss in expected]


def test_a_nan_is_traced_to_the_line_of_work_where_it_is_born(tmp_path: Path) -> None:
    text = GOOD.replace("+ 0 * step", "+ torch.log(model.last.bias.sum() * 0)")
    made = trainer(tmp_path, text=text)
    found = explain(made)
    assert found is not None and found.operation.startswith("aten.log")
    assert "logarithm of 0" in found.cause and found.step == 0 and found.micro_batch == 0


def test_the_noise_goes_to_the_first_tensor_if_that_holds_floats(tmp_path: Path) -> None:
    made = trainer(tmp_path, "problem.noise=0.5", "problem.outlier_every=2", "problem.outlier_scale=1000")
    plain = trainer(tmp_path)
    (noisy,), (quiet,) = made.next_batches(), plain.next_batches()
    difference = noisy.tree["points"] - quiet.tree["points"]
    assert 0.1 < difference.std() < 1.0 and torch.equal(noisy.tree["labels"][0], quiet.tree["labels"][0])
    losses(made, 2)
    assert made.next_batches()[0].tree["points"].std() > 100
    labels_first = GOOD.replace('{"points": points, "labels": [(points', '{"labels": [(points').replace(
        ".long()]}", '.long()], "points": points}'
    )
    with pytest.raises(KnobError, match=r"problem\.noise = 0\.5 is not allowed.*int64"):
        trainer(tmp_path, "problem.noise=0.5", text=labels_first)
    with pytest.raises(KnobError, match=r"problem\.outlier_every = 3 is not allowed"):
        trainer(tmp_path, text=labels_first).change("problem.outlier_every", 3)


@pytest.mark.parametrize("scheme", ["xavier", "he", "orthogonal", "zeros", "normal"])
def test_the_schemes_draw_linear_and_conv_and_recurrent_layers(tmp_path: Path, scheme: str) -> None:
    text = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.lstm, self.own = nn.Conv1d(3, 16, 3), nn.LSTM(16, 16), nn.Parameter(torch.full((4,), 7.0))
        self.head = nn.Linear(16, 2)
    def forward(self, x):
        return self.head(self.lstm(self.conv(x).permute(2, 0, 1))[0][-1])
def build_model():
    return Net()
def get_batch(batch_size, generator):
    return torch.randn(batch_size, 3, 8, generator=generator)
def compute_loss(model, batch):
    return (model(batch) ** 2).mean() + model.own.sum()
"""
    model = trainer(tmp_path, f"model.init={scheme}", "model.init_gain=2", "model.initial_bias=0.25", text=text).model
    assert isinstance(model, nn.Module)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    assert torch.equal(weights["own"], torch.full((4,), 7.0))
    assert (weights["conv.bias"] == 0.25).all() and (weights["head.bias"] == 0).all()
    assert (weights["lstm.bias_ih_l0"] == 0.25).all() and (weights["lstm.bias_hh_l0"] == 0).all()
    conv, recurrent = weights["conv.weight"].std().item(), weights["lstm.weight_hh_l0"]
    expected = {"xavier": (2 / (9 + 48)) ** 0.5, "he": (2 / 9) ** 0.5, "zeros": 0.0, "normal": 0.02}
    if scheme in expected:
        assert conv == pytest.approx(2 * expected[scheme], rel=0.25, abs=1e-12)
    else:
        assert torch.allclose(recurrent.T @ recurrent, 4 * torch.eye(16), atol=1e-4)


def test_an_outlier_is_what_gradients_are_asked_for_as_the_batch_was(tmp_path: Path) -> None:
    text = GOOD.replace("generator=generator)\n", "generator=generator).requires_grad_()\n").replace(
        "+ 0 * step", "+ torch.autograd.grad(model(batch['points']).sum(), batch['points'])[0].square().mean()"
    )
    made = trainer(tmp_path, "problem.outlier_every=2", "problem.noise=0.1", text=text)
    assert all(math.isfinite(loss) for loss in losses(made))


LOOKED_UP = """
import pickle
import torch
from torch import nn
class Net(nn.Linear):
    pass
@torch.jit.script
def doubled(x):
    return x * 2
def build_model():
    return pickle.loads(pickle.dumps(Net(2, 1)))
def get_batch(batch_size, generator):
    return torch.randn(batch_size, 2, generator=generator)
def compute_loss(model, batch):
    assert pickle.loads(pickle.dumps(model)) is not model
    return doubled(model(batch)).square().mean()
"""


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch, which would have something else used
def test_a_class_is_found_by_its_name_and_a_function_with_its_text(tmp_path: Path) -> None:
    experiment = preset(tmp_path, LOOKED_UP).experiment
    assert check.fault(experiment) == ""
    one, other = Trainer(experiment), Trainer(experiment)  # each has a class of its own
    assert losses(one) == pytest.approx(losses(other), rel=1e-5)
    made = trainer(tmp_path, text=LOOKED_UP.replace("x * 2", "x * 3"))  # a text that has changed since
    assert next(made.steps()).loss == pytest.approx(2.25 * next(Trainer(experiment).steps()).loss)


# What is replaced in the file, by what, and what is told of it.
BAD = {
    "an import": ("import torch\n", "import torch\nimport nowhere_to_be_found\n", "line 8: No module named 'nowhere"),
    "an error": ("class Net", "1 / 0\nclass Net", "line 15: ZeroDivisionError"),
    "exit": ("class Net", "raise SystemExit(3)\nclass Net", "line 15: it ends the program"),
    "no module": ("return Net(hidden, dropout)", "return 3", "line 29: build_model returned an object of type int"),
    "None": ("return Net(hidden, dropout)", "pass", "line 29: build_model returned None; wanted: a torch.nn.Module"),
    "doubles": ("Net(hidden, dropout)", "Net(hidden, dropout).double()", "unused is float64; wanted: parameters in f"),
    "nothing to train": ("Net(hidden, dropout)", "Net(hidden, dropout).requires_grad_(False)", "no parameter that req"),
    "lazy": ("self.first = nn.Linear(2, hidden)", "self.first = nn.LazyLinear(hidden)", "first.weight is not known"),
    "no batch": ('return {"points"', 'return object() or {"points"', "line 33: get_batch returned object; wanted"),
    "no tensor": ('return {"points"', 'return {"size": 3} or {"points"', "line 33: get_batch returned no tensor"),
    "a dict of its own": (
        'return {"points": points, ', 'return type("Batch", (dict,), {})({"points": points}) or {"points": points, ',
        "line 33: get_batch returned Batch; wanted: dense tensors, also in tuples, lists or dicts",
    ),
    "a sparse batch": (
        'return {"points"', 'return {"sparse": points.to_sparse(), "points"', "line 33: get_batch returned a sparse or nested",
    ),
    "a sparse buffer": (
        "self.drop = ", "self.register_buffer('near', torch.eye(3).to_sparse())\n        self.drop = ",
        "line 30: near is a sparse or nested buffer; wanted: a dense tensor",
    ),
    "a batch that is taken apart": (
        'batch["labels"][0]', 'batch["labels"].pop()',
        "line 38: compute_loss changes the batch that it is given; wanted: the batch as it was",
    ),
    "a batch that is written to": (
        'model(batch["points"])', 'model(batch["points"].add_(1))',
        "line 38: compute_loss changes the batch that it is given; wanted: the batch as it was",
    ),
    "its own chance": ("generator=generator", "generator=None", "line 33: get_batch gave another batch for the same"),
    "numpy's chance": ("points = ", "import random; points = random.random() * ", "line 33: get_batch gave another b"),
    "numpy's chance in the model": (
        "    return Net(hidden, dropout)",
        "    import numpy\n    net = Net(hidden, dropout)\n    net.frozen.weight.data *= numpy.random.rand()\n    return net",
        "line 29: build_model gave another model for the same seed; wanted: random numbers from torch alone",
    ),
    "chance at the top level": (
        "shift: float = 0):\n    points = ", "shift: float = 0, by=__import__('random').random()):\n    points = by * ",
        "line 33: get_batch gave another batch once the file was run again; wanted: random numbers from `generator` a",
    ),
    "torch's chance in the first batch": (
        "    points = ", "    points = globals().setdefault('by', torch.rand(())) * ",
        "line 33: get_batch gave another batch once the file was run again; wanted: random numbers from `generator` a",
    ),
    "chance in the loss": ("+ 0 * step", "* __import__('random').random()", "line 38: compute_loss gave"),
    "no scalar": ("label_smoothing=smoothing", "reduction='none'", "line 38: compute_loss returned a tensor of shape (32,)"),
    "many numbers": ("return F.cross_entropy", "return torch.ones(3) * F.cross_entropy", "returned a tensor of shape"),
    "a number": ("+ 0 * step", "* 1.0).item()", "not valid Python"),
    "detached": ("label_smoothing=smoothing) + 0 * step", "label_smoothing=smoothing).detach()", "was detached; wanted"),
    "decorated": ("def compute_loss(", "@torch.no_grad()\ndef compute_loss(", "line 38: the loss does not depend"),
    "no tensor as loss": ("return F.cross_entropy", "return 'loss' or F.cross_entropy", "an object of type str; wanted"),
    "whole numbers": ("label_smoothing=smoothing) + 0 * step", "label_smoothing=smoothing).long()", "returned int64"),
    "no memory": ("class Net", "raise MemoryError\nclass Net", "line 15: its model or a batch does not fit into memory"),
    "an error that tells nothing": (
        "return Net(hidden, dropout)", "raise type('E', (Exception,), {'__str__': None})", "line 30: E in build_model",
    ),
    "our own error": (
        "class Net",
        "from gradstudio.core.knobs import KnobError\nraise KnobError('all is\\nwell')\nclass Net",
        "line 16: KnobError: all is",
    ),
    "a model of its own": (
        "    def forward", "    def named_parameters(self):\n        1 / 0\n    def forward", "line 26: ZeroDivisionError",
    ),
    "doubles for all": (
        "class Net", "torch.set_default_dtype(torch.double)\nclass Net", "it changes torch's default dtype (to float64)",
    ),
    "grad mode": (
        "return F.cross_entropy", "torch.set_grad_enabled(False)\n    return F.cross_entropy",
        "line 38: compute_loss changes torch's grad mode (to False) for the whole program; wanted: as it was",
    ),
    "threads": ("    points = ", "    torch.set_num_threads(2)\n    points = ", "line 33: get_batch changes torch's number of"),
    "the folder": (
        "    return Net(", "    __import__('os').chdir('/')\n    return Net(", "line 29: build_model changes the working folder",
    ),
    "torch itself": (
        "class Net", "torch.Tensor.item = lambda number: 3.0\nclass Net",
        "line 15: it replaces torch.Tensor.item for the whole program; wanted: as it was",
    ),
    "one function of torch for another": ("class Net", "F.relu = F.gelu\nclass Net", "line 15: it replaces torch.nn.functional.relu"),
    "the clock": (
        "class Net", "import time\ntime.perf_counter = lambda: 0.0\nclass Net",
        "line 16: it replaces time.perf_counter for the whole program; wanted: as it was",
    ),
    "a layer of torch": (
        "    return Net(", "    nn.Linear.forward = lambda self, x: x\n    return Net(",
        "line 30: build_model replaces torch.nn.Linear.forward for the whole program",
    ),
    "a method that hides another": ("class Net", "nn.Linear.__call__ = print\nclass Net", "it replaces torch.nn.Linear.__call__"),
    "an optimizer": ("class Net", "torch.optim.SGD.step = None\nclass Net", "line 15: it replaces torch.optim.SGD.step for"),
    "a method of torch in the loss": (
        "    return F.cross", "    torch.mean = torch.sum\n    return F.cross", "line 39: it replaces torch.mean for the whole",
    ),
    "a hook everywhere": (
        "class Net", "nn.modules.module.register_module_full_backward_hook(print)\nclass Net",
        "it leaves a hook on all modules or optimizers for the whole program",
    ),
    "anomaly mode": ("class Net", "torch.autograd.set_detect_anomaly(True)\nclass Net", "it changes torch's anomaly mode for"),
    "another device": ("class Net", "torch.set_default_device('meta')\nclass Net", "it changes torch's default device for the"),
    "autocast": ("class Net", "torch.set_autocast_enabled('cpu', True)\nclass Net", "torch's autocast on the CPU (to True)"),
    "hooks of saved tensors": (
        "class Net", "torch.autograd.graph.saved_tensors_hooks(abs, abs).__enter__()\nclass Net",
        "it changes torch's hooks of saved tensors for the whole program",
    ),
    "no memory of its own": ("nn.Linear(hidden, 2)", "nn.Linear(hidden, 2, device='meta')", "line 29: last.weight has no memory"),
    "turned": (
        "nn.Parameter(torch.ones(3))", "nn.Parameter(torch.ones(3, 2).t())", "line 29: unused is not contiguous in memory",
    ),
    "shared memory": (
        "nn.Parameter(torch.ones(3))", "nn.Parameter(self.first.weight.data)", "line 29: first.weight and unused share their",
    ),
    "the memory of a buffer": (
        "self.drop = ", "self.register_buffer('start', self.first.weight.detach())\n        self.drop = ",
        "line 30: first.weight and the buffer start share their memory; wanted: .clone(), or one parameter in both",
    ),
    "the memory of what is not trained": (
        "self.last = nn.Linear(hidden, 2)", "self.last = nn.Linear(2, 2)\n        self.frozen.weight.data = self.last.weight.data",
        "line 30: last.weight and the parameter frozen.weight, which is not trained, share their memory",
    ),
    "the memory of an attribute": (
        "self.drop = ", "self.first.turned = {'all': [self.first.weight.t()]}\n        self.drop = ",
        "line 30: first.weight and the attribute first.turned share their memory",
    ),
    "the memory of a variable": (
        "    return Net(hidden, dropout)", "    net = Net(hidden, dropout)\n    everywhere.extend([net.frozen, net.unused[1:]])\n"
        "    return net\n\n\neverywhere = []", "line 29: unused and the global variable everywhere share their memory",
    ),
    "memory that overlaps": (
        "self.unused = nn.Parameter(torch.ones(3))", "both = torch.ones(4)\n        self.unused = nn.Parameter(both[:3])\n"
        "        self.other = nn.Parameter(both[2:])", "line 31: unused and other share their memory",
    ),
    "shapes": ("self.last = nn.Linear(hidden, 2)", "self.last = nn.Linear(hidden + 1, 2)", "line 26: RuntimeError in c"),
    "too large": ("batch_size, 2, generator", "batch_size * 10**12, 2, generator", "does not fit into memory"),
    "a new parameter": (
        "    return F.cross", "    model.first.weight = nn.Parameter(torch.ones(hidden := 8, 2))\n    return F.cross",
        "line 38: first.weight is another parameter than the one that was built",
    ),
    "a buffer that comes with the first batch": (
        "    return F.cross", "    model.register_buffer('mean', torch.zeros(2))\n    return F.cross",
        "line 38: the model has 4 buffers now, and 3 when it was built; wanted: each one registered as a tensor",
    ),
    "a parameter with other memory": (
        "    return F.cross", "    for p in model.parameters():\n        p.data = p.data.clamp(-1, 1)\n    return F.cross",
        "line 38: unused has other memory than before, which the optimizer does not hold; wanted: the parameters that",
    ),
    "zero_grad": (
        "    return F.cross", "    model.zero_grad()\n    return F.cross",
        "line 38: the gradients were changed, as by backward() or zero_grad(); wanted: the loss alone",
    ),
    "its own backward": (
        "    return F.cross", "    F.cross_entropy(model(batch['points']), batch['labels'][0]).backward()\n    return F.cross",
        "line 38: the gradients were changed, as by backward() or zero_grad(); wanted: the loss alone",
    ),
    "a wrong backward": ("+ 0 * step", "+ model.unused.sum() + model.unused.data.zero_().sum()", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_each_bad_file_is_told_in_one_line(tmp_path: Path, case: str) -> None:
    old, new, told = BAD[case]
    runtime.prepare(deterministic=True)  # as every run does
    before = shared_state.now(shared_state.folder())
    assert old in GOOD
    text = GOOD.replace(old, new)
    try:
        experiment = preset(tmp_path, text).experiment
    except ValueError as fault:
        found = str(fault)
    else:
        found = check.fault(experiment)
    assert told in found and "\n" not in found and len(found) < 400
    assert not found or found.startswith("points.py")
    assert shared_state.now(shared_state.folder()) == before
    assert torch_itself.put_back() == ""  # that was done


def test_what_torch_replaces_itself_stays_and_all_else_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_itself.remember()
    step, mean = torch.optim.ASGD.step, torch.mean
    torch.optim.ASGD([nn.Parameter(torch.ones(1))])  # torch wraps its step
    assert torch.optim.ASGD.step is not step and torch_itself.put_back() == ""
    monkeypatch.setattr(torch.optim.SGD, "step", torch.optim.ASGD.step)  # as a file does
    assert (
        torch_itself.put_back() == "replaces torch.optim.SGD.step" and torch.optim.SGD.step is not torch.optim.ASGD.step
    )
    monkeypatch.setattr(torch, "mean", lambda tensor: tensor)  # as an installed package does
    assert torch_itself.put_back() == "" and torch.mean is not mean
    monkeypatch.undo()
    assert torch_itself.put_back() == "" and torch.mean is mean


def test_another_run_begins_with_torch_as_it_was(tmp_path: Path) -> None:
    expected = losses(trainer(tmp_path))
    made = trainer(tmp_path, text=GOOD.replace("    return F.cross", "    F.gelu = F.relu\n    return F.cross"))
    next(made.steps())
    with pytest.raises(StudioFileError, match=r"line 39: it replaces torch\.nn\.functional\.gelu for the whole"):
        made.subject.end()
    next(made.steps())  # is left without an end
    assert losses(trainer(tmp_path)) == expected


def test_a_file_is_not_blamed_for_another_run_that_begins_meanwhile(tmp_path: Path) -> None:
    begun = trainer(tmp_path, "run.deterministic=false")
    runtime.prepare(deterministic=False)
    program = begun.subject.program  # pyright: ignore[reportAttributeAccessIssue]
    program._guard("", lambda: runtime.prepare(deterministic=True))
    assert torch.get_deterministic_debug_mode() == 2  # as the other run has set it


def test_the_line_at_work_is_known_until_there_were_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckNote.begin(tmp_path / NOTE)
    note, seen = CheckNote(tmp_path / NOTE, "secret"), list[int]()
    text = """
def inner():
    look()
    return 1
def outer():
    x = [
        inner(),
        look(),
    ]
    inner(); look()
outer()
look()
"""
    before = sys.gettrace()
    for most, found in ((line_at_work.MOST, [3, 8, 3, 10, 12]), (12, [3, 0, 0, 0, 0])):
        monkeypatch.setattr(line_at_work, "MOST", most)
        seen.clear()
        try:
            line_at_work.LineAtWork("points.py", note).follow()
            exec(compile(text, "points.py", "exec"), {"look": lambda: seen.append(note.line)})
        finally:
            sys.settrace(before)
            threading.settrace(before)  # pyright: ignore[reportArgumentType] - None is allowed
        assert seen == found
    note.close()


def test_the_steps_after_which_rules_look_tell_what_the_loss_does_not_use(tmp_path: Path) -> None:
    told = [next(made.steps()).unused for made in [trainer(tmp_path)] for _ in range(20)]
    assert told == [None] * 19 + [("unused",)]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("model.first.weight = nn.Parameter(torch.ones(8, 2))", "first.weight is another parameter than the one that"),
        ("model.first = nn.Linear(2, 8)", "first.weight is another parameter than the one that was built, which"),
        ("model.more = nn.Linear(2, 2)", "more.weight came to be a parameter that requires a gradient, and no optim"),
        ("model.frozen.requires_grad_(True)", "frozen.weight came to be a parameter that requires a gradient"),
        ("model.register_buffer('mean', torch.zeros(2))", "the model has 4 buffers now, and 3 when it was built"),
        (
            "model.norm.num_batches_tracked = torch.zeros(1)",
            "a buffer is float32 of shape (1,) now, and int64 of shape () when it was built",
        ),
        ("model.zero_grad()", "the gradients were changed, as by backward() or zero_grad()"),
        ("model.zero_grad(set_to_none=False)", "the gradients were changed, as by backward() or zero_grad()"),
        ("model.first.weight.sum().backward()", "the gradients were changed, as by backward() or zero_grad()"),
        (
            "model.teacher = nn.Linear(2, 2).requires_grad_(False)",
            "the model has 4 parameters that are not trained now, and 2 when it was built",
        ),
        (
            "model.frozen.bias.data = torch.zeros(1)",
            "a parameter that is not trained is float32 of shape (1,) now, and float32 of shape (2,) when it was built",
        ),
        (
            "model.unused.data = torch.zeros(3)",
            "unused has other memory than before, which the optimizer does not hold",
        ),
        ("del model.unused", "unused is no parameter of the model any more, and the optimizer still holds it"),
        ("model.again, model.first = model.first, model.first.requires_grad_(False)", ""),
    ],
)
def test_a_parameter_that_comes_in_mid_run_ends_it_with_a_line(tmp_path: Path, what: str, told: str) -> None:
    text = GOOD.replace("class Net", "calls = []\n\n\nclass Net").replace(
        "    return F.cross", f"    calls.append(1)\n    if len(calls) == 4:\n        {what}\n    return F.cross"
    )
    made = trainer(tmp_path, text=text)
    if told:
        with pytest.raises(StudioFileError, match=rf"points\.py, line 41: {re.escape(told)}.*wanted: (the |each one )"):
            losses(made)
    else:
        losses(made)  # another name for the same parameters, which are frozen
    assert made.step == (2 if told else 6)


def test_a_good_file_passes_the_check(tmp_path: Path) -> None:
    for sets in ([], ["precision.dtype=bf16", "problem.noise=0.1", "model.init=he"]):
        assert check.fault(preset(tmp_path).experiment.with_texts(sets)) == ""


def test_a_parameter_may_stand_at_two_names_and_beside_another(tmp_path: Path) -> None:
    made = """
        both = torch.ones(5)
        self.unused, self.other = nn.Parameter(both[:3]), nn.Parameter(both[3:])
        self.tied, self.all = self.last.weight, [self.last.weight, torch.ones(3), self.last]
        self.limited = nn.utils.spectral_norm(nn.Linear(2, 2))
"""
    text = GOOD.replace("        self.last = nn.Linear(hidden, 2)\n", f"        self.last = nn.Linear(hidden, 2){made}")
    assert made in text and check.fault(preset(tmp_path, text).experiment) == ""


def test_a_step_that_fails_names_the_line_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("    points = ", "    assert generator.get_state().sum() == 0 or not calls.append(1), calls\n"
                        "    assert len(calls) < 4, 'no more'\n    points = ").replace(
                        "class Net", "calls = []\n\n\nclass Net")  # fmt: skip
    made = trainer(tmp_path, text=text)
    with pytest.raises(StudioFileError, match=r"points\.py, line 38: AssertionError in get_batch: no more"):
        losses(made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")
@pytest.mark.filterwarnings("ignore:.*fork")  # of Python, in a process with threads
def test_a_process_that_a_file_forks_off_in_mid_run_does_not_train_too(tmp_path: Path) -> None:
    text = GOOD.replace("class Net", "calls, forked = [], []\n\n\nclass Net").replace(
        "    points = ",
        "    calls.append(1)\n    if len(calls) == 4:\n        forked.append(__import__('os').fork())\n"
        f"        open({str(tmp_path / 'forked')!r}, 'a').write(str(forked[0] or ''))\n    points = ",
    )
    made, process = trainer(tmp_path, text=text), os.getpid()
    losses(made)
    if os.getpid() != process:
        os._exit(0)  # it went on
    code = os.waitstatus_to_exitcode(os.waitpid(int((tmp_path / "forked").read_text()), 0)[1])
    assert code == WENT_ON


def test_nothing_is_run_that_nobody_agreed_to(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w').close()\n" + GOOD.replace("from __future__ import annotations\n", "")
    unknown = preset(tmp_path, text, agreed=False)
    assert unknown.experiment.studio_file is not None
    with pytest.raises(StudioFileError, match="never agreed to"):
        Trainer(unknown.experiment)
    assert not mark.exists()
    trust.agree(unknown.experiment.studio_file.sha256)
    Trainer(unknown.experiment)
    assert mark.exists()


def test_nothing_is_run_with_a_text_that_nobody_agreed_to(tmp_path: Path) -> None:
    known, mark = preset(tmp_path, WRITING), tmp_path / "mark"
    file, given = known.experiment.studio_file, known.experiment.with_value("model_file.log", str(mark))
    assert file is not None
    with pytest.raises(StudioFileError, match="never agreed to"):
        Trainer(given)
    assert not mark.exists()
    trust.agree(*file.hashes({"log": str(mark), "hidden": 5}))
    Trainer(given)
    assert mark.exists()


def test_trees_keep_their_kinds() -> None:
    tree = {"a": torch.ones(2), "b": [1, None, (torch.zeros(3), "x")]}
    found = trees.map_tensors(tree, lambda tensor: tensor + 1)
    assert found["a"].tolist() == [2, 2] and found["b"][2][0].tolist() == [1, 1, 1] and found["b"][2][1] == "x"
    assert [tensor.numel() for tensor in trees.tensors(tree)] == [2, 3]
    assert trees.fault(tree) == "" and trees.fault({"a": object()}) == "object"
    counted = trees.map_tensors(defaultdict(list, a=torch.ones(1)), torch.clone)
    assert trees.fault(defaultdict(list, a=torch.ones(1))) == "" and type(counted) is dict and counted["a"] == 1
    ordered = OrderedDict(x=torch.ones(1), size=torch.ones(2, 3).shape, found=torch.ones(2).sort())
    assert trees.fault(ordered) == "" and len(trees.tensors(ordered)) == 3
    again = trees.map_tensors(ordered, torch.clone)
    assert [type(each) for each in (again, *again.values())] == [type(each) for each in (ordered, *ordered.values())]
    assert trees.fault(type("Own", (list,), {})()) == "Own"
    nested: list = []
    nested.append(nested)
    assert "deep" in trees.fault(nested)
