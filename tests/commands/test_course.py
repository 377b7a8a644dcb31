"""`gradstudio course`: the order of the lessons, and the handbook made of them."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradstudio.cli import app
from gradstudio.core import files
from gradstudio.core.presets import PresetError, load, parse, to_toml


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["course", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_list_has_every_lesson_behind_those_that_it_asks_for() -> None:
    found = json.loads(run("list", "--json"))
    places = {each["id"]: place for place, each in enumerate(found)}
    assert places.keys() == {path.stem for path in files.PRESETS.glob("*.toml")}
    assert all(places[before] < places[each["id"]] for each in found for before in each["prerequisites"])
    assert all(each["minutes"] >= 1 and each["title"] and each["group"] and each["level"] for each in found)


def test_the_handbook_has_lesson_curve_and_answers(tmp_path: Path) -> None:
    made = run(
        "handbook", "--only", "rnn-explosion", "--only", "poisoned-rank", "--format", "html,pdf", "--out", str(tmp_path)
    )
    assert [Path(line).name for line in made.split()] == ["handbook.html", "handbook.pdf"]
    page = (tmp_path / "handbook.html").read_text()
    assert page.index("1. RNN explosion") < page.index("2. The poisoned rank")
    assert "Heals it: clipping.kind=norm." in page and "problem.nan_every" in page and "weight_hh_l0" in page
    assert page.count("<svg") >= 2 and "http://" not in page.replace("http://www.w3.org", "")
    assert page.count('class="formula"') == 2 and "Formula:" not in page  # drawn, and not as it is typed
    assert (tmp_path / "handbook.pdf").read_bytes().startswith(b"%PDF")


def test_an_unknown_lesson_or_format_writes_nothing(tmp_path: Path) -> None:
    for wrong in (["--only", "nope"], ["--format", "docx"], ["--format", ","]):
        done = CliRunner().invoke(app, ["course", "handbook", "--out", str(tmp_path / "new"), *wrong])
        assert done.exit_code != 0 and not (tmp_path / "new").exists()


def test_the_handbook_has_the_notes_of_a_teacher_and_a_copy_keeps_them(tmp_path: Path) -> None:
    preset = load("rate-too-high")
    assert preset.notes is not None and preset.notes.questions
    run("handbook", "--only", preset.id, "--only", "rank-runs-out", "--format", "html", "--out", str(tmp_path))
    page = unescape((tmp_path / "handbook.html").read_text())
    told = [f"{preset.notes.minutes} min in class", f"Needs: {preset.notes.needs}"]
    told += [f"Point at: {each}" for each in preset.notes.point_at]
    told += [text for each in preset.notes.questions for text in (each.ask, each.answer)]
    places = [page.index(text) for text in told]
    assert places == sorted(places) and page.count("For the teacher") == 2
    assert parse(to_toml(preset), tmp_path / "copy.toml").notes == preset.notes
    with pytest.raises(PresetError, match=r"notes\.minutes = 0 is not allowed"):
        parse(to_toml(preset).replace(f"minutes = {preset.notes.minutes}", "minutes = 0"), tmp_path / "copy.toml")
