"""The command line: what it prints where, its exit codes, its files. Most calls are made in this process, some in one
of their own."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE

from gradstudio import __version__
from gradstudio.core import files
from gradstudio.core.presets import GROUPS


def column(folder: Path, name: str) -> list[str]:
    """One column of a run's metrics, as it is written."""
    return [row[name] for row in csv.DictReader((folder / "metrics.csv").read_text().splitlines())]


def apart(*words: str | Path, before: str = "", **more) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own; `before` is Python that comes first."""
    start = [sys.executable, "-c", f"import sys\n{before}\nfrom gradstudio.cli import main\nmain()"]
    return subprocess.run(
        [*start, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False, **more
    )


EACH = """
import contextlib, io, json
from gradstudio.cli import main

answers = []
for words in json.loads(sys.argv[1]):
    sys.argv, out, err = ["gradstudio", *words], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            answers.append((end.code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


def each_apart(*commands: list[str], before: str) -> list[list]:
    """Run commands one after another in a process of their own, and return exit code, stdout and stderr of each."""
    program = [sys.executable, "-c", f"import sys\n{before}\n{EACH}", json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_version_and_help(gradstudio: Callable) -> None:
    assert gradstudio("--version") == (0, f"gradstudio {__version__}\n", "")
    answer = gradstudio("--help")
    assert answer.code == 0
    for command in ("run", "branch", "script", "runs", "report", "presets", "devices", "doctor"):
        assert command in answer.out
    assert gradstudio("run", "--help").code == 0


def test_help_loads_nothing_heavy() -> None:
    heavy = (
        "{'torch', 'numpy', 'numba', 'isal', 'matplotlib', 'PySide6', 'pyqtgraph', 'jinja2', 'rich', 'pydantic', "
        "'sqlite3'}"
    )
    code = f"import sys, gradstudio.cli; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout
        == "[]\n"
    )


def test_presets_are_listed_without_tabs_and_broken_ones_named(gradstudio: Callable, own_user_data: Path) -> None:
    folder = own_user_data / "gradstudio" / "presets"
    folder.mkdir(parents=True)
    (folder / "good.toml").write_text('title = "My\\town"\n')
    (folder / "broken.toml").write_text("[optimizer]\nlr = -1.0\n")
    answer = gradstudio("presets")
    assert answer.code == 0
    assert "\t" not in answer.out
    ids = [line.split()[0] for line in answer.out.splitlines()]
    assert {"rnn-explosion", "deep-sigmoid-vanishing", "good"} <= set(ids)
    assert "broken.toml, line 2: optimizer.lr = -1.0 is not allowed" in answer.err
    listed = json.loads(gradstudio("presets", "--json").out)
    assert [entry["id"] for entry in listed] == ids
    assert {"id", "group", "title", "summary", "bundled"} == set(listed[0])
    groups = [entry["group"] for entry in listed]
    assert groups == sorted(groups, key=GROUPS.index) and groups[-1] == "" and groups.count("") == 1


def test_a_preset_is_printed_as_it_stands(gradstudio: Callable) -> None:
    from gradstudio.core.files import PRESETS

    assert gradstudio("presets", "show", "rnn-explosion").out == (PRESETS / "rnn-explosion.toml").read_text()
    assert gradstudio("presets", "show", "nope").code == 2


def test_what_a_preset_promises_is_checked(gradstudio: Callable, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    knobs = "[model]\nwidth = 8\n[run]\nsteps = 5\n[promise]\n"
    file.write_text(knobs + 'outcome = "nonfinite"\nwrong_fixes = [["optimizer.lr=0.05"]]\n')
    answer = gradstudio("presets", "check", file, "--seeds", "2")
    assert answer.code == 1
    assert "mine, seed 1001, breaks: the run finished, and not nonfinite" in answer.out
    assert "mine, seed 1002, optimizer.lr=0.05: it helps: the run finished" in answer.out
    assert answer.err.splitlines()[1].startswith("mine, seed 1002: breaks: the run finished")
    file.write_text(knobs)
    answer = gradstudio("presets", "check", file, "--seeds", "2", "--json")
    assert (answer.code, answer.err.count("all of its promise holds")) == (0, 2)
    (found,) = json.loads(answer.out, parse_constant=pytest.fail)
    assert (found["id"], found["holds"], found["seeds"], found["faults"]) == ("mine", True, [1001, 1002], [])
    assert {check["kind"] for check in found["checks"]} == {"healthy"}
    table = gradstudio("presets", "check", file, "--seeds", "1", "--markdown").out.splitlines()
    assert table[0].startswith("| ID | Breaks |") and table[2].startswith("| mine |  | 1 of 1 |") and len(table) == 3


def test_a_preset_without_a_promise_cannot_be_checked(gradstudio: Callable, small: Path) -> None:
    answer = gradstudio("presets", "check", small)
    assert answer.code == 2 and "it has no [promise], so there is nothing to check" in answer.err
    assert gradstudio("presets", "check", "nope").code == 2
    assert gradstudio("presets", "check", small, "--seeds", "0").code == 2


def test_a_run_tells_its_outcome(gradstudio: Callable, small: Path) -> None:
    answer = gradstudio("run", small)
    assert (answer.code, answer.err) == (0, "")
    for part in ("Small: finished 6 steps", "loss", "accuracy", "norm up to"):
        assert part in answer.out
    assert gradstudio("run", small, "--quiet") == (0, "", "")


def test_json_is_one_strict_object_and_nothing_else(gradstudio: Callable, small: Path) -> None:
    answer = gradstudio(
        "run", small, "--json", "--set", "optimizer.lr=1e6", "--set", "problem.input_scale=1e30", "--steps", "30"
    )
    found = json.loads(answer.out, parse_constant=pytest.fail)
    assert (answer.code, found["outcome"]) == (3, "nonfinite")
    assert found["final_loss"] in ("nan", "inf")
    assert found["first_nonfinite_step"] == found["steps"] - 1
    assert found["findings"][0]["severity"] == "critical"


def test_a_critical_finding_is_exit_code_4(gradstudio: Callable) -> None:
    answer = gradstudio("run", "deep-sigmoid-vanishing", "--set", "model.width=16", "--steps", "60", "--json")
    assert answer.code == 4
    assert json.loads(answer.out)["findings"][0]["rule"] == "vanishing_gradient"


@pytest.mark.usefixtures("an_lstm_knows_only_fp32")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "Missing argument 'SOURCE'"),
        (["run", "rnn-explosions"], "no preset rnn-explosions: is rnn-explosion meant?"),
        (["run", "nope.toml"], "nope.toml: no such file"),
        (["run", "{small}", "--set", "optimizer.lr=fast"], "optimizer.lr = fast is not allowed; allowed: a number"),
        (["run", "{small}", "--set", "optimizer.lr=nan"], "optimizer.lr = nan is not allowed"),
        (["run", "{small}", "--set", "optimizer.speed=1"], "unknown knob optimizer.speed"),
        (["run", "{small}", "--set", "optimizer.lr"], "optimizer.lr"),
        (["run", "{small}", "--at", "optimizer.lr=1"], "STEP:KNOB=VALUE"),
        (["run", "{small}", "--at", "-1:optimizer.lr=1"], "STEP:KNOB=VALUE"),
        (["run", "{small}", "--at", "6:optimizer.lr=1"], "its last step is 5"),
        (["run", "{small}", "--at", "2:model.width=4"], "model.width acts on restart"),
        (["run", "{small}", "--at", "2:clipping.kind=some"], "clipping.kind = some is not allowed"),
        (["run", "{small}", "--steps", "0"], "run.steps = 0 is not allowed"),
        (["run", "{small}", "--steps", "many"], "'--steps'"),
        (["run", "{small}", "--seed", "-1"], "run.seed = -1 is not allowed"),
        (["run", "{small}", "--device", "tpu"], "run.device = tpu is not allowed"),
        (["run", "{small}", "--device", "cuda:77"], "run.device = cuda:77 is not allowed; allowed here: auto, cpu"),
        (["run", "{small}", "--compare", "6"], "--compare 6 comes after the end of the run; its last step is 5"),
        (["run", "{small}", "--compare", "-1"], "--compare"),
        (
            ["run", "{small}", "--set", "problem.task=ring"],
            "model.kind = mlp is not allowed with problem.task = ring; allowed: gan",
        ),
        (["script", "nope"], "no preset nope; allowed: an id that "),
        (["script", "{small}", "--set", "optimizer.lr=fast"], "optimizer.lr = fast is not allowed"),
        (["script", "{small}", "--at", "6:optimizer.lr=1"], "its last step is 5"),
        (["script", "/proc"], "/proc"),
        (["run", "{small}", "--report", "docx"], "allowed: html, pdf"),
        (["run", "{small}", "--out", "{small}"], "cannot be written"),
        (["run", "{small}", "--out", "/proc/here"], "cannot be written"),
        (["run", "{small}", "--bogus"], "No such option: --bogus"),
        (["run", "{small}", "--out"], "--out"),
        (["bogus"], "No such command 'bogus'"),
        (["my.toml"], "gradstudio --preset FILE;"),
        (["--preset", "x", "devices"], "--preset opens the app"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    words: list[str], said: str, small: Path, gradstudio: Callable
) -> None:
    answer = gradstudio(*(word.format(small=small) for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_planned_change_that_the_device_refuses_is_a_wrong_request(
    gradstudio: Callable, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradstudio.engine.step import precision

    assert gradstudio("run", small, "-q").code == 0
    monkeypatch.setattr(
        precision, "possible", lambda model, sample, knobs, device: "not here" if knobs.dtype == "bf16" else ""
    )
    for words in (
        ["run", small, "--at", "2:precision.dtype=bf16"],
        ["branch", "last", "--step", "2", "--set", "precision.dtype=bf16"],
    ):
        answer = gradstudio(*words)
        assert (answer.code, answer.out) == (2, "")
        assert (
            answer.err.startswith("error: timeline at step 2: precision.dtype = bf16 is not allowed")
            and answer.err.count("\n") == 1
        )
    assert len(json.loads(gradstudio("runs", "--json").out)) == 1


def test_a_device_that_is_not_there_leaves_no_files(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    answer = gradstudio("run", small, "--device", "cuda:77", "--out", tmp_path / "out", "--json")
    assert answer.code == 2
    assert list((tmp_path / "out").iterdir()) == []


def test_out_writes_everything_and_the_file_repeats_the_run(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    changes = ["--at", "4:clipping.kind=norm", "--at", "2:optimizer.lr=0.03"]
    answer = gradstudio(
        "run", small, "--seed", "5", "--set", "optimizer.momentum=0.9", *changes, "--out", first, "--report", "html,pdf"
    )
    assert answer.code == 0, answer.err
    assert f"files in {first}" in answer.out
    names = [
        "digits.npz",
        "events.csv",
        "experiment.toml",
        "layers.npz",
        "metrics.csv",
        "report.html",
        "report.pdf",
        "run.json",
        "train.py",
    ]
    assert sorted(path.name for path in first.iterdir()) == names
    told = json.loads((first / "run.json").read_text())
    assert [(change["step"], change["knob"]) for change in told["timeline"]] == [
        (2, "optimizer.lr"),
        (4, "clipping.kind"),
    ]
    assert gradstudio("run", first / "experiment.toml", "--out", again, "--quiet").code == 0
    assert column(first, "loss") == column(again, "loss")
    assert len(column(first, "loss")) == 6


def test_a_preset_s_own_changes_and_those_asked_for_come_in_order(
    gradstudio: Callable, small: Path, tmp_path: Path
) -> None:
    small.write_text(small.read_text() + '[[timeline]]\nstep = 3\nknob = "optimizer.lr"\nvalue = 0.2\n')
    assert (
        gradstudio(
            "run", small, "--at", "1:optimizer.lr=0.3", "--at", "3:optimizer.lr=0.4", "--out", tmp_path, "-q"
        ).code
        == 0
    )
    assert column(tmp_path, "lr") == ["0.1", "0.3", "0.3", "0.4", "0.4", "0.4"]


def test_a_report_without_out_goes_into_a_folder_named_as_the_run(
    gradstudio: Callable, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    answer = gradstudio("run", small, "--report", "html", "--json")
    folder = small.parent / json.loads(answer.out)["run"]
    assert (folder / "report.html").exists()
    assert f"files in {folder.name}" in answer.err


def test_the_program_is_printed_alone_and_repeats_the_run(
    gradstudio: Callable, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["--set", "optimizer.momentum=0.9", "--at", "3:optimizer.lr=0.03", "--seed", "5"]
    folder = tmp_path / "out"
    assert gradstudio("run", small, *changes, "--out", folder, "-q").code == 0
    answer = gradstudio("script", small, *changes)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (folder / "train.py").read_text().replace("Small, changed", "Small")
    assert gradstudio("script", folder).out == (folder / "train.py").read_text()
    exec(compile(answer.out, "<stdin>", "exec"), {"__name__": "__main__"})  # alone: test_script.py
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        [str(step), loss] for step, loss in enumerate(column(folder, "loss"))
    ]


def test_printing_the_program_needs_no_torch(small: Path) -> None:
    done = apart("script", small, "--steps", "3", before="sys.modules['torch'] = None")
    assert (done.returncode, done.stderr) == (0, "")
    compile(done.stdout, "train.py", "exec")


def test_comparisons_are_in_every_answer(gradstudio: Callable, small: Path, tmp_path: Path) -> None:
    asked = ["--set", "accumulation.steps=4", "--compare", "1", "--compare", "4"]
    told = json.loads(gradstudio("run", small, *asked, "--out", tmp_path, "--report", "html", "--json").out)[
        "comparisons"
    ]
    assert [entry["step"] for entry in told] == [1, 4] and all(entry["difference"] < 1e-6 for entry in told)
    assert json.loads((tmp_path / "run.json").read_text())["comparisons"] == told
    assert "equal to the large batch within" in (tmp_path / "report.html").read_text()
    words = gradstudio("run", small, *asked, "--set", "mistakes.unscaled_accumulation=true").out
    assert "compared   step 1: differs from the large batch by 300 %" in words
    assert "mistake    mistakes.unscaled_accumulation" in words


@pytest.mark.parametrize("name", ["report.html", "metrics.csv", "ranks.npz", "digits.npz"])
def test_what_cannot_be_replaced_is_told_before_anything_is_trained(
    gradstudio: Callable, small: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "out"
    (folder / name).mkdir(parents=True)
    answer = gradstudio("run", small, "--out", folder, "--json")
    assert (answer.code, answer.out) == (2, "") and f"{name} cannot be written" in answer.err
    assert json.loads(gradstudio("runs", "--json").out) == [] and list(folder.iterdir()) == [folder / name]


def test_a_disk_that_is_full_at_the_end_hides_no_outcome(
    gradstudio: Callable, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: files.Content) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_whole", full)
    answer = gradstudio("run", small, "--out", tmp_path / "out", "--json")
    assert answer.code == 1 and json.loads(answer.out)["outcome"] == "finished"
    assert answer.err == f"error: {tmp_path}/out/experiment.toml cannot be written: no space left on device\n"
    answer = gradstudio("run", small, "--out", tmp_path / "out")
    assert answer.code == 1 and "finished 6 steps" in answer.out and "kept as" in answer.out
    assert "files in" not in answer.out


def test_devices(gradstudio: Callable) -> None:
    assert gradstudio("devices").out.startswith("cpu ")
    assert json.loads(gradstudio("devices", "--json").out)[0]["id"] == "cpu"


def test_doctor(gradstudio: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradstudio.session.machine import doctor

    answer = gradstudio("doctor", "--json")
    checks = json.loads(answer.out)
    assert answer.code == (0 if all(check["ok"] for check in checks) else 1)
    assert {"name", "ok", "text", "advice", "devices"} == set(checks[0])
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Check(**check) for check in checks])  # the same once more
    in_words = gradstudio("doctor")
    assert in_words.code == answer.code and "Python" in in_words.out


# the doctor looks at Qt in processes of its own, which do have torch
WITHOUT_TORCH = """
sys.modules["torch"] = None
from gradstudio.session.machine import doctor
doctor.CHECKS = tuple(look for look in doctor.CHECKS if look not in (doctor._display, doctor._drawing))
"""


def test_without_torch_one_sentence_says_what_to_install(small: Path, tmp_path: Path) -> None:
    needing = [["run", str(small)], ["run", str(small), "--out", str(tmp_path / "out")], ["devices"]]
    *needed, examined, listed = each_apart(*needing, ["doctor"], ["presets"], before=WITHOUT_TORCH)
    said = "error: PyTorch is not installed, and nothing trains without it; install it with: pip install torch\n"
    assert needed == [[2, "", said]] * 3
    code, out, err = examined
    assert (code, err) == (1, "") and "pip install torch" in out
    assert listed[0] == 0


def test_without_pyqtgraph_one_sentence_says_what_to_install() -> None:  # without PySide6: test_headless.py
    done = apart(before="sys.modules['pyqtgraph'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pyqtgraph" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_fault_of_our_own_is_one_line_with_a_hint(
    gradstudio: Callable, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradstudio.core import presets

    def broken(source: str) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(presets, "load", broken)
    assert gradstudio("run", small) == (1, "", "error: RuntimeError: unforeseen (GRADSTUDIO_DEBUG=1 shows where)\n")
    monkeypatch.setenv("GRADSTUDIO_DEBUG", "1")
    with pytest.raises(RuntimeError, match="unforeseen"):  # of which Python prints the traceback
        gradstudio("run", small)


def test_a_closed_pipe_is_no_fault(small: Path) -> None:
    for words in (["presets"], ["--help"], ["run", str(small)]):
        process = subprocess.Popen(
            [sys.executable, "-m", "gradstudio", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout and process.stderr
        process.stdout.close()
        told = process.stderr.read()
        assert told == b"", words
        assert process.wait(timeout=PATIENCE) == 0 or words == ["--help"]
        process.stderr.close()


def test_streams_that_were_closed_before_are_no_fault(small: Path) -> None:
    """As under some daemons. The library must not be opened under the number of a stream either."""
    for words, code in ((["run", str(small), "-q"], 0), (["presets"], 0), (["presets", "show", "nothing"], 2)):
        command = shlex.join([sys.executable, "-m", "gradstudio", *words])
        done = subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], timeout=PATIENCE, check=False)
        assert done.returncode == code, words
    assert "finished" in apart("runs").stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")
def test_a_full_disk_behind_stdout_is_one_line(small: Path) -> None:
    for words in (["presets"], ["--help"], ["run", str(small)], ["runs", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "gradstudio", *words], stdout=full, stderr=subprocess.PIPE, text=True,
                timeout=PATIENCE, check=False,
            )  # fmt: skip
        said = "error: what the command says cannot be written: no space left on device\n"
        assert (done.returncode, done.stderr) == (1, said), words


def test_letters_that_the_terminal_does_not_know_are_no_fault(
    gradstudio: Callable, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.write_text(small.read_text().replace("Small", "Klein β → 日本"))
    out, err = (io.TextIOWrapper(io.BytesIO(), "ascii", errors) for errors in ("strict", "backslashreplace"))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert gradstudio("run", small).code == 0
    err.flush()
    assert out.buffer.getvalue().startswith(b"Klein ? ? ??: finished 6 steps") and err.buffer.getvalue() == b""


def test_ctrl_c_stops_after_the_step_and_saves_what_was_measured(small: Path, tmp_path: Path) -> None:
    screen, terminal = pty.openpty()
    words = [
        sys.executable,
        "-m",
        "gradstudio",
        "run",
        str(small),
        "--steps",
        "10000000",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    process = subprocess.Popen(
        [*words, "--report", "html"], stdout=subprocess.PIPE, stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(terminal)
    seen = b""
    while b"loss" not in seen:  # the progress line shows the figures of a step
        seen += os.read(screen, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    os.close(screen)
    assert process.returncode == 130
    found = json.loads(out, parse_constant=pytest.fail)
    assert found["outcome"] == "stopped"
    assert found["accuracy"] is not None
    assert len(column(tmp_path / "out", "loss")) == found["steps"] > 0
    assert "stopped after" in (tmp_path / "out" / "report.html").read_text()
