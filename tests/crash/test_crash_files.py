"""Crash files of trainings with a planted fault: written, made again, made smaller, and tried with fixes."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import gradstudio
from crash.faults import FAULTS
from gradstudio.crash import crash_fixes, recorded_training, shrinking
from gradstudio.crash.call_values import CannotCall, function_of
from gradstudio.engine.torch_internals import autograd_nodes
from gradstudio.session.files import crash_file, crash_reading
from gradstudio.session.files.crash_file import MOST_STEPS, CrashFile, CrashFileError
from gradstudio.session.library.requests import Request
from gradstudio.watching import training_watch
from gradstudio.watching.recorder import recorder
from gradstudio.watching.recorder.crash_writer import CrashWriter
from gradstudio.watching.recorder.kept_state import KeptState

WRONG_CALLS = RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError  # what torch raises


@pytest.fixture(scope="module", autouse=True)
def nothing_is_compiled() -> Iterator[None]:
    """Another test of this process may have compiled something, which no script here does."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(recorder, "may_be_compiled", lambda: False)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The crash file of a training with a fault; made once."""
    made: dict[str, Path] = {}

    def path_of(name: str) -> Path:
        if name == "own_derivative" and autograd_nodes.TOLD_RESULTS.get() is None:
            pytest.skip(f"it needs {autograd_nodes.TOLD_RESULTS.name}")
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            FAULTS[name][0](library=folder / "runs.db").close()
            (made[name],) = folder.glob("crashes/*.crash")
        return made[name]

    yield path_of


@pytest.fixture(autouse=True)
def one_watcher_a_test() -> Iterator[None]:
    yield
    if (watcher := training_watch.current()) is not None:
        watcher.close("finished", "")


def read(path: Path) -> CrashFile:
    return crash_reading.read(path)


def again(crash: CrashFile) -> crash_file.RecordedBirth:
    return recorded_training.replay_steps(recorded_training.Training(recorded_training.load(crash)))


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_recorded_made_again_and_healed(recorded: Callable[[str], Path], name: str) -> None:
    crash = read(recorded(name))
    assert crash.structure.unknown == "" and crash.structure.born is not None
    found = again(crash)
    assert found == crash.structure.born and found.phase != "none"
    tried = crash_fixes.try_fixes(recorded_training.load(crash))
    assert not tried.unchanged.is_finite
    healed = [each for each in tried.trials[:2] if each.is_finite and each.change.lines]
    assert any(word in each.change.name for each in healed for word in FAULTS[name][1])


@pytest.mark.parametrize("name", ["overflow_in_exp", "zero_by_zero_in_a_norm", "overflow_in_fp16", "transformer"])
def test_a_shrunk_fault_is_a_script_of_a_few_lines(recorded: Callable[[str], Path], name: str) -> None:
    found = shrinking.shrink(recorded_training.load(read(recorded(name))))
    assert len(found.script) < 1000
    names: dict[str, Any] = {}
    exec(found.script, names)
    assert not torch.isfinite(names["result"]).all()


def test_fixes_that_do_not_hold_are_named() -> None:
    change = crash_fixes.Change("skip the batch")
    tried = crash_fixes.FixTrials([crash_fixes.Trial(change, broke_at=0)], crash_fixes.Trial(change, broke_at=0))
    assert tried.words.startswith("0 of 1 fix hold (skip the batch): ")


def test_of_a_batch_that_no_call_broke_the_examples_are_named(recorded: Callable[[str], Path]) -> None:
    with pytest.raises(CannotCall, match=r"1 of 16 examples of its batch still gives it: number 5$"):
        shrinking.shrink(recorded_training.load(read(recorded("bad_batch"))))


def test_a_call_that_writes_into_what_it_takes_is_shrunk(tmp_path: Path) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watched = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    for number in range(4):
        optimizer.zero_grad()
        scores = model(torch.randn(8, 6)).square() + (1 if number < 3 else -1e3)
        scores.log_()
        scores[:, 0] = 0  # after that the call has other values before it
        scores.sum().backward()
        optimizer.step()
    watched.close()
    (path,) = tmp_path.glob("crashes/*.crash")
    found = shrinking.shrink(recorded_training.load(read(path)))
    names: dict[str, Any] = {}
    exec(found.script, names)
    assert names["x0"].numel() == 1 and "log_(x0)" in found.script and names["x0"].isnan().all()


def test_the_recorded_steps_have_the_losses_that_the_script_had(recorded: Callable[[str], Path]) -> None:
    crash = read(recorded("transformer"))
    training = recorded_training.Training(recorded_training.load(crash))
    for step in crash.structure.steps[:-1]:
        # Adam makes a step of a gradient that is rounding alone, so that the steps behind differ a little more
        assert training.step(step).loss == pytest.approx(step.loss, rel=0.02)
    assert len(crash.structure.steps) > 4


@pytest.mark.parametrize("name", ["own_derivative", "parts_of_a_model", "packed_sequences"])
def test_the_recorded_steps_have_the_gradients_that_the_script_had(recorded: Callable[[str], Path], name: str) -> None:
    crash = read(recorded(name))
    training = recorded_training.Training(recorded_training.load(crash))
    for step in crash.structure.steps[:-1]:
        again = training.step(step)
        assert (again.loss, again.norm) == (pytest.approx(step.loss, rel=1e-4), pytest.approx(step.norm, rel=1e-4))


def test_tensors_that_are_gone_before_the_file_is_written_are_not_mixed_up() -> None:
    """Some are made as the model is called again, one after the other, and Python reuses their addresses."""
    writer = CrashWriter(recorder.Recorder(8, None), {})
    names = [writer._put(f"{number}", torch.tensor(float(number), requires_grad=True) * 1) for number in range(500)]
    assert [float(writer._tensors[name]) for name in names] == list(range(500))


def test_weights_whose_squares_are_beyond_float32_are_finite(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    for step in range(40):
        optimizer.zero_grad()
        (model(torch.randn(16, 4)) ** 2).mean().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.1 if step < 30 else 1e6
    watched.close()
    (path,) = tmp_path.glob("crashes/*.crash")
    crash = read(path)
    born = crash.structure.born
    assert crash.structure.unknown == "" and born is not None and (born.phase, born.module) == ("forward", "2")


def test_another_process_makes_the_same_step_again(recorded: Callable[[str], Path], tmp_path: Path) -> None:
    path = recorded("zero_by_zero_in_a_norm")
    command = [sys.executable, "-m", "gradstudio", "crash", "replay", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["same"] and told["born"]["line"].startswith("faults.py:")


def test_a_gradient_that_breaks_is_found_in_the_derivative(tmp_path: Path) -> None:
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db", record=1)
    for number in range(4):
        optimizer.zero_grad()
        batch = torch.ones(3, 4) * (number < 3)
        torch.sqrt(model(batch).pow(2).sum(1)).sum().backward()  # its derivative at 0 is 0 / 0
        optimizer.step()
    one.close()
    (path,) = tmp_path.glob("crashes/*.crash")
    crash = read(path)
    assert crash.structure.born is not None and crash.structure.born.phase == "backward"
    assert again(crash) == crash.structure.born and crash.structure.born.do.endswith("sqrt")
    assert [step.number for step in crash.structure.steps] == [2, 3]
    assert ".backward(" in shrinking.shrink(recorded_training.load(crash)).script


def test_a_batch_that_the_script_writes_into_is_copied(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    batch = torch.zeros(8, 4)  # the same memory for each batch
    for number in range(12):
        batch.copy_(torch.randn(8, 4) if number < 11 else torch.full((8, 4), float("inf")))
        optimizer.zero_grad()
        (model(batch) ** 2).mean().backward()
        optimizer.step()
    one.close()
    (path,) = tmp_path.glob("crashes/*.crash")
    crash = read(path)
    assert crash.structure.unknown == "" and again(crash).phase == "given"


def test_calls_after_the_backward_pass_are_not_heard(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watched = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    for _ in range(2):
        loss = nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 1))
        on_stack = torch._C._len_torch_function_stack()
        loss.backward()
        assert torch._C._len_torch_function_stack() == on_stack - 1
        optimizer.step()
    watched.close()


def test_the_state_is_copied_though_the_optimizer_makes_it_anew() -> None:
    model = nn.Linear(4, 3)
    optimizer, state, found = torch.optim.Adam(model.parameters(), 0.1), KeptState(), []
    for number in range(4):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # other tensors, of which some lie elsewhere
        state.take(number, list(model.parameters()), [optimizer])
        found = [each.clone() for kept in optimizer.state.values() for each in kept.values()]
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    ((_, plan),) = state.optimizers
    assert [key for _, key, _ in plan] == ["step", "exp_avg", "exp_avg_sq"] * 2
    assert all(map(torch.equal, [value for _, _, value in plan], found))
    assert not torch.equal(model.weight, state.copies_of_weights[0])


def test_raise_names_the_file_and_zero_records_nothing(tmp_path: Path) -> None:
    for record in (1, 0):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        library = tmp_path / str(record) / "runs.db"
        one = gradstudio.watch(model, optimizer, library=library, on_nonfinite="raise", record=record)
        with pytest.raises(FloatingPointError) as raised:
            for number in range(3):
                optimizer.zero_grad()
                (model(torch.ones(2, 4)) / (number != 2)).sum().backward()
                optimizer.step()
        one.close()
        assert (".crash" in str(raised.value)) == bool(record)
        assert len(list(library.parent.glob("crashes/*"))) == record


def test_no_secret_and_no_path_is_in_the_file(
    recorded: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "SECRET-TOKEN")
    monkeypatch.setattr(sys, "argv", ["train.py", "--password", "SECRET-TOKEN"])
    torch.manual_seed(0)
    FAULTS["log_of_zero"][0](library=tmp_path / "runs.db").close()
    (path,) = tmp_path.glob("crashes/*.crash")
    data = path.read_bytes()
    for secret in ("SECRET-TOKEN", str(Path.home()), str(tmp_path), os.getcwd(), str(Path(__file__).parent)):
        assert secret.encode() not in data


def test_what_a_script_puts_into_a_group_of_parameters_is_not_in_the_file(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    groups = [{"params": model.parameters(), "token": "SECRET-TOKEN"}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    watched = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    for number in range(3):
        (model(torch.ones(3, 4)) * (1 if number < 2 else math.nan)).sum().backward()
        optimizer.step()
    watched.close()
    (path,) = tmp_path.glob("crashes/*.crash")
    assert b"SECRET-TOKEN" not in path.read_bytes()


def test_it_is_a_file_of_safetensors(recorded: Callable[[str], Path]) -> None:
    data = recorded("bad_batch").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert all(isinstance(each, str) for each in header.pop("__metadata__").values())
    assert max(each["data_offsets"][1] for each in header.values()) == len(data) - 8 - length


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_is_killed_while_it_writes_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "half.crash"
    structure = crash_file.Structure(reason="test", step=0)
    end = crash_file.TensorToWrite("x", "U8", (9,), lambda file: (file.write(b"half"), file.flush(), os._exit(9)))
    if (child := os.fork()) == 0:
        crash_file.write(path, structure, [end])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9 and not path.exists()


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        root = entries.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient / (2 * ctx.saved_tensors[0])


broken: set[str] = set()


class Switched(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) / (0 if broken else 1)


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (Root.apply, "the derivative of Root is the script's own, which no crash file holds"),
        (torch.square, ""),
    ],
)
def test_a_step_that_is_another_one_when_made_again_is_not_told_as_this_one(
    root: Any, why: str, tmp_path: Path
) -> None:
    """The model has other code since step 3: the steps before it are left out, which it would break too."""
    model = Switched(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db", record=1)
    for number in range(4):
        broken.update(["now"] * (number == 3))
        optimizer.zero_grad()
        root(model(torch.ones(2, 4)) ** 2).sum().backward()
        optimizer.step()
    watched.close()
    broken.clear()
    (path,) = tmp_path.glob("crashes/*.crash")
    made = read(path).structure
    assert made.unknown == why and [each.number for each in made.steps] == ([] if why else [3])
    assert why or (made.born is not None and (made.born.step, made.born.do) == (3, "torch.Tensor.div"))


def test_two_networks_that_train_against_each_other_are_replayed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    generator, judge = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
    of_generator, of_judge = (torch.optim.Adam(each.parameters()) for each in (generator, judge))
    watches = [
        gradstudio.watch(one, each, library=tmp_path / "runs.db")
        for one, each in ((generator, of_generator), (judge, of_judge))
    ]
    for step in range(12):
        made = generator(torch.randn(16, 4))
        real, fake = judge(torch.randn(16, 8) + (900 if step == 10 else 2)), judge(made.detach())
        of_judge.zero_grad()
        (-(torch.log(real) + torch.log(1 - fake)).mean() - (torch.log(1 - real).mean() if step == 10 else 0)).backward()
        of_judge.step()
        of_generator.zero_grad()
        (-torch.log(judge(made)).mean()).backward()
        of_generator.step()
    for each in watches:
        each.close()
    files = [read(path).structure for path in tmp_path.glob("crashes/*.crash")]
    assert [each.unknown for each in files] == ["", ""]
    assert {each.born.do for each in files if each.born is not None} >= {"torch.log"}


# ---- files of somebody else


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_file_is_refused_or_makes_no_harm(
    recorded: Callable[[str], Path], tmp_path: Path, data: st.DataObject
) -> None:
    whole = recorded("log_of_zero").read_bytes()
    kind = data.draw(st.sampled_from(["cut", "byte", "header"]))
    changed = bytearray(whole)
    if kind == "cut":
        changed = changed[: data.draw(st.integers(0, len(whole) - 1))]
    elif kind == "byte":
        changed[data.draw(st.integers(0, min(4000, len(whole) - 1)))] ^= data.draw(st.integers(1, 255))
    else:
        changed[0:8] = struct.pack("<Q", data.draw(st.integers(0, 2**63)))
    path = tmp_path / "changed.crash"
    path.write_bytes(changed)
    try:
        crash = read(path)
    except CrashFileError as fault:
        assert "\n" not in str(fault) and len(str(fault)) < 400
        return
    assert len(changed) == len(whole)
    with contextlib.suppress(CannotCall, CrashFileError, *WRONG_CALLS):  # of which the command makes one line
        again(crash)


def written(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], whole: Path) -> Path:
    """A crash file whose structure and header are other ones."""
    data = whole.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    content = json.loads(header["__metadata__"]["gradstudio_crash"])
    change(content, header)
    header["__metadata__"] = {"gradstudio_crash": json.dumps(content)}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    return path


def of_another_version(content: dict[str, Any], header: dict[str, Any]) -> None:
    content["version"] = 99


def of_ten_gigabytes(content: dict[str, Any], header: dict[str, Any]) -> None:
    entry = header["weight 0.weight"]
    entry["shape"], entry["data_offsets"] = [50_000, 50_000], [0, 10_000_000_000]


def of_a_negative_shape(content: dict[str, Any], header: dict[str, Any]) -> None:
    header["weight 0.weight"]["shape"] = [-1, -96]


def of_another_function(content: dict[str, Any], header: dict[str, Any]) -> None:
    content["programs"][0][0]["do"] = "os.system"


def of_a_lost_tensor(content: dict[str, Any], header: dict[str, Any]) -> None:
    content["weights"]["0.weight"] = "../../etc/passwd"


def of_too_many_steps(content: dict[str, Any], header: dict[str, Any]) -> None:
    content["steps"] *= MOST_STEPS + 1


@pytest.mark.parametrize(
    "change",
    [
        of_another_version,
        of_ten_gigabytes,
        of_a_negative_shape,
        of_another_function,
        of_a_lost_tensor,
        of_too_many_steps,
    ],
)
def test_a_hostile_file_is_one_line(recorded: Callable[[str], Path], tmp_path: Path, change: Any) -> None:
    with pytest.raises(CrashFileError) as raised:
        read(written(tmp_path / "hostile.crash", change, recorded("log_of_zero")))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["torch.load", "torch.save", "torch.from_file", "torch.Tensor.numpy", "torch.Tensor.apply_", "torch.ops"]
)
def test_a_file_can_call_nothing_but_what_computes(name: str) -> None:
    with pytest.raises(CannotCall):
        function_of(name)


def with_a_derivative(do: str, *given: object) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """A change that gives the loss a derivative of a single call."""

    def change(content: dict[str, Any], header: dict[str, Any]) -> None:
        root = content["steps"][0]["passes"][0]["root"]
        call = {"do": do, "given": [{"t": 5000}, *given], "gives": [5001]}
        own = {"gradient": 5000, "calls": [call], "gives": [5001]}
        content["programs"][0].append(
            {"do": "torch.autograd.Own", "given": [{"t": root}], "gives": [root], "derivative": own}
        )

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_a_derivative("torch.load", "/etc/passwd"), "no function that a crash file may call"),
        (with_a_derivative("torch.Tensor.repeat", 10**13), "more memory than there is"),
    ],
)
def test_a_derivative_in_a_file_is_checked_like_any_call(
    recorded: Callable[[str], Path], tmp_path: Path, change: Any, told: str
) -> None:
    with pytest.raises(CannotCall, match=told):
        again(read(written(tmp_path / "changed.crash", change, recorded("log_of_zero"))))


def test_an_earlier_file_of_the_run_is_named(tmp_path: Path) -> None:
    for name in ("one-5", "one-20", "one-20.rank1", "one-30", "another-25"):
        (tmp_path / f"{name}.crash").touch()
    assert crash_file.earlier_of(tmp_path / "one-30.crash", "one") == tmp_path / "one-20.crash"
    assert crash_file.earlier_of(tmp_path / "one-5.crash", "one") is None


def test_a_call_that_makes_too_much_is_refused(recorded: Callable[[str], Path], tmp_path: Path) -> None:
    def repeat(content: dict[str, Any], header: dict[str, Any]) -> None:
        for calls in content["programs"]:
            calls[-1].update(do="torch.Tensor.repeat", given=[{"t": 0}, 1 << 20, 1 << 20], named={})

    crash = read(written(tmp_path / "large.crash", repeat, recorded("log_of_zero")))
    with pytest.raises(CannotCall, match="memory"):
        again(crash)


# ---- what makes a file, and what is done about spikes


def test_an_exception_in_the_step_is_raised_again(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    watcher = training_watch.current()
    assert watcher is not None
    with pytest.raises(IndexError):
        for number in range(4):
            labels = torch.tensor([0, 1 if number < 3 else 7])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.ones(2, 4)), labels).backward()
            optimizer.step()
    watcher.close("failed", f"the script ended with IndexError in {tmp_path / 'train.py'}: 7 is out of bounds")
    (path,) = tmp_path.glob("crashes/*.crash")
    assert read(path).structure.reason == "the script ended with IndexError in train.py: 7 is out of bounds"
    found = again(read(path))
    assert found == read(path).structure.born and found.phase == "raised" and found.do.endswith("cross_entropy")


def test_another_program_asks_for_a_file(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db", record=1)
    for number in range(5):
        if number == 3:
            one.watched_runs[0].on_request(Request("record"))
        optimizer.zero_grad()
        (model(torch.ones(2, 4)) ** 2).sum().backward()
        optimizer.step()
    one.close()
    (path,) = tmp_path.glob("crashes/*.crash")
    crash = read(path)
    assert crash.structure.reason == "asked for" and again(crash).phase == "none"


def test_the_thread_that_trains_writes_the_file(tmp_path: Path) -> None:
    """To write it, the weights are put back for a moment: what another thread asks for waits."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watched = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db", record=1)
    watcher = training_watch.current()
    assert watcher is not None
    written: list[int] = []
    for number in range(4):
        if number == 2:
            (run,) = watched.watched_runs
            postman = threading.Thread(target=run.crash.write, args=("not finite", "not finite"))
            postman.start()
            postman.join()
        written.append(len([*tmp_path.glob("crashes/*")]))
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert written == [0, 0, 0, 1]


@pytest.mark.parametrize("policy", ["skip", "rewind"])
def test_an_update_of_a_spike_is_left_out(tmp_path: Path, policy: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db", record=1, on_spike=policy)
    weights: list[torch.Tensor] = []
    for number in range(30):
        optimizer.zero_grad()
        (model(torch.randn(16, 4) * (100 if number == 25 else 1)) - 1).pow(2).mean().backward()
        optimizer.step()
        weights.append(model.weight.detach().clone())
    assert torch.equal(weights[25], weights[24 if policy == "skip" else 23])
    assert not torch.equal(weights[26], weights[25])
    (found,) = one.watched_runs
    assert found.run is not None and found.spikes == 1
    told = [event.text for event in found.run.events if "deviations above its median" in event.text]
    assert len(told) == 1 and ("before step 24 again" in told[0]) == (policy == "rewind")


def test_the_example_of_the_page_leaves_a_file(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "crash.md").read_text(encoding="utf-8")
    script = textwrap.dedent(page.split("\n\n", 1)[1].partition("\ndiverges")[0])
    torch.manual_seed(0)
    exec(script.replace("record=8", "record=8, library=library"), {"library": tmp_path / "runs.db"})
    (path,) = tmp_path.glob("crashes/*.crash")
    found = read(path).structure.born
    assert found is not None and found.do == "torch.exp"
