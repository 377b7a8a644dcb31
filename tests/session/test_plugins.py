"""Plug-ins: the example of the documentation, installed as a person does, and ones that fail."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import PATIENCE

import gradstudio
from gradstudio.core import plugins, presets
from gradstudio.core.diagnosis import added_rules
from gradstudio.engine.gauges import added_gauges
from gradstudio.session.library.store import Library
from gradstudio.session.machine import own_files
from gradstudio.watching import training_watch

EXAMPLE = Path(__file__).parents[2] / "docs/plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    where = ["--no-build-isolation", "--target", str(folder), str(EXAMPLE)]
    subprocess.run([*pip, *where], check=True, timeout=PATIENCE)
    return folder


def forget() -> None:
    plugins.forget()
    added_gauges._make.cache_clear()


@pytest.fixture
def example(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(installed)
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Any], None]]:
    """Add a plug-in that nobody has installed."""
    entries: dict[str, list[Any]] = {group: [] for group in plugins.GROUPS}
    forget()
    monkeypatch.setattr(plugins, "_entries", lambda: entries)
    monkeypatch.setattr(plugins, "forget", plugins._loaded.cache_clear)

    def add(group: str, value: Any, name: str = "odd") -> None:
        class Loading(EntryPoint):
            def load(self) -> Any:
                if isinstance(value, Exception):
                    raise value
                return value

        entries[group].append(Loading(name, "odd:it", f"gradstudio.{group}"))

    yield add
    monkeypatch.undo()
    forget()
    plugins._off.clear()


def latest() -> Any:
    from gradstudio.core import files

    library = Library(files.user_library())
    try:
        return library.load(library.find("last"))
    finally:
        library.close()


@pytest.mark.usefixtures("example")
def test_one_file_adds_a_rule_with_its_remedy_a_column_a_gauge_an_export_and_a_preset(
    gradstudio: Callable, tmp_path: Path
) -> None:
    assert presets.load("quiet-start").experiment.model.depth == 12
    assert gradstudio("run", "quiet-start", "--steps", "25", "--quiet").code in (0, 4)
    run = latest()
    steps, values = run.history.logged_as("largest weight")
    assert steps == [0, 10, 20] and all(map(math.isfinite, values))
    steps, values = run.history.logged_as("quietest layer")
    norms = run.history.layer_metric("grad_norm")
    assert steps == list(range(25)) and values == pytest.approx((norms.min(1) / norms.max(1)).tolist())
    found = run.findings["quiet_layer"]
    assert "The gradient norm of" in found.evidence
    shown = gradstudio("runs", "show", "last")
    assert "A layer hardly gets a gradient" in shown.out
    done = gradstudio("report", "last", "--format", "markdown,html", "--out", tmp_path)
    assert done.code == 0 and (tmp_path / "run.md").read_text().startswith("# Quiet start")
    page = (tmp_path / "report.html").read_text()
    assert "largest weight" in page and "quietest layer" in page  # each has its plot
    assert "quiet_layer" in next(check.text for check in own_files.own_plugins())


@pytest.mark.usefixtures("example")
def test_a_script_gets_the_remedy_that_is_a_line_of_code(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(6)])
    for parameter in model[5].parameters():
        parameter.data *= 1e-6
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = gradstudio.watch(model, optimizer, library=tmp_path / "runs.db")
    for _ in range(25):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
    (told,) = [finding for finding in one.findings if finding.rule == "quiet_layer"]
    assert any("xavier_uniform_" in remedy for remedy in told.remedies)
    (run,) = [found.run for found in one.watched_runs if found.run is not None]
    assert run.history.logged_as("largest weight")[0] == [0, 10, 20]
    watcher = training_watch.current()
    assert watcher is not None
    watcher.close("finished", "")


class FailsLater:
    rule, every_row = "odd", True

    def update(self, history: Any, progress: Any) -> None:
        if len(history) == 5:
            raise ZeroDivisionError("of the plug-in")


class GivesAnything(FailsLater):
    def update(self, history: Any, progress: Any) -> Any:
        return "a text"


class Gauge:
    def measure(self, model: Any) -> float:
        raise ValueError("no such\nlayer")


@pytest.mark.parametrize(
    ("group", "value", "said"),
    [
        ("rules", FailsLater, "ZeroDivisionError: of the plug-in"),
        ("rules", GivesAnything, "TypeError: a rule gives None or its own Finding, not str"),
        ("rules", ImportError("no module of theirs"), "ImportError: no module of theirs"),
        ("rules", dict, "must be one new name"),
        ("gauges", Gauge, "ValueError: no such"),
        ("columns", lambda row: row.nothing, "AttributeError"),
    ],
)
def test_one_that_fails_is_named_and_switched_off_and_the_training_is_as_it_was(
    adding: Callable, gradstudio: Callable, group: str, value: Any, said: str
) -> None:
    assert gradstudio("run", "healthy-mlp", "--steps", "25", "--quiet").code == 0
    before = latest()
    adding(group, value)
    plugins._loaded.cache_clear()
    assert gradstudio("run", "healthy-mlp", "--steps", "25", "--quiet").code == 0
    run = latest()
    assert run.id != before.id and run.history.column("loss").tolist() == before.history.column("loss").tolist()
    told = run.findings[added_rules.SWITCHED_OFF]
    assert told.severity == "info" and f"odd of gradstudio.{group} failed and is switched off" in told.evidence
    assert said in told.evidence and not plugins.is_on(group, "odd")
    assert before.findings.keys() | {added_rules.SWITCHED_OFF} == run.findings.keys()
    assert any(said in check.text and not check.ok for check in own_files.own_plugins())


def test_an_export_that_fails_is_one_line(adding: Callable, gradstudio: Callable, tmp_path: Path) -> None:
    adding("exporters", lambda run: {"../away.md": "text"})
    adding("gauges", Gauge, name="loss")
    plugins._loaded.cache_clear()
    assert gradstudio("run", "healthy-mlp", "--steps", "2", "--quiet").code == 0
    answer = gradstudio("report", "last", "--format", "odd", "--out", tmp_path / "out")
    assert (answer.code, answer.err.count("\n")) == (2, 1) and "names of files without a folder" in answer.err
    assert not list(tmp_path.glob("**/away.md")) and not plugins.is_on("gauges", "loss")
