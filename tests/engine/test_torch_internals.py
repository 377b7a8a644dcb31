"""Without a private part of torch, training goes on with the same numbers, and says what is lost."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.distributed_c10d
import torch.utils._python_dispatch  # so that its names can be taken away
import torch.utils.flop_counter

from gradstudio.core import presets
from gradstudio.core.row import Row
from gradstudio.engine import notices
from gradstudio.engine.own_model import torch_itself
from gradstudio.engine.passes import operation_calls
from gradstudio.engine.snapshot import Snapshot
from gradstudio.engine.step import reading
from gradstudio.engine.torch_internals import autograd_nodes, parts, plain_optimizers, tensor_lists
from gradstudio.engine.torch_internals.parts import INTERNALS
from gradstudio.session.machine import doctor
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.worker import Worker

INTERNAL = Path(parts.__file__).parent
ENGINE = INTERNAL.parent
STEPS = 8
FIELDS = [field.name for field in fields(Row) if field.name not in ("step_seconds", "layers")]
Take = Callable[[pytest.MonkeyPatch], None]


def wrong(*_: object, **__: object) -> Any:
    raise RuntimeError("of another version")


def gone(owner: object, name: str) -> Take:
    return lambda monkeypatch: monkeypatch.delattr(owner, name)


def raises(owner: object, name: str) -> Take:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, wrong)


def gives(owner: object, name: str, value: Any) -> Take:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


class Hidden:
    """An attribute of objects that torch itself sees, and GradStudio does not, or sees as `value`."""

    def __init__(self, name: str, value: Callable[[], Any] | None) -> None:
        self.name, self.value = name, value

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        if sys._getframe(1).f_globals["__name__"].startswith("gradstudio."):
            if self.value is None:
                raise AttributeError(self.name)
            return self.value()
        return vars(owner)[self.name]

    def __set__(self, owner: Any, value: Any) -> None:
        vars(owner)[self.name] = value


def hidden(kind: type, name: str, value: Callable[[], Any] | None = None) -> Take:
    return lambda monkeypatch: monkeypatch.setattr(kind, name, Hidden(name, value), raising=False)


def unwrapping(of: str) -> Take:
    """This method cannot be unwrapped: torch wraps it in another way."""

    def put(monkeypatch: pytest.MonkeyPatch) -> None:
        unwrap = inspect.unwrap

        def unwrap_others(function: Any, **options: Any) -> Any:
            return wrong() if getattr(function, "__name__", "") == of else unwrap(function, **options)

        monkeypatch.setattr(inspect, "unwrap", unwrap_others)

    return put


class Forgetful(OrderedDict):
    """A dict that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class Without:
    """A module of torch as whoever imports it now finds it, without a name that torch itself goes on using."""

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name = module, name

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            raise AttributeError(name)
        return getattr(self.module, name)


class HiddenHooks:
    """The hooks of a tensor, which torch alone finds."""

    def __get__(self, owner: Any, _: Any) -> Any:
        if owner is None:
            return self
        if sys._getframe(1).f_globals["__name__"].startswith("gradstudio."):
            raise AttributeError("_backward_hooks")
        return vars(torch._C.TensorBase)["_backward_hooks"].__get__(owner)

    def __set__(self, owner: Any, value: Any) -> None:
        vars(torch._C.TensorBase)["_backward_hooks"].__set__(owner, value)


class Unseeing:
    """A mode that is entered and never called."""

    _should_skip_dynamo = classmethod(lambda cls: True)

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


DISPATCH, OVERLOAD = torch.utils._python_dispatch, torch._ops.OpOverload
DETERMINISTIC = type(torch.utils.deterministic)
# What may become of each part in another version of torch.
VERSIONS: Any = torch._C._autograd
WAYS: dict[str, list[Take]] = {
    "TorchDispatchMode._should_skip_dynamo": [
        gone(DISPATCH.TorchDispatchMode, "_should_skip_dynamo"),
    ],
    "torch.utils._python_dispatch": [
        lambda monkeypatch: monkeypatch.setitem(sys.modules, "torch.utils._python_dispatch", None),
        gone(DISPATCH, "TorchDispatchMode"),
        raises(DISPATCH.TorchDispatchMode, "__enter__"),
        gives(DISPATCH, "TorchDispatchMode", Unseeing),
    ],
    "OpOverload._schema": [hidden(OVERLOAD, "_schema"), hidden(OVERLOAD, "_schema", lambda: "add(Tensor, Tensor)")],
    "torch._subclasses.fake_tensor": [
        gone(torch._subclasses.fake_tensor, "FakeTensorMode"),
        gives(torch._subclasses.fake_tensor, "FakeTensorMode", object),
    ],
    "torch.utils.flop_counter.flop_registry": [
        gone(torch.utils.flop_counter, "flop_registry"),
        gives(torch.utils.flop_counter, "flop_registry", {}),
    ],
    "torch.ops.mkldnn._is_mkldnn_bf16_supported": [raises(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")],
    "OpOverload._op": [hidden(OVERLOAD, "_op"), hidden(OVERLOAD, "_op", lambda: torch.add)],
    "torch._foreach_norm": [
        gone(torch, "_foreach_norm"),
        gives(torch, "_foreach_norm", lambda tensors, kind: [tensor.sum() for tensor in tensors]),
    ],
    "torch._foreach_mul_": [gone(torch, "_foreach_mul_"), gives(torch, "_foreach_mul_", lambda one, other: None)],
    "torch._foreach_copy_": [gone(torch, "_foreach_copy_"), raises(torch, "_foreach_copy_")],
    "Optimizer.add_param_group.__wrapped__": [unwrapping("add_param_group")],
    "Optimizer.step.__wrapped__": [unwrapping("step")],
    "GradScaler._per_optimizer_states": [
        hidden(torch.amp.GradScaler, "_per_optimizer_states"),
        hidden(torch.amp.GradScaler, "_per_optimizer_states", dict),
    ],
    "torch._C._current_autograd_node": [
        gone(torch._C, "_current_autograd_node"),
        gives(torch._C, "_current_autograd_node", lambda: None),
    ],
    "torch._C._autograd._unsafe_set_version_counter": [
        gone(VERSIONS, "_unsafe_set_version_counter"),
        gives(VERSIONS, "_unsafe_set_version_counter", lambda *_: None),
    ],
    "autograd.Node._input_metadata": [
        raises(autograd_nodes, "attrgetter")
    ],  # nodes are not Python's, and stay as they are
    "torch._C._push_on_torch_function_stack": [
        gone(torch._C, "_push_on_torch_function_stack"),
        gives(torch._C, "_push_on_torch_function_stack", lambda mode: None),
    ],
    "torch.Tensor._backward_hooks": [
        lambda monkeypatch: monkeypatch.setattr(torch.Tensor, "_backward_hooks", HiddenHooks(), raising=False),
        # dropped without a word
        lambda monkeypatch: monkeypatch.setattr(autograd_nodes, "OrderedDict", Forgetful),
    ],
    "torch.FloatTensor": [gone(torch, "FloatTensor"), gives(torch, "FloatTensor", list)],
    "torch._C._is_any_autocast_enabled": [
        gone(torch._C, "_is_any_autocast_enabled"),
        gives(torch._C, "_is_any_autocast_enabled", lambda: False),
    ],
    "torch._dynamo.eval_frame.cached_backends": [
        # torch imports it for seconds, when it is asked for
        lambda patch: patch.setattr(torch._dynamo, "eval_frame", Without(torch._dynamo.eval_frame, "cached_backends")),
        lambda patch: patch.setattr(torch._dynamo.eval_frame, "cached_backends", OrderedDict()),
    ],
    "torch._C._dynamo.eval_frame.get_eval_frame_callback": [
        gone(torch._C._dynamo.eval_frame, "get_eval_frame_callback"),
        gives(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None),
    ],
    "torch._C._functorch.peek_interpreter_stack": [
        gone(torch._C._functorch, "peek_interpreter_stack"),
        gives(torch._C._functorch, "peek_interpreter_stack", lambda: None),
    ],
    "torch.distributed.distributed_c10d._get_default_store": [
        gone(torch.distributed.distributed_c10d, "_get_default_store")
    ],
    "torch.nn.utils.clip_grad": [unwrapping("_clip_grads_with_norm_"), unwrapping("clip_grad_value_")],
    "torch.segment_reduce": [gone(torch, "segment_reduce"), raises(torch, "segment_reduce")],
    "torch.utils.deterministic.fill_uninitialized_memory": [
        gone(DETERMINISTIC, "fill_uninitialized_memory"),
        gives(DETERMINISTIC, "fill_uninitialized_memory", None),
    ],
}
# In `make test` a training goes on without a part that is gone; that one which does the wrong thing is passed over too is
# tried there without a training.
EVERY_WAY = [
    pytest.param(name, way, id=f"{name} {number}", marks=pytest.mark.thorough if number else ())
    for name, ways in WAYS.items() for number, way in enumerate(ways)
]  # fmt: skip


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every part is tried again, and what was told is told again."""
    for each in INTERNALS:
        monkeypatch.setattr(each, "_found", each._found)
        monkeypatch.setattr(each, "_problem", each._problem)
    monkeypatch.setattr(torch_itself, "_before", None)  # else a run puts back what is taken away
    monkeypatch.setattr(notices, "_told", {})
    monkeypatch.setattr(notices, "_untold", [])
    parts.forget()
    operation_calls.writing_form.cache_clear()
    yield
    plain_optimizers.without_compiler.cache_clear()
    operation_calls.writing_form.cache_clear()


KNOBS = [
    ["optimizer.kind=adam", "clipping.kind=norm", "clipping.max_norm=0.05", "accumulation.steps=2"],
    ["model.kind=transformer", "problem.task=characters", "problem.seq_len=8", "clipping.kind=per_tensor"],
    ["precision.dtype=fp16", "precision.init_scale=1e6", "model.kind=cnn"],
]
_expected: dict[int, tuple[list[str], bytes]] = {}


def trained(build: Any, knobs: list[str]) -> tuple[list[str], bytes]:
    """The rows of a run that is rewound in between, all but its times, and the weights that it ends with."""
    trainer = build(*knobs)
    rows = []
    for _ in range(2):
        for row in islice(trainer.steps(), STEPS // 2):
            rows.append(repr([getattr(row, name) for name in FIELDS]) + row.layers.tobytes().hex())
        state = Snapshot.take(trainer)
        next(trainer.steps())
        state.restore(trainer)
    return rows, trainer.flat.weights.data.numpy().tobytes()


def expected(build: Any, number: int) -> tuple[list[str], bytes]:
    if number not in _expected:
        _expected[number] = trained(build, KNOBS[number])
        assert parts.problems() == [] and notices.take() == []
        parts.forget()
        operation_calls.writing_form.cache_clear()
    return _expected[number]


def test_every_part_is_taken_away_somewhere() -> None:
    assert set(WAYS) == {each.name for each in INTERNALS} and len(WAYS) == len(INTERNALS)
    assert parts.problems() == []


AT_FIRST_USE: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("around", AT_FIRST_USE)
def test_a_part_is_there_wherever_it_is_first_used(around: str) -> None:
    parts.forget()
    with AT_FIRST_USE[around]():
        assert parts.problems() == [] and notices.take() == []


@pytest.mark.parametrize(("name", "take"), [each.values for each in EVERY_WAY if each.marks])
def test_what_does_the_wrong_thing_is_named_as_missing(monkeypatch: pytest.MonkeyPatch, name: str, take: Take) -> None:
    with monkeypatch.context() as without:
        take(without)
        problems = parts.problems()
    assert any(name in problem for problem in problems)


@pytest.mark.parametrize(("name", "take"), EVERY_WAY)
def test_training_goes_on_with_the_same_bits(
    build: Any, monkeypatch: pytest.MonkeyPatch, name: str, take: Take
) -> None:
    wanted = [expected(build, number) for number in range(len(KNOBS))]
    with monkeypatch.context() as without:
        take(without)
        found = [trained(build, knobs) for knobs in KNOBS]
        problems = parts.problems()
    assert found == wanted
    assert any(name in problem for problem in problems)
    told = notices.take()
    assert set(told) == set(problems) and all(text.endswith(".") for text in told)


def test_training_goes_on_without_any_of_them(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("torch._dynamo")  # torch loads it where its wrappers stay, and cannot without these parts
    wanted = [expected(build, number) for number in range(len(KNOBS))]
    with monkeypatch.context() as without:
        for name, (take, *_) in WAYS.items():
            if name != "TorchDispatchMode._should_skip_dynamo":  # which goes with the module that it is in
                take(without)
        found = [trained(build, knobs) for knobs in KNOBS]
        problems = parts.problems()
    assert found == wanted
    assert len(problems) == len(INTERNALS)


def test_steps_that_are_read_later_are_read_at_once_without_segment_sums(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reading.LAG, "cpu", 4)
    later = build()
    assert [len(later.advance()) for _ in range(4)] == [0] * 4
    monkeypatch.delattr(torch, "segment_reduce")
    parts.forget()
    at_once = build()
    assert [len(at_once.advance()) for _ in range(4)] == [1] * 4
    assert torch.equal(later.flat.weights, at_once.flat.weights)


def run_until_it_diverges() -> Run:
    preset = presets.load("root-at-zero")
    run = Run(preset, preset.experiment.with_texts(["run.steps=70", "run.device=cpu"]))
    worker = Worker(run, snapshots=Snapshots())
    worker.start()
    worker.join()
    return run


PROVENANCE = [
    "torch.utils._python_dispatch",
    "OpOverload._schema",
    "torch._C._current_autograd_node",
]


@pytest.mark.parametrize(("name", "take"), [each for each in EVERY_WAY if each.values[0] in PROVENANCE])
def test_a_run_that_diverges_ends_with_its_finding(monkeypatch: pytest.MonkeyPatch, name: str, take: Take) -> None:
    with_all = run_until_it_diverges()
    assert with_all.provenance is not None
    parts.forget()
    operation_calls.writing_form.cache_clear()
    with monkeypatch.context() as without:
        take(without)
        run = run_until_it_diverges()
    assert (run.status, run.first_nonfinite_step) == ("nonfinite", with_all.first_nonfinite_step)
    assert set(run.findings) == set(with_all.findings) and "nonfinite" in {event.kind for event in run.events}
    assert [event.text for event in run.events if event.kind == "notice" and name in event.text]
    if name == "torch._C._current_autograd_node":
        assert run.provenance is not None and run.provenance.operation == with_all.provenance.operation
    else:
        assert run.provenance is None


def test_a_notice_is_told_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "_foreach_norm")
    for _ in range(2):
        tensor_lists.norms([torch.ones(2)])
        parts.forget()
    (told,) = notices.take()
    assert told == (
        "Clipping takes tensor by tensor: torch._foreach_norm is not there; training is slower, with the same numbers."
    )
    assert notices.take() == []


def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check.ok for check in doctor._torch_internals()] == [True]
    parts.forget()
    with monkeypatch.context() as without:
        WAYS["OpOverload._schema"][0](without)
        (check,) = doctor._torch_internals()
    assert not check.ok and "OpOverload._schema" in check.text and "tried with torch" in check.advice


def test_what_only_takes_time_is_no_problem_of_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delattr(torch, "_foreach_norm")
        (check,) = doctor._torch_internals()
    assert check.ok and "training is slower, with the same numbers" in check.text


def test_the_command_line_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, gradstudio: Any, small: Path) -> None:
    WAYS["OpOverload._schema"][0](monkeypatch)
    assert "OpOverload._schema" in (answer := gradstudio("run", small, "--steps", 9)).err
    assert answer.code == 0


def test_passes_are_not_recorded_where_a_person_says_so(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = expected(build, 0)
    monkeypatch.setenv("GRADSTUDIO_RECORD", "0")
    trainer = build(*KNOBS[0])
    list(islice(trainer.steps(), 5))
    assert not trainer.passes._known
    assert trained(build, KNOBS[0]) == wanted
    assert notices.take() == []
    assert "GRADSTUDIO_RECORD=0" in doctor._torch_internals()[0].text


# ---- no other file uses a private name


OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # public, in spite of their names


def private_uses(path: Path, own: set[str]) -> list[str]:
    """Every use of a private name that is not of the engine itself, and of torch.jit, as 'line: what'."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(
                value=ast.Name(id="torch" | "inspect"), attr="jit" | "segment_reduce" | "unwrap" as name
            ):
                names = [f"_{name}"]
            case ast.Attribute(attr=name):
                names = [name] if name not in own else []
            case ast.Import(names=aliases):
                names = [part for alias in aliases for part in alias.name.replace("jit", "_jit").split(".")]
            case ast.ImportFrom(module=module, names=aliases) if (module or "").startswith("torch"):
                parts = [*(module or "").split("."), *(alias.name for alias in aliases)]
                names = ["_jit" if part == "jit" else part for part in parts]
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                names = [name]
        found += [
            f"{node.lineno}: {name}"
            for name in names
            if name.startswith("_") and name not in OF_NAMED_TUPLES and not name.endswith("__")
        ]
    return found


def names_of_the_engine(folder: Path) -> set[str]:
    """Private names that classes and modules of the engine define."""
    own = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    own.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    own.add(name)
    return own


def test_private_names_are_used_in_one_folder() -> None:
    own = names_of_the_engine(ENGINE)
    own -= {"_should_skip_dynamo"}
    own |= {"_exit"}  # of os, which documents it
    own |= {"_forkserver", "_forkserver_alive_fd"}  # of multiprocessing, asked for where they are
    uses = {path: private_uses(path, own) for path in ENGINE.rglob("*.py")}
    assert {path.name: found for path, found in uses.items() if found and path.parent != INTERNAL} == {}
    assert sum(len(uses[path]) for path in INTERNAL.glob("*.py")) > 15


@pytest.mark.parametrize("line", [
    "torch._foreach_norm([])", "torch.jit.script(f)", "from torch.utils._python_dispatch import TorchDispatchMode",
    "import torch._C", "import torch.jit", "from torch import jit", "from torch import _C", "function._schema.name",
    "scaler._per_optimizer_states", "getattr(torch, '_foreach_norm')", "inspect.unwrap(step)",
    "torch.segment_reduce(x, 'sum')", "torch.ops.aten._softmax(x)",
])  # fmt: skip
def test_a_planted_private_name_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(f"class A:\n    def _b(self):\n        self._c = cls._d\n{line}\n")
    assert len(private_uses(tmp_path / "a.py", names_of_the_engine(tmp_path))) >= 1


def test_own_names_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    def _b(self):\n        self._c = 1\nA()._b()\nA()._c, A().__class__\n"
    )
    assert private_uses(tmp_path / "a.py", names_of_the_engine(tmp_path)) == []
