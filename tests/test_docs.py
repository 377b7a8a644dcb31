"""The documentation is short and plain, and what it tells people to type is right."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

import gradstudio
from gradstudio.cli import app
from gradstudio.commands import exit_codes
from gradstudio.core import exercise, presets
from gradstudio.core.experiment import KNOBS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = 18_000
MOST_IN_A_SENTENCE = 25
LINE, MOST_LINES = 150, 6
EXAMPLES = {"train.py", "html.py", "my_model.py"}  # files that are not of this program
QUICK = ("new", "presets", "course", "run")  # commands that take less than two seconds, but for ranks
COMMANDS = typer.main.get_command(app)
COMMAND = re.compile(r"^(?:\.venv/bin/)?gradstudio (?P<words>[^#>|&;]*)")
MAKE = re.compile(r"^make (?P<target>[a-z-]+)")
BENCHMARK = re.compile(r"^python -m benchmarks(?P<parts>(?: [a-z]+)*)")


def code(page: Path) -> Iterator[str]:
    """Yield each block of code of a page, fenced or indented."""
    text = page.read_text(encoding="utf-8")
    for fenced, indented in re.findall(
        r"^```\w*\n(.*?)^```|(?<=\n\n)((?: {4}[^\n]*\n|\n(?= {4}))+)", text, re.M | re.S
    ):
        yield fenced or re.sub(r"^ {4}", "", indented, flags=re.M)


def paragraphs(page: Path) -> list[str]:
    """Return the paragraphs and entries of lists, without code, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    text = re.sub(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", "\n", text)
    text = re.sub(r"^(?:\||#|!\[|!!!).*\n?", "\n", text, flags=re.M)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n", text, flags=re.M)
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n", text) if each.strip()]


def sentences(paragraph: str) -> list[str]:
    text = re.sub(r"`[^`]*`", "CODE", paragraph)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.split(r"(?<=[.!?])[*)\"]*\s+(?=[*\"(\[]*[A-Z0-9])", text)


def words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_and_paragraphs_are_short(page: Path) -> None:
    for paragraph in paragraphs(page):
        assert len(paragraph) <= LINE * MOST_LINES, f"over {MOST_LINES} lines: {paragraph[:90]}"
        for sentence in sentences(paragraph):
            assert words(sentence) <= MOST_IN_A_SENTENCE, f"{words(sentence)} words: {sentence}"


def test_all_of_it_can_be_read_in_two_hours() -> None:
    count = {page.name: words(page.read_text(encoding="utf-8")) for page in PAGES}
    assert sum(count.values()) <= MOST_WORDS, count


def context(line: str) -> click.Context:
    """Return the context of the command that a line calls; click.UsageError where it is not one."""
    arguments = shlex.split(line)
    command: click.Command = COMMANDS
    found = command.make_context("gradstudio", arguments, resilient_parsing=True)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, command, arguments = command.resolve_command(found, arguments)  # pyright: ignore[reportAssignmentType]
        if isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
            continue
        found = command.make_context(name, arguments, parent=found)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_can_be_typed(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    parts = {path.stem for path in (ROOT / "benchmarks").iterdir()}
    for line in (line for block in code(page) for line in block.splitlines()):
        if typed := COMMAND.match(line):
            context(typed["words"])
            for knob in re.findall(r"--set ([a-z_.]+)=|--at \d+:([a-z_.]+)=", line):
                name = "".join(knob)
                assert name in KNOBS or name.startswith("model_file."), f"no knob {name}: {line}"
        elif typed := MAKE.match(line):
            assert typed["target"] in targets, line
        elif typed := BENCHMARK.match(line):
            assert parts >= set(typed["parts"].split()), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_first_command_of_a_page_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for block in code(page) for line in block.splitlines() if COMMAND.match(line)]
    typed = shlex.split(COMMAND.match(lines[0])["words"]) if lines else []  # pyright: ignore[reportOptionalSubscript]
    if typed and typed[0] in QUICK and "ranks" not in lines[0]:
        monkeypatch.chdir(tmp_path)
        found = CliRunner().invoke(app, typed)
        assert found.exit_code in (exit_codes.FINISHED, exit_codes.DIVERGED), f"{lines[0]}: {found.output}"
        if page.name == "diagnosis.md":  # its picture is of this run
            cause = json.loads(found.stdout)["findings"][0]
            assert cause["rule"] == "exploding_gradient"
            assert set(cause["explains"]) == {"update_ratio_high", "nonfinite_loss", "loss_spike"}


def test_a_preset_and_an_exercise_can_be_written_like_the_examples(tmp_path: Path) -> None:
    preset, asking, notes = (block for block in code(ROOT / "docs" / "presets.md") if re.match(r"schema|\[", block))
    file = tmp_path / "my.toml"
    file.write_text("\n".join((preset, asking, notes)), encoding="utf-8")
    assert len(presets.read(file).lesson) == 4
    (text,) = (block for block in code(ROOT / "docs" / "course.md") if block.startswith("schema"))
    file.write_text(text, encoding="utf-8")
    assert len(exercise.read(file).question) == 3


def test_the_script_that_is_to_break_does_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = list(code(ROOT / "docs" / "first_watch.md"))
    script, mended = (block for block in blocks if "nn." in block)
    watch = "watched = gradstudio.watch(model, optimizer, library=library)\n"
    script = script.replace("inputs, labels", watch + "inputs, labels", 1).replace("range(100)", "range(40)")
    healthy = script
    for line in mended.splitlines():  # each takes the place of the line that begins like it
        healthy = re.sub(rf"^{re.escape(line.split('=')[0])}=.*", line, healthy, flags=re.M)
    findings = []
    for text in (script, healthy):
        names = {"gradstudio": gradstudio, "library": tmp_path / "runs.sqlite3"}
        exec(text, names)
        findings.append({finding.rule: finding.severity for finding in names["watched"].findings})
        names["watched"].close()
    assert findings[0] == {"nonfinite_loss": "critical", "update_ratio_high": "critical"}
    assert "critical" not in findings[1].values()
    printed = capfd.readouterr().err
    (shown,) = (block for block in blocks if block.startswith("gradstudio: step"))
    assert all(line in printed for line in shown.splitlines() if "source" not in line), printed


def test_every_file_that_a_page_names_is_there() -> None:
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in ("gradstudio", "tests", "benchmarks", "docs", "presets")
        for path in (ROOT / folder).rglob("*")
    }
    for page in PAGES:
        for name in re.findall(r"`(?:gradstudio/)?([\w/]+\.(?:py|svg)|(?:\w+/)+)`", page.read_text(encoding="utf-8")):
            found = name.rstrip("/")
            if found in EXAMPLES:
                continue
            assert any(f"/{each}".endswith(f"/{found}") for each in there) or (ROOT / found).exists(), (
                f"{page.name}: no {name}"
            )
