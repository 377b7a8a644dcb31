"""The report of a branch tells the journey: how the parent broke, what was tried, what was changed, how it went on."""

from __future__ import annotations

import pytest

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.session.files import report
from gradstudio.session.files.report.journey_section import journey
from gradstudio.session.record.branches import fork
from gradstudio.session.record.run import Run
from gradstudio.session.running.remedy_trial import Trial
from gradstudio.session.running.worker import Worker

KNOBS = ["optimizer.lr=60", "model.width=8", "model.depth=1", "run.steps=40", "run.device=cpu", "problem.batch_size=16"]


@pytest.fixture(scope="module")
def line() -> tuple[Run, Run, Run]:
    experiment = Experiment().with_texts(KNOBS).with_value("problem.input_scale", 1e4)
    first = Run(Preset(id="made", title="Made", experiment=experiment), experiment)
    Worker(first).run()
    assert first.status == "nonfinite"
    second = fork(first, 1, changes=(Change(1, "clipping.kind", "norm"),))
    Worker(second).run()
    third = fork(second, 20, changes=(Change(20, "optimizer.lr", 0.01),))
    Worker(third).run()
    return first, second, third


def test_the_journey_is_told_from_the_first_run_on(line: tuple[Run, Run, Run]) -> None:
    first, second, third = line
    trial = Trial("clipping.kind=norm", from_step=1, run=second, loss=2.25, outcome="held")
    page = report.content(third, "html", line=[first, second], fixes={first.id: [trial]})
    assert isinstance(page, str)
    place = -1
    for words in (
        "The journey", f"diverged at step {first.first_nonfinite_step}", "was born in", "Fixes were tried",
        "start of step 1, with clipping.kind = norm", "start of step 20, with optimizer.lr = 0.01", "Loss of the journey",
    ):  # fmt: skip
        found = page.find(words, place + 1)
        assert found > place, words
        place = found
    assert report.content(third, "pdf", line=[first, second])


def test_a_run_that_is_gone_is_said_to_be_unknown(line: tuple[Run, Run, Run]) -> None:
    first, second, third = line
    page = str(report.content(third, "html", line=[second]))
    assert f"What the run {first.id} did is not known here" in page and "On the test set" in page
    assert journey(first, [], {}) is None  # no branch, and nothing was tried
    tried = journey(first, [], {first.id: [Trial("optimizer.lr=0.1", outcome="broke again", broke_at=7)]})
    assert tried is not None and tried.title == "Fixes that were tried"
