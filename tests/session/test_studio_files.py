"""A studio file as a run: its program, its branches, its place in the library, and the check in a process of its own."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from own_models import GOOD, preset
from waiting import PATIENCE, until

from gradstudio.core import mistakes, presets, python_process, studio_file, trust
from gradstudio.core.check_note import ASKED, NOTE, CheckNote
from gradstudio.core.events import Change
from gradstudio.core.experiment import BROUGHT, KNOBS, Experiment, parse_assignment
from gradstudio.core.knobs import KnobError
from gradstudio.core.planned_changes import read_timeline
from gradstudio.core.presets import Preset
from gradstudio.core.studio_file import StudioFile, StudioFileError
from gradstudio.core.text import LONGEST_LINE
from gradstudio.engine.trainer import Trainer
from gradstudio.program import script
from gradstudio.session import own_model
from gradstudio.session.files import output
from gradstudio.session.files.comparison import compare
from gradstudio.session.library import stored_snapshots
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.remote import remote_worker
from gradstudio.session.remote.remote_backend import RemoteBackend
from gradstudio.session.running import fix_trials, foreground
from gradstudio.session.running.slow_step import slow_step
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.knob_hints import why_not
from gradstudio.session.words.run_state import describe
from gradstudio.session.words.story import in_words

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of torch, about what a mistake does
    pytest.mark.usefixtures("checked_in_this_process"),
]
REAL_CHECK = own_model._fault


def trained(made: Preset, *, snapshots: Snapshots | None = None) -> Run:
    run = Run(made, made.experiment, made.timeline)
    foreground.train(run, progress=False, snapshots=snapshots)
    return run


def printed(program: str) -> list[tuple[float, float]]:
    """Run a program as Python does, and return the losses and norms that it prints."""
    out = io.StringIO()
    name = sys.modules["__main__"]
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(program, "train.py", "exec"), {"__name__": "__main__"})
    finally:
        sys.modules["__main__"] = name
    return [(float(loss), float(norm)) for _, loss, norm in map(str.split, out.getvalue().splitlines())]


# What the knobs of a studio file may be; STEP:knob=value is a live change.
CASES = """

model_file.hidden=5 model_file.dropout=0.5 model_file.smoothing=0.1 model_file.shift=1
accumulation.steps=3 clipping.kind=norm clipping.max_norm=0.1 problem.batch_size=7
clipping.kind=value clipping.clip_value=0.01 optimizer.kind=rmsprop optimizer.momentum=0.5
clipping.kind=agc optimizer.kind=adamw optimizer.weight_decay=0.1
clipping.kind=per_tensor gradients.centralize=true gradients.noise_std=0.01
precision.dtype=bf16 schedule.kind=cosine schedule.warmup_steps=3 schedule.total_steps=9
precision.dtype=fp16 precision.scaling=dynamic precision.init_scale=1e9
precision.dtype=fp16 precision.scaling=static loss.weight=0.01
problem.noise=0.3 problem.outlier_every=3 problem.outlier_scale=30 problem.skip_batches=2
model.init=he model.init_gain=1.2 model.initial_bias=0.3
model.init=xavier loss.weight=3
model.init=orthogonal optimizer.kind=adam
model.init=normal optimizer.weight_decay=0.1 optimizer.momentum=0.9
model.init=zeros
model.init_gain=0.5 run.seed=7
optimizer.sam_rho=0.1 accumulation.steps=3 model_file.dropout=0.5 problem.outlier_every=3
mistakes.never_zero_grad=true
mistakes.clip_after_step=true clipping.kind=norm
accumulation.steps=3 mistakes.clip_each_micro_batch=true clipping.kind=norm
accumulation.steps=3 mistakes.zero_grad_each_micro_batch=true mistakes.unscaled_accumulation=true
accumulation.steps=4 mistakes.drop_last_micro_batches=true mistakes.scheduler_each_micro_batch=true schedule.kind=linear
accumulation.steps=2 4:clipping.kind=norm 5:optimizer.lr=0.01 6:precision.dtype=bf16 7:problem.skip_batches=3 8:accumulation.steps=1
3:problem.outlier_every=2 5:loss.weight=0.5 7:mistakes.never_zero_grad=true 9:clipping.kind=agc
""".splitlines()[1:-1]


@pytest.mark.parametrize("case", CASES)
def test_the_program_prints_the_numbers_of_the_run(tmp_path: Path, case: str) -> None:
    made = preset(tmp_path)
    words = case.split()
    experiment = made.experiment.with_texts([word for word in words if not word[0].isdecimal()])
    changes = [(int(step), *parse_assignment(text)) for step, _, text in
               (word.partition(":") for word in words if word[0].isdecimal())]  # fmt: skip
    timeline = [Change(*change) for change in changes]
    trainer, rows = Trainer(experiment), []
    while trainer.step < 12:
        for change in timeline:
            if change.step == trainer.step:
                trainer.change(change.knob, change.value)
        rows += trainer.advance()
    found = printed(script(experiment, timeline, title=made.title))
    close = 1e-5 if "fp16" in case else 1e-8
    assert len(found) == 12
    if "fp16" in case:
        assert [loss for loss, _ in found] == pytest.approx([row.loss for row in rows], rel=close)
    else:
        assert [loss for loss, _ in found] == [row.loss for row in rows]
    assert [norm for _, norm in found] == pytest.approx([row.grad_norm for row in rows], rel=close, nan_ok=True)


def test_the_program_has_the_file_whole_and_no_name_that_meets_one_of_it(tmp_path: Path) -> None:
    made = preset(tmp_path, GOOD + "\n\ndef train():\n    '''Taken.'''\n")
    program = script(made.experiment)
    docstring, _, rest = GOOD.partition("from __future__ import annotations")
    assert docstring in program and rest in program and program.count("__future__") == 1
    assert "def train_here():" in program and "inputs" not in program
    losses = printed(script(preset(tmp_path).experiment))
    for ends in ("\r\n", "\r"):
        assert printed(script(preset(tmp_path, GOOD.replace("\n", ends)).experiment)) == losses


PLAIN = """
from torch import randn
from torch.nn import Linear
from torch.nn import functional as F
def build_model(word='a'):
    return Linear(2, len(word))
def get_batch(batch_size, generator):
    return randn(batch_size, 2, generator=generator)
def compute_loss(model, batch):
    return F.mse_loss(model(batch), batch[:, :1])
"""


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('"""Begin with\nfrom torch import nn\nimport math\nfrom types import SimpleNamespace\n"""', ""),
        ("def helper():\n    from torch import nn\n    import math", ""),
        ("from torch import nn", "nn = 256"),
        ("", "import torch\ntorch = math = SimpleNamespace = None"),
        ("", "def next(): pass\nclass range: pass\nfor hasattr in (1, 2): pass"),
        ("", "def again():\n    global print\n    print = None\nagain()"),
        ("", "from builtins import *\nglobals()['print'] = None"),
    ],
)
def test_the_program_runs_whatever_names_the_file_binds(tmp_path: Path, start: str, end: str) -> None:
    made = preset(tmp_path, f"{start}\n{PLAIN}\n{end}\n")
    words = ["schedule.kind=cosine", "clipping.kind=norm", "problem.noise=0.1", "model_file.word=é😀"]
    experiment, change = made.experiment.with_texts(words), Change(3, "optimizer.lr", 0.01)
    own_model.agree_to_own(experiment, experiment.changed_knobs())
    run = trained(made.model_copy(update={"experiment": experiment, "timeline": (change,)}))
    found = printed(script(experiment, (change,)))
    assert len(found) == 12 and [loss for loss, _ in found] == run.history.column("loss").tolist()


def test_a_branch_repeats_its_run_to_the_last_bit(tmp_path: Path) -> None:
    made = preset(tmp_path)
    snapshots = Snapshots(gap=0.0)
    whole = trained(made, snapshots=snapshots)
    branch = fork(whole, 5, changes=(Change(5, "optimizer.lr", 0.01), Change(8, "clipping.kind", "norm")))
    foreground.train(branch, progress=False, snapshots=snapshots)
    assert branch.status == "finished" and branch.differs_at is None
    planned = (Change(5, "optimizer.lr", 0.01), Change(8, "clipping.kind", "norm"))
    straight = trained(made.model_copy(update={"timeline": planned}))
    assert branch.history.column("loss").tolist() == straight.history.column("loss").tolist()
    assert branch.history.column("loss", 0, 5).tolist() == whole.history.column("loss", 0, 5).tolist()
    found = printed(script(branch.experiment, branch.course))
    assert [loss for loss, _ in found] == branch.history.column("loss").tolist()


BACKWARD = """

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        calls.append(1)
        if len(calls) > 5:
            raise {fault}
        return gradient


class Mute(Exception):
    def __str__(self):
        raise SystemExit(5)
"""


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("ValueError('no\\nmore')", "points.py, line 58: ValueError: no"),
        ("Mute()", "points.py, line 58: Mute"),
        ("SystemExit()", "points.py, line 58: SystemExit"),
        ("MemoryError()", "points.py, line 58: Out of memory. Halve problem.batch_size and restart."),
    ],
)  # fmt: skip
def test_what_is_raised_in_the_middle_has_its_line_and_loses_nothing(tmp_path: Path, fault: str, told: str) -> None:
    text = GOOD.replace("class Net", "calls = []\n\n\nclass Net").replace(
        "+ 0 * step", "+ Wrong.apply(0 * step * model.unused).sum()"
    )
    run = trained(preset(tmp_path, text + BACKWARD.format(fault=fault)))
    assert (run.status, run.message) == ("failed", told) and 0 < len(run.history) < 6


def test_a_run_that_changes_torch_in_the_middle_fails_at_its_end_and_torch_is_put_back(tmp_path: Path) -> None:
    text = GOOD.replace("class Net", "calls = []\n\n\nclass Net").replace(
        "    return F.cross",
        "    calls.append(1)\n    if len(calls) > 5:\n        torch.mean = torch.sum\n    return F.cross",
    )
    mean = torch.mean
    run = trained(preset(tmp_path, text))
    told = "points.py, line 44: it replaces torch.mean for the whole program; wanted: as it was"
    assert (run.status, run.message, len(run.history)) == ("failed", told, 12)
    assert torch.mean is mean


def test_fixes_are_tried_on_the_same_batches_and_the_cause_is_told(tmp_path: Path) -> None:
    text = GOOD.replace("F.cross_entropy", "growing").replace(", label_smoothing=smoothing", "")
    text += "\n\ndef growing(outputs, labels):\n    return torch.exp(outputs.pow(2).sum(1)).mean()\n"
    made = preset(tmp_path, text)
    made = made.model_copy(update={"experiment": made.experiment.with_values({"optimizer.lr": 30.0, "run.steps": 40})})
    snapshots = Snapshots(gap=0.0)
    run = trained(made, snapshots=snapshots)
    assert run.status == "nonfinite" and run.provenance is not None
    assert run.provenance.operation and any(finding.remedies for finding in run.findings.values())
    trials = fix_trials.Trials(run, snapshots)
    foreground.wait_for(trials, progress=False)
    outcomes = {trial.remedy: trial.outcome for trial in trials.best_first}
    assert outcomes[""] == "broke again" and "held" in outcomes.values() and "failed" not in outcomes.values()


def test_the_library_keeps_the_text_that_a_run_was_made_with(tmp_path: Path) -> None:
    made = preset(tmp_path)
    made = made.model_copy(update={"experiment": made.experiment.with_value("model_file.hidden", 5)})
    run, snapshots = Run(made, made.experiment), Snapshots(gap=0.0)
    writer = LibraryWriter(tmp_path / "library.sqlite3")
    writer.follow(run, snapshots)
    foreground.train(run, progress=False, snapshots=snapshots)
    assert writer.close(PATIENCE)
    (tmp_path / "points.py").write_text("changed since")
    with contextlib.closing(Library(tmp_path / "library.sqlite3")) as library:
        (entry,) = library.entries()
        again = library.load(entry.id)
    assert entry.accuracy is None and entry.title == "Points in a plane"
    assert again.experiment == run.experiment and not again.preset.bundled
    assert again.experiment.studio_file is not None and again.experiment.studio_file.text == GOOD
    branch = fork(again, 5)
    stored = Snapshots(stored=partial(stored_snapshots.read, tmp_path / "library.sqlite3"))
    foreground.train(branch, progress=False, snapshots=stored)
    assert branch.differs_at is None
    assert branch.history.column("loss").tolist() == run.history.column("loss").tolist()


def test_its_files_and_reports_and_words_tell_of_the_file(tmp_path: Path) -> None:
    run = trained(preset(tmp_path))
    other = trained(preset(tmp_path, GOOD.replace("hidden=8", "hidden=9")))
    output.write(run, tmp_path / "out", ("html",))
    read = presets.read(tmp_path / "out" / "experiment.toml")
    assert read.experiment == run.experiment
    assert "points.py" in (tmp_path / "out" / "report.html").read_text()
    assert printed((tmp_path / "out" / "train.py").read_text())[-1][0] == run.history.value("loss", 11)
    told = in_words(run)
    assert "accuracy" not in told and "Points in a plane" in told
    found = compare([run, other])
    assert [setting.knob for setting in found.settings] == ["studio_file", "model_file.hidden"]


@pytest.mark.parametrize("name", sorted(BROUGHT))
def test_what_the_file_brings_itself_does_not_apply(tmp_path: Path, name: str) -> None:
    experiment = preset(tmp_path).experiment
    assert not experiment.applies(name)
    knob = KNOBS[name]
    other = next((choice for choice in knob.choices if choice != knob.default), {"bool": "true"}.get(knob.kind, "1"))
    if knob.default == 1.0:
        other = "2"
    with pytest.raises(KnobError, match=rf"{name} = .* is not allowed with the studio file points.py, which brings"):
        experiment.with_texts([f"{name}={other}"])


def test_a_knob_without_an_effect_says_what_the_file_brings_and_no_way_that_is_refused(tmp_path: Path) -> None:
    knobs = preset(tmp_path).experiment.with_value("mistakes.normalize_each_micro_batch", True)
    assert mistakes.note("mistakes.normalize_each_micro_batch", knobs) == (
        "changes nothing: a studio file brings its own loss"
    )
    for name, what in (("optimizer.discriminator_factor", "model"), ("problem.baseline", "data"), ("loss.eps", "loss")):
        assert why_not(KNOBS[name], knobs) == f"no effect: points.py brings its own {what}"


def test_the_knobs_of_a_file_are_its_keyword_defaults(tmp_path: Path) -> None:
    experiment = preset(tmp_path).experiment
    assert experiment.studio_file is not None
    assert {name: knob.default for name, knob in experiment.studio_file.knobs.items()} == {
        "model_file.hidden": 8, "model_file.dropout": 0.2, "model_file.shift": 0, "model_file.smoothing": 0.0,
    }  # fmt: skip
    assert experiment.with_value("model_file.dropout", 1)["model_file.dropout"] == 1.0
    for text, told in {
        "model_file.hidden=many": "model_file.hidden = many is not allowed; allowed: a whole number (default 8)",
        "model_file.hiden=3": "unknown knob model_file.hiden; points.py has: hidden, dropout, shift, smoothing",
    }.items():
        with pytest.raises(KnobError) as fault:
            experiment.with_texts([text])
        assert str(fault.value) == told
    listed = StudioFile.of("points.py", GOOD.replace("hidden=8,", "hidden=8, sizes=[3, 4],"))
    with pytest.raises(KnobError, match=r"points.py, line 29: model_file.sizes is no knob: its default is no number"):
        listed.knob("model_file.sizes")
    with pytest.raises(KnobError, match="beside a studio file only"):
        Experiment().with_texts(["model_file.hidden=3"])
    with pytest.raises(KnobError, match="acts on restart"):
        read_timeline([{"step": 3, "knob": "model_file.hidden", "value": 3}], experiment)


def test_a_preset_file_holds_the_studio_file_whole(tmp_path: Path) -> None:
    odd = GOOD + "# Ünï€ \\ '''\t\"\"\" \r\n" + "x = '\x7f \\u2028 \u2028'\n"
    made = preset(tmp_path, odd)
    made = made.model_copy(update={"experiment": made.experiment.with_value("model_file.hidden", 5)})
    text = presets.to_toml(made)
    assert presets.parse(text, Path("x.toml")).experiment == made.experiment
    for changed, told in {
        text.replace("import torch", "import os", 1): "studio_file.sha256 is not that of studio_file.text",
        text.replace("hidden = 5", 'hidden = "x"'): "model_file.hidden = x is not allowed",
        text.replace("hidden = 5", "width = 5"): "unknown knob model_file.width",
        text.replace('name = "points.py"', 'name = ""'): "studio_file.name",
        text.replace("[studio_file]", "[studio_files]"): "unknown",
    }.items():
        with pytest.raises(presets.PresetError, match=told):
            presets.parse(changed, Path("x.toml"))


LOOKED_AT = {
    b"": "points.py: it is empty; wanted: build_model, get_batch, compute_loss",
    b"  \n": "points.py: it is empty",
    b"\x89PNG\r\n\x1a\n\x00": "points.py, line 1: not UTF-8 text (byte 0x89)",
    b"x = 1\n\x00": "points.py, line 2: a byte 0",
    "x = 1\n# \xe4\n".encode("latin-1"): "points.py, line 2: not UTF-8 text (byte 0xe4)",
    b"def build_model(:\n": "points.py, line 1: not valid Python",
    b"return 3\n": "points.py, line 1: not valid Python: 'return' outside function",
    b"(" * 5000: "points.py",
    b"x = 1\n": "points.py, line 1: wanted at its top level: def build_model()",
    GOOD.replace("def get_batch", "def batch").encode(): "line 33: wanted at its top level, beside build_model, compute_loss: def get_batch(batch_size, g",
    GOOD.replace("def get_batch", "async def get_batch").encode(): "line 33: get_batch is asynchronous",
    GOOD.replace("batch_size, generator, shift", "batch_size, shift").encode(): "line 33: get_batch(batch_size) takes",
    GOOD.replace("build_model(hidden=8", "build_model(hidden").encode(): "",
    GOOD.replace("build_model(hidden=8, dropout=0.2)", "build_model(hidden)").encode(): "line 29: build_model(hidden) t",
    GOOD.replace("*, smoothing=0.0", "*, smoothing, hidden=3").encode(): "compute_loss(model, batch, smoothing) takes",
    GOOD.replace("smoothing=0.0", "smoothing=0.0, hidden=3").encode(): "hidden has the default 3 in compute_loss and 8",
    GOOD.encode() + b"# " + b"." * 300: "line 44: more than 200 dots in a line",
    GOOD.encode() + b"#" * 200_000: "larger than 200 kB",
}  # fmt: skip


@pytest.mark.parametrize("content", LOOKED_AT, ids=range(len(LOOKED_AT)))
def test_what_is_no_studio_file_is_told_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "points.py"
    path.write_bytes(content)
    with pytest.raises(StudioFileError) as fault:
        studio_file.load(path)
    told = str(fault.value)
    assert LOOKED_AT[content] in told and "\n" not in told and len(told) <= LONGEST_LINE + len(str(tmp_path))


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "points.py"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert studio_file.load(path) == StudioFile.of("points.py", GOOD)


@pytest.mark.parametrize("name", ["abc\u202egnp.py", "two\nlines.py", "מודל نموذج 模型.py", "\u2028.py"])
@pytest.mark.skipif(sys.platform == "win32", reason="no file has such a name there")
def test_a_name_that_changes_the_order_of_a_line_or_breaks_it_is_told_in_one(tmp_path: Path, name: str) -> None:
    made = preset(tmp_path, name=name)
    file = made.experiment.studio_file
    assert file is not None and file.name.isprintable() and file.text == GOOD
    assert presets.parse(presets.to_toml(made), tmp_path / "x.toml").experiment == made.experiment
    with pytest.raises(presets.PresetError, match=r"^[^\u202e\u2028\n]*, line 1: not valid Python"):
        preset(tmp_path, "def (:", name)


def test_a_folder_and_a_missing_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    for name in ("folder.py", "missing.py"):
        with pytest.raises(presets.PresetError, match=name):
            presets.load(tmp_path / name)


# What becomes of the process that checks a file, and what is told. It is played by one that need not import torch.
CHILD = """import os, sys, time
from pathlib import Path
_, folder, limit = sys.argv
from gradstudio.core.check_note import ASKED, NOTE, TRACES, CheckNote
note = CheckNote(Path(folder, NOTE), Path(folder, ASKED).read_text().partition(chr(10))[0])
"""
TRACE = 'Thread 0x1 (most recent call first):\n  File "torch/nn.py", line 3 in call\n  File "points.py", line 9 in forward\n'
ENDS = {
    "hangs": ("note.line = 7; note.say_ready(); time.sleep(1000)", "points.py, line 7: it takes more than 0.2 s"),
    "loops": (
        f"Path(folder, TRACES).write_text({TRACE!r}); note.say_ready(); time.sleep(1000)",
        "points.py, line 9: it takes more than 0.2 s",
    ),
    "ends": ("note.line = 7; note.say_ready(); os._exit(3)", "points.py, line 7: it ended its process with exit code 3"),
    "ends somewhere": ("note.say_ready(); os._exit(3)", "points.py, at a line that is not known: it ended its process"),
    "is killed": (
        "note.line = 7; note.say_ready(); os.kill(os.getpid(), 9)", r"points.py, line 7: it was ended by SIGK",
    ),
    "never begins": ("os._exit(3)", "points.py: the process that is to check it ended before it ran the file"),
    "is bad": ("note.say_ready(); note.answer('points.py, line 3: bad')", "points.py, line 3: bad"),
    "forges": (
        "note.line = 7; note.say_ready(); print('ready'); print('[]'); CheckNote(Path(folder, NOTE), 'x').answer('')",
        "points.py, line 7: it ended its process with exit code 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_a_hostile_file_ends_its_own_process_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    child, told = ENDS[case]
    monkeypatch.setattr(own_model, "_fault", REAL_CHECK)
    monkeypatch.setattr(own_model, "_CHILD", CHILD + child)
    limit = 0.2 if "0.2 s" in told else PATIENCE
    with pytest.raises(StudioFileError, match=told):
        own_model.check(preset(tmp_path).experiment, limit=limit)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")
@pytest.mark.parametrize(
    ("what", "limit", "told"),
    [
        ("while True: __import__('time').sleep(0.01)", 3.0, "points.py, line 30: it takes more than 3 s"),
        ("__import__('os').fork()", PATIENCE, "points.py, line 30: it forks its process, and both go on"),
        (  # whatever streams it has, and whatever it writes there
            "import os; [os.write(n, b'\"\"' * 9) for n in range(99) if os.path.exists(f'/proc/self/fd/{n}') and n > 0]; "
            "os.closerange(0, 99); os._exit(0)", PATIENCE, "points.py, line 30: it ended its process with exit code 0",
        ),
    ],
)  # fmt: skip
def test_the_line_of_a_file_that_hangs_or_forks_or_ends_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, limit: float, told: str
) -> None:
    monkeypatch.setattr(own_model, "_fault", REAL_CHECK)
    text = re.sub(r"(def build_model\(.*\n)", rf"\1    {what}\n", GOOD)
    assert what in text
    with pytest.raises(StudioFileError, match=told):
        own_model.check(preset(tmp_path, text).experiment, limit=limit)


def test_the_check_is_made_once_and_shows_nothing_that_the_file_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.replace("class Net", "print('{}')\nimport os\nos.write(1, b'x')\nos.write(2, b'x')\nclass Net")
    experiment = preset(tmp_path, text).experiment
    monkeypatch.setattr(own_model, "_fault", REAL_CHECK)
    own_model.check(experiment)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(own_model, "_CHILD", "raise SystemExit(1)")
    own_model.check(experiment.with_value("run.steps", 3))
    with pytest.raises(StudioFileError):
        own_model.check(experiment.with_value("model_file.hidden", 3))


def test_a_check_that_is_stopped_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_model, "_fault", REAL_CHECK)
    monkeypatch.setattr(own_model, "_CHILD", "import time; time.sleep(1000)")
    experiment, looks = preset(tmp_path).experiment, itertools.chain([False, False], itertools.repeat(True))
    own_model.check(experiment, lambda: next(looks))
    monkeypatch.setattr(own_model, "_CHILD", "raise SystemExit(1)")
    with pytest.raises(StudioFileError):  # it was not taken for a good one
        own_model.check(experiment)


def test_an_agreement_is_kept_for_this_text_alone(tmp_path: Path) -> None:
    one, other = preset(tmp_path, agreed=False), preset(tmp_path, GOOD + "\n", agreed=False)
    assert own_model.needs_agreement(one.experiment) and own_model.needs_agreement(other.experiment)
    assert one.experiment.studio_file is not None
    trust.agree(one.experiment.studio_file.sha256)
    trust.agree(one.experiment.studio_file.sha256)
    assert trust.agreements().read_text() == f"{one.experiment.studio_file.sha256}\n"
    assert not own_model.needs_agreement(one.experiment) and own_model.needs_agreement(other.experiment)
    assert not own_model.needs_agreement(Experiment())


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarms on this system")
def test_the_check_of_a_file_without_end_outlives_a_killed_program_by_little(tmp_path: Path) -> None:
    CheckNote.begin(tmp_path / NOTE)
    text = GOOD.replace("import torch\n", "import time\n\nimport torch\n\nwhile True:\n    time.sleep(0.1)\n", 1)
    endless = own_model._check_input(preset(tmp_path, text).experiment)
    (tmp_path / ASKED).write_text(f"secret\n{endless}", encoding="utf-8")
    words = python_process.command(own_model._CHILD, str(tmp_path), "0.1")
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as alone:  # nobody looks at the clock for it
        assert alone.wait(PATIENCE) == -signal.SIGALRM


def test_a_step_without_end_is_left_and_the_next_run_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_worker, "PATIENCE", 0.05)
    text = GOOD.replace(
        "self.last =", "self.register_buffer('count', torch.zeros(()))\n        self.last ="
    ).replace("    return F.cross", "    model.count += 1\n    while model.count > 4:\n        pass\n    return F.cross")  # fmt: skip
    simulator = Simulator(preset(tmp_path, text), backend=RemoteBackend())
    simulator.play()
    run = simulator.run
    until(lambda: (run.step_now or (0,))[0] == 4 and slow_step(run, 0.05))  # any step may be slow beside other load
    monkeypatch.setattr(slow_step, "__defaults__", (0.05,))
    until(lambda: "points.py" in describe(run).text)
    assert re.fullmatch(
        r"Step 4 has not ended yet; the (longest|latest) .* took .* s\. points\.py is at line 4[12]\.",
        describe(run).text,
    )
    simulator.stop()
    until(lambda: simulator.abandon_stuck() or run.over)
    assert (run.status, len(run.history)) == ("stopped", 4)  # also the rows that were held back
    assert any(
        re.fullmatch(r"Step 4 was left before its end, as it took \d+ s so far\.", told) for told in simulator.notices()
    )
    simulator.load(preset(tmp_path))
    simulator.play()
    until(lambda: simulator.run.status == "finished")
    assert simulator.run.history.column("loss").tolist() == trained(preset(tmp_path)).history.column("loss").tolist()
    assert simulator.close(PATIENCE) and len(run.history) == 4
