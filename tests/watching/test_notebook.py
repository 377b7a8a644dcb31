"""A training in a notebook: what a cell shows, the magic, the live picture, and a run that ends with its cell."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from watching.conftest import runs_of, small_net, square_loss

from gradstudio.session.library.store import Library
from gradstudio.watching import cell_magic, live_widget, notebook, training_watch
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


class Shell:
    """What is used of a notebook's shell."""

    kernel = True

    def __init__(self) -> None:
        self.ended: list[Callable[[], object]] = []
        self.magics: dict[str, Any] = {}
        self.user_ns: dict[str, Any] = {}
        self.events = SimpleNamespace(register=lambda _, function: self.ended.append(function))

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        self.magics[f"{kind} {name}"] = function

    def run_cell(self, text: str) -> None:
        exec(text, self.user_ns)
        for function in self.ended:
            function()


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int, scale: float = 1.0) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        (scale * square_loss(model)).backward()
        optimizer.step()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell()
    monkeypatch.setattr(notebook, "_shell", lambda: made)
    model = small_net()
    made.user_ns |= {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "train": train}
    return made


def test_a_run_ends_with_its_cell_and_goes_on_in_the_next(watch: Watch, shell: Shell, tmp_path: Path) -> None:
    one = watch(shell.user_ns["model"], shell.user_ns["optimizer"])
    shell.run_cell("train(model, optimizer, 12)")
    (first,) = runs_of(one)
    assert first.status == "finished" and len(first.history) == 12
    shell.run_cell("pass")
    shell.run_cell("train(model, optimizer, 5)")
    _, second = runs_of(one)
    assert (second.parent, second.parent_step, second.status) == (first.id, 12, "finished")
    assert second.history.column("step").tolist() == [*range(17)]
    one.close()
    library = Library(tmp_path / "runs.db")
    assert {entry.id for entry in library.entries()} == {first.id, second.id}
    library.close()


def test_the_magic_watches_the_optimizers_of_earlier_cells_and_shows_what_came_of_it(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "runs.db"))
    shown: list[str] = []
    display = SimpleNamespace(HTML=lambda text: text, display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    cell_magic.load_ipython_extension(shell)
    shell.magics["cell watch"](
        "--name mine --every 1", "train(model, optimizer, 10)\ntrain(model, optimizer, 1, float('nan'))"
    )
    (text,) = shown
    assert "mine: diverged at step 10" in text and "The loss is not finite" in text and text.count("<svg") == 3
    current = training_watch.current()
    assert current is not None and current.closed


def test_what_is_watched_shows_itself_with_its_findings_escaped(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer, name="<b>bold</b>")
    assert "no step was seen yet" in one._repr_html_() and one.findings._repr_html_() == "<p>no rule found anything</p>"
    train(model, optimizer, 5)
    train(model, optimizer, 1, math.nan)
    text = one._repr_html_()
    assert "&lt;b&gt;bold&lt;/b&gt;: " in text and "<b>bold" not in text and text.count("<svg") == 3
    assert "<b>The loss is not finite</b>" in one.findings._repr_html_()
    one.close()


def test_the_live_picture_has_the_numbers_of_the_run_and_null_where_there_is_none(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    assert live_widget.picture(None)["curves"] == []
    train(model, optimizer, 5)
    train(model, optimizer, 1, math.nan)
    (run,) = runs_of(one)
    shown = live_widget.picture(run)
    loss = shown["curves"][0]
    assert loss["values"] == [*run.history.column("loss", 0, 5), None] and loss["steps"] == [*range(6)]
    assert (len(shown["layers"]), len(shown["cells"]), shown["findings"][0]["severity"]) == (4, 4, "critical")
    json.dumps(shown, allow_nan=False)
    one.close()


def test_in_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "runs.db"))
    cells = [
        "import torch, gradstudio\nmodel = torch.nn.Linear(3, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.01)",
        "one = gradstudio.watch(model, optimizer)\none.widget()",
        "for _ in range(9):\n    optimizer.zero_grad(); model(torch.randn(4, 3)).square().mean().backward(); optimizer.step()",
        "one",
        "print(one.watched_runs[0].run.status)",
        "%load_ext gradstudio",
        "%%watch --name again\nmodel(torch.randn(4, 3)).square().mean().backward(); optimizer.step()",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in book.cells]
    assert any("widget-view" in kind for output in outputs[1] for kind in output.get("data", {}))
    assert "finished 9 steps" in outputs[3][0]["data"]["text/html"] and outputs[4][0]["text"] == "finished\n"
    assert any("again: finished" in output["data"]["text/html"] for output in outputs[6] if "data" in output)
