"""One's own model by commands: nothing runs that nobody agreed to, and a run of it is like any other."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from own_models import GOOD, WRITING

from gradstudio.core import studio_file, trust
from gradstudio.core.text import LONGEST_LINE

pytestmark = pytest.mark.usefixtures("checked_in_this_process")


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.py"
    path.write_text(GOOD)
    return path


FEW = ("--steps", "6", "--device", "cpu")


def test_without_a_terminal_a_file_needs_trust_once(gradstudio: Callable, points: Path) -> None:
    points.write_text(
        GOOD.replace("import torch\n", f"import torch\nopen({str(points.parent / 'ran')!r}, 'w').close()\n", 1)
    )
    refused = gradstudio("run", points, *FEW)
    assert refused.code == 2 and refused.err.count("\n") == 1 and "--trust" in refused.err and not refused.out
    assert studio_file.load(points).sha256 in refused.err and len(refused.err) <= LONGEST_LINE
    assert gradstudio("script", points).code == 0  # needs no code to run
    assert not (points.parent / "ran").exists()
    assert gradstudio("run", points, *FEW, "--trust").code == 0
    assert (points.parent / "ran").exists()
    assert gradstudio("run", points, *FEW).code == 0
    points.write_text(points.read_text() + "\n")
    assert gradstudio("run", points, *FEW).code == 2


def test_a_suffix_in_capitals_is_that_of_a_studio_file(gradstudio: Callable, points: Path) -> None:
    loud = points.rename(points.with_name("POINTS.PY"))
    assert "build_model" in gradstudio("script", loud).out
    assert gradstudio("new", loud.with_name("OTHER.PY")).code == 0


def test_a_text_that_another_file_sets_for_a_knob_is_agreed_to_by_itself(
    gradstudio: Callable, points: Path, tmp_path: Path
) -> None:
    points.write_text(WRITING)
    assert gradstudio("run", points, *FEW, "--trust", "--out", tmp_path / "out").code == 0
    stranger, mark = tmp_path / "stranger.toml", tmp_path / "mark"
    plain = (tmp_path / "out" / "experiment.toml").read_text()
    stranger.write_text(plain.replace("[studio_file]", f"[model_file]\nlog = '{mark}'\nhidden = 5\n\n[studio_file]"))
    mapped = ("--x", "optimizer.lr=0.01:0.1:log", "--y", "model_file.dropout=0.1:0.5", "--cells", "2", "--workers", "1")
    for words in (["run"], ["memory"], ["map", *mapped, "--out", tmp_path / "a.map"]):
        refused = gradstudio(words[0], stranger, *words[1:])
        assert refused.code == 2 and f"points.py would be run with model_file.log = {mark}" in refused.err
    assert not mark.exists()
    assert gradstudio("run", stranger, *FEW, "--trust").code == 0 and mark.exists()
    assert gradstudio("run", stranger, *FEW).code == 0
    own = f"model_file.log={tmp_path / 'own'}"
    assert gradstudio("run", points, *FEW, "--set", own).code == 0 and (tmp_path / "own").exists()
    assert gradstudio("branch", "last", "--step", "2").code == 0  # it is known as the person's own from then on


@pytest.mark.parametrize(("answers", "code"), [("y\n", 0), ("s\nYes\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_on_a_terminal_it_asks(
    gradstudio: Callable, points: Path, monkeypatch: pytest.MonkeyPatch, answers: str, code: int
) -> None:
    given = io.StringIO(answers)
    monkeypatch.setattr(given, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", given)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    found = gradstudio("run", points, *FEW, "--quiet")
    assert found.code == code
    assert studio_file.load(points).sha256 in found.err and f"{len(GOOD):,} bytes" in found.err
    assert ("class Net(nn.Module):" in found.err) == ("s" in answers[:1])
    assert trust.is_trusted(studio_file.load(points).sha256) == (code == 0)


def test_what_hides_in_a_text_is_shown_on_a_terminal(
    gradstudio: Callable, points: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points.write_bytes(f"{GOOD}x = '\u202euser'\n# quiet\rz = '\ufe01\U000e0101'\n".encode())
    given = io.StringIO("s\nn\n")
    monkeypatch.setattr(given, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", given)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    found = gradstudio("run", points, *FEW, "--quiet")
    assert found.code == 2 and "x = '\\u202euser'\n# quiet\\r\nz = '\\ufe01\\U000e0101'\n" in found.err
    assert "4 characters that cannot be seen are written as codes, the first in line 44: \\u202e" in found.err


def test_a_stored_run_and_its_branch_and_its_program(gradstudio: Callable, points: Path, tmp_path: Path) -> None:
    first = json.loads(gradstudio("run", points, *FEW, "--trust", "--json", "--set", "model_file.hidden=5").out)
    assert first["outcome"] == "finished" and first["accuracy"] is None
    points.unlink()  # the run keeps the text
    again = json.loads(gradstudio("run", first["run"], "--json", "--out", tmp_path / "out").out)
    assert again["final_loss"] == first["final_loss"]
    branch = json.loads(gradstudio("branch", first["run"], "--step", "2", "--json", "--set", "optimizer.lr=0.1").out)
    assert branch["final_loss"] == first["final_loss"]
    from_folder = json.loads(gradstudio("branch", tmp_path / "out", "--step", "3", "--json").out)
    assert from_folder["final_loss"] == first["final_loss"]
    program = gradstudio("script", tmp_path / "out").out
    assert program == (tmp_path / "out" / "train.py").read_text() and "build_model(hidden=5)" in program
    assert "points.py" in gradstudio("runs", "show", first["run"]).out
    assert gradstudio("runs", "compare", first["run"], again["run"]).code == 0
    trust.agreements().unlink()
    for words in (("run", first["run"]), ("branch", first["run"], "--step", "2"), ("run", tmp_path / "out")):
        refused = gradstudio(*words)
        assert refused.code == 2 and "--trust" in refused.err


def test_what_a_file_prints_is_no_part_of_the_answer(gradstudio: Callable, points: Path) -> None:
    points.write_text(GOOD.replace("    points = ", "    print('batch')\n    points = "))
    found = gradstudio("run", points, *FEW, "--trust", "--json")
    assert json.loads(found.out)["steps"] == 6 and "batch" in found.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "model.depth=3"), "model.depth = 3 is not allowed with the studio file points.py, which brings its"),
        (("--set", "problem.task=ring"), "problem.task = ring is not allowed with the studio file points.py"),
        (("--set", "model.init=lsuv"), "model.init = lsuv is not allowed with the studio file points.py; allowed: def"),
        (("--set", "model_file.hidden=0.5"), "model_file.hidden = 0.5 is not allowed; allowed: a whole number"),
        (("--at", "3:model_file.hidden=5"), "acts on restart"),
        (
            ("--set", "model_file.dropout=2"),
            "points.py, line 20: ValueError in build_model: dropout probability has to",
        ),
    ],
)
def test_a_wrong_request_is_one_line(gradstudio: Callable, points: Path, words: tuple[str, ...], told: str) -> None:
    found = gradstudio("run", points, *FEW, "--trust", *words)
    assert found.code == 2 and told in found.err and found.err.count("\n") == 1


def test_a_fault_in_the_middle_is_one_line_and_the_steps_before_it_are_kept(gradstudio: Callable, points: Path) -> None:
    text = GOOD.replace("class Net", "calls = []\n\n\nclass Net")
    points.write_text(text.replace("    points = ", "    calls.append(1)\n    assert len(calls) < 6\n    points = "))
    found = gradstudio("run", points, *FEW, "--trust")
    assert found.code == 1 and "error: points.py, line 38: AssertionError in get_batch" in found.err
    assert gradstudio("runs", "show", "last").code == 0


@pytest.mark.parametrize("kind", ["mlp", "image", "language"])
def test_new_writes_a_file_that_trains(gradstudio: Callable, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "my_model.py"
    assert gradstudio("new", path, "--kind", kind).code == 0
    assert "gradstudio run my_model.py" in path.read_text() and "import gradstudio" not in path.read_text()
    rate = ("--set", "optimizer.kind=adam", "--set", "optimizer.lr=0.003", "--device", "cpu", "--steps", "30")
    found = json.loads(gradstudio("run", path, "--trust", "--json", *rate, "--set", "problem.batch_size=16").out)
    assert found["outcome"] == "finished" and found["best_loss"] < found["initial_loss"]
    before = path.read_text()
    refused = gradstudio("new", path)
    assert refused.code == 2 and "is there already" in refused.err and path.read_text() == before


def test_the_command_that_new_tells_takes_the_file(
    gradstudio: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "gradstudio run ./-d.py --trust" in gradstudio("new", "--", "-d.py").out
    assert "gradstudio run ./-d.py" in (tmp_path / "-d.py").read_text()
    assert gradstudio("run", "./-d.py", "--trust", *FEW).code == 0


@pytest.mark.parametrize("name", ["my_model.txt", "my_model", "nowhere/\0.py"])
def test_new_refuses_what_is_no_name(gradstudio: Callable, tmp_path: Path, name: str) -> None:
    found = gradstudio("new", f"{tmp_path}/{name}")
    assert found.code == 2 and found.err.count("\n") == 1
