"""Exams: what is hidden cannot be read, the budgets hold, and grading believes nothing on an answer sheet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gradstudio.cli import app
from gradstudio.core import exam as exams
from gradstudio.core.assignment import LETTERS, AssignmentError
from gradstudio.core.events import Change
from gradstudio.core.exam import Exam
from gradstudio.core.experiment import KNOBS, Experiment, parse_assignment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset, load
from gradstudio.session.course import causes, exam_making, exam_taking
from gradstudio.session.course.exam_taking import AnswerSheet, Attempt
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import HEALED, has_learned
from gradstudio.session.running.worker import Worker

SEED = 40  # the second draw: a rate that falls at step 3; the first makes no exam


def train(run: Run) -> None:
    Worker(run).run()


@pytest.fixture(scope="module")
def drawn() -> Exam:
    return exam_making.draw_exam(SEED, train, lambda _: None)


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Exam]:
    """An exam as one that is drawn, and shorter: a rate that is raised at step 10."""
    texts = ["optimizer.lr=0.137", "model.width=32", "run.steps=40", "run.device=cpu", "run.seed=5"]
    preset = Preset(
        id="x", title="x", experiment=Experiment().with_texts(texts), timeline=(Change(10, "optimizer.lr", 60.0),)
    )
    made = exam_making.of(preset, 1, train, str, cause=causes.CAUSES["rate too high"], fix=["optimizer.lr=0.137"])
    path = tmp_path_factory.mktemp("exam") / "one.exam"
    path.write_text(made.to_toml())
    return path, exams.read(path)


@pytest.fixture(scope="module")
def taken(exam: tuple[Path, Exam], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An exam that was taken in a terminal, with the known fix."""
    path, found = exam
    sheet = tmp_path_factory.mktemp("class") / "ada.toml"
    fix, right = found.hidden.fix, LETTERS[found.hidden.right]
    lines = ["try optimizer.lr=1", "hand in 1", "run", "look", "knobs optimizer", "layers", "try run.steps=5"]
    lines += [f"try {' '.join(fix)}", f"diagnose {right}", "diagnose A", "hand in 0", "hand in 1", "run"]
    done = CliRunner().invoke(
        app, ["exam", "take", str(path), "--name", "Ada", "--out", str(sheet)], input="\n".join(lines)
    )
    assert done.exit_code == 0, (done.output, done.exception)
    return sheet, done.stdout


def test_the_file_tells_nothing_of_the_run(drawn: Exam, tmp_path: Path) -> None:
    text, path = drawn.to_toml(), tmp_path / "one.exam"
    path.write_text(text)
    found = exams.read(path)
    for name, value in found.hidden.knobs.items():
        if not found.is_shown(name):
            assert name not in text and (not isinstance(value, float) or repr(value) not in text)
    assert not found.is_shown("optimizer.lr") and "optimizer.lr" in found.hidden.knobs
    assert exam_making.draw_exam(SEED, train, lambda _: None).to_toml() == text  # the same seed is the same exam


def test_the_known_fix_holds_and_the_run_as_it_stands_does_not(drawn: Exam) -> None:
    for texts, heals in (([], False), (drawn.hidden.fix, True)):
        for seed, aim in drawn.hidden.aims.items():
            run = exam_making.of_seed(drawn, drawn.parse_changes(texts), int(seed))
            train(run)
            assert has_learned(run, HEALED * aim) is heals


def test_it_is_taken_in_a_terminal(exam: tuple[Path, Exam], taken: tuple[Path, str]) -> None:
    sheet, told = taken
    assert "the first run has no change" in told and "there is no diagnosis yet" in told
    assert re.search(r"^optimizer\.lr +\?", told, re.MULTILINE)  # covered
    assert "run.steps is locked" in told and "the first one counts" in told and "try 0 cannot be the fix" in told
    assert "5 tries are left" in told and "100 of 100 points" in told
    for name, value in exam[1].hidden.knobs.items():  # but for the fix, which is told when all is over
        if not exam[1].is_shown(name) and isinstance(value, float):
            assert repr(value) not in told.partition("Handed in")[0].replace(" ".join(exam[1].hidden.fix), "")
    again = CliRunner().invoke(app, ["exam", "take", str(exam[0]), "--out", str(sheet)])
    assert again.exit_code != 0 and "handed in already" in str(again.exception)


def test_a_name_that_no_text_holds_is_written_out(exam: tuple[Path, Exam], tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.toml"
    done = CliRunner().invoke(
        app, ["exam", "take", str(exam[0]), "--name", "A\udcff", "--out", str(sheet)], input="diagnose A\n"
    )
    assert done.exit_code == 0 and exam_taking.read(sheet).name == "A\\udcff", done.exception


def test_what_is_typed_may_be_anything(exam: tuple[Path, Exam], tmp_path: Path) -> None:
    typed = b"run\nlook " + b"9" * 5000 + b"\nhand in " + b"9" * 5000 + b"\n\xff\xfe\ndiagnose A\nhand in 5\n"
    done = CliRunner().invoke(
        app, ["exam", "take", str(exam[0]), "--name", "Ada", "--out", str(tmp_path / "sheet.toml")], input=typed
    )
    assert done.exit_code == 0 and done.stdout.count("Not allowed") == 3, (done.output, done.exception)
    assert "is no command" in done.stdout and "there is no try 9999" in done.stdout


def test_nobody_goes_on_with_the_sheet_of_another(exam: tuple[Path, Exam], tmp_path: Path) -> None:
    """Without --out all who take an exam in one folder have the same sheet."""
    path = tmp_path / "one.exam"
    path.write_bytes(exam[0].read_bytes())
    sheet = path.with_suffix(".answers.toml")
    CliRunner().invoke(app, ["exam", "take", str(path), "--name", "Ada"], input="diagnose A\n")
    before = sheet.read_bytes()
    done = CliRunner().invoke(app, ["exam", "take", str(path), "--name", "Grace"], input="diagnose B\n")
    assert "is the answer sheet of Ada" in str(done.exception) and sheet.read_bytes() == before
    for same in (["--name", "Ada"], []):
        assert CliRunner().invoke(app, ["exam", "take", str(path), *same], input="quit\n").exit_code == 0


def resealed(sheet: AnswerSheet, **values: object) -> AnswerSheet:
    return sheet.model_copy(update={"tries": [sheet.tries[0], sheet.tries[1].model_copy(update=values)]}).with_seal()


def test_grading_believes_nothing(exam: tuple[Path, Exam], taken: tuple[Path, str], tmp_path: Path) -> None:
    sheet = exam_taking.read(taken[0])
    wrong = "B" if sheet.diagnosis == "A" else "A"
    forged: dict[str, tuple[AnswerSheet, str]] = {
        "edited": (sheet.model_copy(update={"diagnosis": wrong}), "changed by another program"),
        "better": (resealed(sheet, accuracy=1.0), "accuracy is not that of its rows"),
        "rows": (resealed(sheet, digest="0" * 64), "its rows are different"),
        "locked": (resealed(sheet, knobs={"problem.task": "pole"}), "problem.task is locked"),
        "many": (resealed(sheet, knobs={"a.b": 1}), "unknown knob"),
        "tries": (
            sheet.model_copy(update={"tries": [*sheet.tries] * 10}).with_seal(),
            "19 tries were made; allowed: 6",
        ),
    }
    for name, (each, _) in forged.items():
        (tmp_path / f"{name}.toml").write_text(each.to_toml())
    (tmp_path / "sound.toml").write_bytes(taken[0].read_bytes())
    (tmp_path / "wrong.toml").write_text(sheet.model_copy(update={"diagnosis": wrong}).with_seal().to_toml())
    (tmp_path / "none.toml").write_text(sheet.model_copy(update={"diagnosis": ""}).with_seal().to_toml())
    (tmp_path / "nonsense.toml").write_text("exam = 3")
    worksheet = f'schema = 1\nexercise = "{sheet.what}"\nname = "Ada"\nseed = 1\n'  # of an exam, which has none
    (tmp_path / "worksheet.toml").write_text(worksheet)
    asked = ["grade", str(tmp_path), "--exam", str(exam[0]), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1, done.output
    told = {each["file"]: each for each in json.loads(done.stdout)["worksheets"]}
    for name, (_, why) in forged.items():
        found = told[f"{name}.toml"]
        assert not found["verified"] and not found["score"] and why in found["reason"].lower(), found
    assert (told["sound.toml"]["verified"], told["sound.toml"]["score"], told["sound.toml"]["of"]) == (True, 100, 100)
    assert (told["wrong.toml"]["verified"], told["wrong.toml"]["score"]) == (True, 60)
    assert told["none.toml"]["answers"][0] == {"answer": "", "points": 0, "of": 40}
    assert "nonsense.toml" in told["nonsense.toml"]["reason"]
    assert "is known" in told["worksheet.toml"]["reason"] and not told["worksheet.toml"]["verified"]
    assert "Few changes" in (tmp_path / "out" / "class.html").read_text()


def test_a_teacher_is_told_how_to_name_the_exam(exam: tuple[Path, Exam], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    attempt = exam_taking.Attempt(exam[1], "Ada")
    (tmp_path / "in" / "ada.toml").write_text(attempt.sheet.with_seal().to_toml())
    asked = ["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1 and "is known; name its file with --exam FILE" in done.stdout, done.output
    done = CliRunner().invoke(app, [*asked, "--exam", str(exam[0])])
    assert "not handed in" in done.stdout and "0 of 0" not in done.stdout and "trained again" not in done.stderr


def test_the_budgets_hold(exam: tuple[Path, Exam]) -> None:
    found = exam[1].model_copy(update={"tries": 1, "changes": 1})
    attempt = Attempt(found, "Ada")
    for texts in ([], ["optimizer.lr=0.01"]):
        run = attempt.run(texts)
        run.__dict__["status"] = "finished"  # not trained: only the count matters here
        attempt.add_try(run, texts)
    with pytest.raises(KnobError, match="all 1 tries are made"):
        attempt.run(["optimizer.lr=0.02"])
    with pytest.raises(KnobError, match="2 knobs are changed; allowed: at most 1"):
        attempt.run(["optimizer.lr=0.01", "clipping.kind=norm"])
    with pytest.raises(AssignmentError, match="is no choice"):
        attempt.diagnose("Z")
    edited = attempt.sheet.model_copy(update={"tries": []})
    for changed in (edited, edited.model_copy(update={"seal": ""})):
        with pytest.raises(AssignmentError, match="changed by another program"):
            Attempt(found, "Ada", changed)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace("tries = 6", "tries = 50"), "was changed after"),
        (lambda text: text.replace('packed = "', 'packed = "AAAA'), "was changed after"),
        (lambda text: "schema = 2", "is not allowed"),
        (lambda text: text + "x" * 200_000, "larger than"),
    ],
)
def test_a_damaged_exam_gets_one_line(
    exam: tuple[Path, Exam], tmp_path: Path, change: Callable[[str], str], why: str
) -> None:
    path = tmp_path / "bad.exam"
    path.write_text(change(exam[0].read_text()))
    with pytest.raises(AssignmentError, match=why) as told:
        exams.read(path)
    assert "\n" not in str(told.value)


def test_what_is_packed_is_bounded(exam: tuple[Path, Exam], tmp_path: Path) -> None:
    hidden = exam[1].hidden
    path = tmp_path / "bad.exam"
    for bad, why in (
        (hidden.model_copy(update={"knobs": {**hidden.knobs, "run.steps": 10_000_000}}), "run.steps"),
        (hidden.model_copy(update={"right": 7}), "not among the choices"),
        (hidden.model_copy(update={"aims": {"1": 0.5, "2": 0.5, "x": 0.5}}), "not those of its run"),
        (hidden.model_copy(update={"aims": {"1": 0.5, "2": 0.5, "9" * 5000: 0.5}}), "not those of its run"),
        (hidden.model_copy(update={"aims": {"1": 0.5, "2": 0.5, "02": 0.5}}), "not those of its run"),
        (hidden.model_copy(update={"fix": ["x" * 300] * 2_000}), "damaged"),
    ):
        path.write_text(exam[1].with_hidden(bad).to_toml())
        with pytest.raises(AssignmentError, match=why):
            exams.read(path)


def test_an_exam_of_a_preset_and_of_a_run_that_is_fine(tmp_path: Path) -> None:
    out = tmp_path / "a.exam"
    small = ["--cause", "The rate is too high.", "--fix", "optimizer.lr=0.05", "--tries", "3"]
    source = tmp_path / "broken.toml"
    source.write_text(
        "[optimizer]\nlr = 60.0\n[model]\nwidth = 32\n[run]\nsteps = 100\ndevice = 'cpu'\n[problem]\ntask = 'digits'\n"
    )
    done = CliRunner().invoke(app, ["exam", "new", str(source), "--out", str(out), *small])
    assert done.exit_code == 0, (done.output, done.exception)
    found = exams.read(out)
    assert found.choices[found.hidden.right] == "The rate is too high." and found.tries == 3
    uncleared, named = tmp_path / "uncleared.toml", tmp_path / "named.exam"
    uncleared.write_text(source.read_text().replace("lr = 60.0", "lr = 0.3") + "[mistakes]\nnever_zero_grad = true\n")
    done = CliRunner().invoke(
        app, ["exam", "new", str(uncleared), "--out", str(named), "--fix", "mistakes.never_zero_grad=false"]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert exams.read(named).choices[exams.read(named).hidden.right] == causes.CAUSES["not cleared"]
    for arguments, why in (
        ([str(source), "--out", str(out)], "is there already"),
        (["random", "--out", str(tmp_path / "b.exam"), "--title", "x"], "--title does not go with"),
        ([str(source), "--out", str(tmp_path / "c.exam"), "--cause", "x", "--fix", "optimizer.lr=50"], "no fix makes"),
        ([str(source), "--out", str(tmp_path / "d.exam"), "--lock", "nonsense"], "nonsense"),
    ):
        refused = CliRunner().invoke(app, ["exam", "new", *arguments])
        assert refused.exit_code != 0 and why in str(refused.exception), refused.exception


@pytest.mark.parametrize(
    ("texts", "asked", "why"),
    [
        ([], {"title": "x" * 61}, "the title has 61 characters"),
        ([], {"cause": "x" * 301}, "the cause has 301 characters"),
        ([], {"fix": ["optimizer.lr=1"] * 21}, "the fix changes 21 knobs"),
        (["run.steps=20001"], {}, "run.steps = 20,001 is not allowed in an exam"),
        (["run.seed=2147483646"], {}, "leaves no 3 seeds to try; allowed: at most 2147483645"),
    ],
)
def test_what_no_exam_can_have_is_refused_before_anything_is_trained(texts: list[str], asked: dict, why: str) -> None:
    preset = Preset(id="x", title="x", experiment=Experiment().with_texts(texts))
    with pytest.raises(AssignmentError, match=why):
        exam_making.of(preset, 1, lambda run: pytest.fail("trained"), str, **asked)


def test_a_fix_that_is_looked_for_leaves_what_is_locked() -> None:
    texts = ["model.kind=rnn", "optimizer.lr=5", "run.steps=60"]
    preset = Preset(id="x", title="x", experiment=Experiment().with_texts(texts))
    for locked, fix in (([], "clipping.kind=norm"), (["clipping.kind"], "optimizer.lr=0.36")):
        told: list[str] = []
        made = exam_making.of(preset, 1, train, told.append, cause="x", locked=locked)
        assert made.hidden.fix == [fix] and told[1:] == [f"the fix {fix}"]


def test_a_section_is_locked_but_for_the_knobs_of_the_fix() -> None:
    texts = ["optimizer.lr=60", "run.steps=40", "optimizer.momentum=0.1"]
    preset, fix = Preset(id="x", title="x", experiment=Experiment().with_texts(texts)), ["optimizer.lr=0.1"]
    made = exam_making.of(preset, 1, train, str, cause="x", fix=fix, locked=["optimizer"], shown=["optimizer"])
    assert made.is_locked("optimizer.momentum") and not made.is_locked("optimizer.lr") and made.is_locked("run.seed")
    assert made.is_shown("optimizer.momentum") and not made.is_shown("optimizer.lr")
    made.check()
    for part in ("locked", "shown"):
        with pytest.raises(AssignmentError, match=r"optimizer\.lr is a knob of the fix"):
            exam_making.of(preset, 1, train, str, cause="x", fix=fix, **{part: ["optimizer.lr"]})
    made = exam_making.of(preset, 1, train, str, cause="x", fix=[*fix, "run.steps=60"])
    assert made.is_locked("run.seed") and made.is_locked("run.device") and not made.is_locked("run.steps")
    with pytest.raises(KnobError, match=r"run\.steps = 20,001"):  # which grading would train three times
        made.parse_changes(["run.steps=20001"])


@pytest.mark.parametrize(
    ("id", "cause"),
    [
        ("log-of-zero", "loss"),
        ("nan-in-the-data", ""),  # the data gives the NaN, and the loss is sound
        ("centralized-gradients", ""),  # units die, and no bias keeps them off
        ("bf16-weights", ""),  # the weights are rounded
        ("clip-before-backward", ""),  # too early, not too late
        ("step-around-the-scaler", ""),
        ("post-norm-transformer", ""),  # its activation does not make the gradient vanish
        ("deep-sigmoid-vanishing", "vanishes"),
        ("clip-after-step", "late clip"),
        ("clip-before-unscale", "scaled clip"),
        ("missing-zero-grad", "not cleared"),
        ("undivided-accumulation", "not divided"),
        ("rnn-explosion", "explodes"),
        ("rate-too-low", "rate too low"),
    ],
)
def test_the_right_cause_is_true_of_the_run(id: str, cause: str) -> None:
    preset = load(id)
    assert preset.promise is not None and preset.promise.rule
    fix = dict(map(parse_assignment, preset.promise.fix))
    assert causes.of_findings([preset.promise.rule], preset.experiment, preset.timeline, fix) == cause


def test_what_a_live_change_sets_is_true_of_a_run() -> None:
    change = Change(60, "problem.outlier_every", 20)
    for changes, cause in (([change], "outliers"), ([], "")):
        assert causes.of_findings(["loss_spike"], Experiment(), changes, {"optimizer.lr": 0.1}) == cause


def test_the_words_of_a_teacher_may_be_no_utf_8(tmp_path: Path) -> None:
    preset = Preset(id="x", title="x", experiment=Experiment().with_texts(["optimizer.lr=60", "run.steps=60"]))
    path = tmp_path / "odd.exam"
    made = exam_making.of(preset, 1, train, str, title="\udcff", cause="\udcfe", fix=["optimizer.lr=0.05"])
    path.write_text(made.to_toml())
    found = exams.read(path)
    assert (found.title, found.choices[found.hidden.right]) == ("\\udcff", "\\udcfe")


def test_of_the_choices_one_alone_is_right() -> None:
    for seed in range(40):
        right = list(causes.CAUSES)[seed % len(causes.CAUSES)]
        texts, place = causes.choices(right, np.random.default_rng(seed))
        assert texts[place] == causes.CAUSES[right] and len(set(texts)) == 6
        # nor where a teacher says it in the words of the list
        for said in (causes.CAUSES[right], causes.CAUSES[right].lower().rstrip(".")):
            assert causes.choices(said, np.random.default_rng(seed)) == (texts, place)
    assert {kind.name for kind in exam_making.KINDS} == set(causes.kinds())  # each name is that of a drawn fault
    assert {causes.of_kind(name) for name in causes.kinds()} <= set(causes.CAUSES)
    assert {*causes.OF_MISTAKE.values()} <= set(causes.CAUSES) and set(causes.OF_MISTAKE) <= set(KNOBS)
