"""The memory of an experiment, asked of a process of its own: cures that hold, budgets that refuse, and no process left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import own_models
import pytest
import torch
from waiting import PATIENCE, until

from gradstudio.core import trust
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import MB, PARTS, Cure, Footprint
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.core.text import LONGEST_LINE
from gradstudio.engine.trainer import Trainer
from gradstudio.session.files import report
from gradstudio.session.footprint import budget, estimator, texts
from gradstudio.session.footprint import process as processes
from gradstudio.session.footprint.budget import ASKED
from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker

MLP = Experiment().with_texts(["run.device=cpu", "problem.batch_size=512", "model.depth=6", "run.steps=2"])
LONG = Experiment().with_texts(
    ["model.kind=rnn", "problem.task=adding", "problem.seq_len=1000", "model.depth=50", "model.norm=layer"]
)  # what takes longer than any test


@pytest.fixture
def process() -> FootprintProcess:
    """The process that the program has. It is started once for all tests, as that takes seconds, and ends with them."""
    return ASKED._process


@pytest.fixture(autouse=True)
def one_process(process: FootprintProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "FootprintProcess", lambda: process)


def asked(process: FootprintProcess, experiment: Experiment) -> tuple[Footprint, list[Cure]]:
    first, *cures = process.ask(experiment)
    assert isinstance(first, Footprint) and all(isinstance(cure, Cure) for cure in cures)
    return first, cures  # pyright: ignore[reportReturnType]


def test_the_parts_add_up_and_the_curve_has_the_peak(process: FootprintProcess) -> None:
    found, _ = asked(process, MLP.with_texts(["optimizer.kind=adam", "accumulation.steps=2"]))
    weights = sum(weight.nbytes for weight in Trainer(MLP).model.parameters())
    assert sum(found.at_peak.values()) == found.peak == max(found.curve)
    assert found.sizes["parameters"] == found.sizes["gradients"] == weights
    assert 2 * weights < found.sizes["optimizer"] < 2.01 * weights
    assert found.sizes["saved"] > 5 * 512 * 128 * 4 and set(found.sizes) == set(PARTS)
    at = found.curve.index(found.peak)
    assert (found.phase, found.operation) == ("backward", found.names[found.operations[at]])
    assert found.first_above(found.peak) is None
    over = found.first_above(found.peak // 2)
    assert over is not None and over.phase == "forward" and over.before <= found.peak // 2 < over.after


def test_sizes_that_no_machine_has_are_told(process: FootprintProcess) -> None:
    large = ["model.kind=transformer", "problem.task=characters", "problem.seq_len=1000", "model.width=2048"]
    first = next(iter(process.ask(Experiment().with_texts([*large, "model.depth=3", "problem.batch_size=1024"]))))
    assert isinstance(first, Footprint) and first.peak > 300e9


@pytest.mark.parametrize("texts_of", [["model.norm=layer"], ["model.norm=batch"]], ids=lambda texts: texts[0])
def test_a_cure_keeps_what_it_says(process: FootprintProcess, texts_of: list[str]) -> None:
    """Its peak, and the gradient of the first step, where it says that this is the same."""
    experiment = MLP.with_texts([*texts_of, "model.depth=3", "run.memory_budget=2"])
    found, cures = asked(process, experiment)
    assert found.peak > 2 * MB and cures
    wanted = gradient(experiment)
    for cure in cures:
        healed = experiment.with_values(cure.changes)
        again, none = asked(process, healed)
        assert again.peak == cure.peak < found.peak and cure.fits == (cure.peak <= 2 * MB)
        assert not none or not cure.fits
        off = float((gradient(healed) - wanted).norm() / wanted.norm())
        assert (off < 2e-6) == cure.same_gradient, cure
    assert [cure.fits for cure in cures] == sorted((cure.fits for cure in cures), reverse=True)


def gradient(experiment: Experiment) -> torch.Tensor:
    trainer = Trainer(experiment)
    next(trainer.steps())
    return trainer.flat.gradients.clone()


@pytest.mark.parametrize("text", [
    "mistakes.unscaled_accumulation=true", "mistakes.drop_last_micro_batches=true", "problem.batch_size=1",
    "accumulation.steps=256",
])  # fmt: skip
def test_what_would_not_be_the_same_step_is_not_offered(process: FootprintProcess, text: str) -> None:
    _, cures = asked(process, MLP.with_texts(["model.depth=1", text]))
    assert all("accumulation.steps" not in cure.changes for cure in cures)


def test_a_run_over_its_budget_is_refused_with_what_fits() -> None:
    experiment = MLP.with_texts(["run.memory_budget=2"])
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    Worker(run).run()
    assert run.status == "failed" and run.refused and not len(run.history)
    assert re.match(r"Out of memory in the forward pass, operation \w+: tried to allocate 0.262 MB with 1", run.message)
    assert "of run.memory_budget = 2 MB taken; a step takes 2." in run.message and len(run.message) <= LONGEST_LINE
    assert "what fits: batch " in run.message and ", same gradient" in run.message
    footprint, cures = ASKED.of(experiment) or (None, ())
    assert (
        footprint is not None and texts.size(footprint.peak) in report.content(run, "html").partition("<h2>Memory")[2]
    )
    cure = next(cure for cure in cures if cure.fits)
    healed = Run(run.preset, experiment.with_values(cure.changes))
    Worker(healed).run()
    assert healed.status == "finished"


def test_planned_changes_count_too() -> None:
    small = MLP.with_texts(["model.depth=1", "run.memory_budget=2"])
    assert budget.check(small.with_value("accumulation.steps", 2)) == ""
    with pytest.raises(KnobError, match="Out of memory"):
        budget.check(small, [Change(1, "accumulation.steps", 64)])


def test_a_budget_that_cannot_be_checked_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise FootprintUnknown("it takes more than 60 s to work out")

    monkeypatch.setattr(ASKED, "of", unknown)
    experiment = MLP.with_texts(["run.memory_budget=3", "model.depth=1"])
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    Worker(run).run()
    assert run.status == "finished"
    assert "Whether a step fits into run.memory_budget is not known" in "".join(event.text for event in run.events)


def test_a_new_request_ends_the_one_before(process: FootprintProcess) -> None:
    calls = iter(range(10))
    assert list(process.ask(LONG, lambda: next(calls, 10) > 2)) == []
    found, _ = asked(process, MLP.with_value("model.depth", 1))
    assert found.peak > 0


def test_no_process_is_left_where_the_program_is_killed() -> None:
    """What ends it is the end of its stdin, which nobody else holds open. The last test here has the real process end
    so, while it works."""
    program = (
        "import sys\n"
        "from gradstudio.session.footprint import process\n"
        "process._CHILD = 'import sys; print(1, flush=True); sys.stdin.read()'\n"
        "one = process.FootprintProcess()\n"
        "one._start()\n"
        "assert one._answers.get().strip() == b'1'\n"
        "print(one._child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None and parent.stdin is not None
    child = int(parent.stdout.readline())
    assert not gone(child)
    parent.kill()
    parent.wait()
    until(lambda: gone(child))
    parent.stdout.close()
    parent.stdin.close()


def gone(process: int) -> bool:
    """Whether a process has ended; nobody may have asked for its exit code."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z" or not os.path.exists(f"/proc/{process}")


def test_the_command_says_what_the_contract_names(
    gradstudio: Callable, process: FootprintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FootprintProcess, "__new__", lambda kind: process)
    monkeypatch.setattr(FootprintProcess, "__init__", lambda self: None)
    monkeypatch.setattr(FootprintProcess, "close", lambda self: None)
    done = gradstudio("memory", "missing-zero-grad", "--set", "optimizer.kind=adam", "--json")
    found = json.loads(done.out)
    assert done.code == 0 and list(found) == ["peak", "phase", "operation", *PARTS, "cures"]
    assert sum(found[part] for part in PARTS) == found["peak"]
    said = gradstudio("memory", "missing-zero-grad", "--set", "run.memory_budget=100")
    assert said.code == 0 and said.out.startswith("peak 0.") and "fits into run.memory_budget = 100 MB" in said.out
    assert texts.PLAIN_LOOP in said.out and "kept for backward" in said.out
    wrong = gradstudio("memory", "nothing-of-that-name")
    assert wrong.code == 2 and wrong.err.count("\n") == 1


def test_an_own_model_is_run_where_it_was_agreed_to(
    process: FootprintProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(process, MLP)  # so that it has begun, whichever test is the first
    closed: list[bool] = []
    monkeypatch.setattr(process, "close", lambda: closed.append(True))  # for the other tests it goes on
    refused = own_models.preset(tmp_path, own_models.GOOD + "# read by nobody\n", agreed=False)
    with pytest.raises(FootprintUnknown, match="nobody has agreed"):
        asked(process, refused.experiment)
    found, cures = asked(process, own_models.preset(tmp_path).experiment)
    assert 0 < found.sizes["parameters"] < found.peak and all(not cure.same_gradient for cure in cures)
    assert not closed
    crashing = own_models.GOOD.replace("    return Net(", "    import os\n    os._exit(3)\n    return Net(")
    with pytest.raises(FootprintUnknown, match="has ended"):
        asked(process, own_models.preset(tmp_path, crashing).experiment)
    assert closed, "which may have started something"
    assert trust.is_trusted(own_models.preset(tmp_path).experiment.studio_file.sha256)


def test_answers_are_whole_also_after_its_process_was_killed(
    process: FootprintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is at work at the end leaves nothing."""
    monkeypatch.setattr(processes, "ENDING", PATIENCE)
    if process._child is None:  # no other test has started one
        process._send({"number": 0, "toml": "", "cures": False})
    assert process._child is not None
    process._child.kill()
    *_, known = estimator.answers(process, MLP, lambda: False)
    assert known.experiment == MLP and known.complete and not known.problem
    assert known.footprint is not None and known.cures
    child = process._child

    def at_work() -> bool:
        return bool(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())  # the copy that works it out

    assert not any(known.complete for known in estimator.answers(process, LONG, at_work))
    process.close()
    assert child.poll() == 0, "it has seen the end of its stdin"
