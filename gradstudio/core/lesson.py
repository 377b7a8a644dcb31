"""The lesson of a preset as stored in its file: steps to do, questions to answer before a run or about its numbers,
hints, formulas and papers; and notes for the teacher."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gradstudio.core import measure
from gradstudio.core.diagnosis.rule_names import NAMES
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, quote

MOST_CHOICES = 6
MOST_NOTES = 12  # of a kind

Outcome = Literal["finished", "nonfinite", "failed"]
MapStep = Literal["made", "opened"]
Text = Annotated[str, Field(max_length=2000)]
Line = Annotated[str, Field(max_length=300)]


TABLE = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)  # of a preset's file


class Part(BaseModel):
    model_config = TABLE


class Choice(Part):
    """One answer to choose before a run. It is right if all of its conditions hold for that run; exactly one choice of
    a question should be."""

    text: Line
    outcome: Outcome | None = None
    rule: Text | None = None  # this finding is there, as a warning or critical
    where: Annotated[list[Line], Field(max_length=4)] = []  # comparisons, see core/measure.py


class Explain(Part):
    """A number to read off the run. An answer is right if it differs from the run's own by no more than `tolerance`, as
    a share of it."""

    measure: Line
    tolerance: Annotated[float, Field(ge=0, le=1)] = 0.1
    unit: Annotated[str, Field(max_length=20)] = ""


class TextWithQuestion(Part):
    """A text that may contain a question about the run: a choice to predict, or a number to read."""

    text: Text
    predict: Annotated[list[Choice], Field(max_length=MOST_CHOICES)] = []
    explain: Explain | None = None

    @property
    def is_question(self) -> bool:
        return bool(self.predict) or self.explain is not None

    def check_question(self) -> None:
        """Raise KnobError if no run can answer it."""
        if self.predict and self.explain:
            raise KnobError("predict and explain are two questions; allowed: one of them")
        if len(self.predict) == 1:
            raise KnobError(f"predict has 1 choice; allowed: 2 to {MOST_CHOICES}")
        for choice in self.predict:
            check_rule(choice.rule)
            if not (choice.outcome or choice.rule or choice.where):
                raise KnobError(f"choice {quote(choice.text)} names nothing that a run could show; allowed: outcome, "
                                "rule, where")  # fmt: skip
            for text in choice.where:
                measure.comparison(text)
        if self.explain:
            measure.measure(self.explain.measure)


class Paper(Part):
    text: Line
    url: Annotated[str, Field(max_length=300, pattern=r"^https://[A-Za-z0-9.-]+/[!-~]*$")]


class FrequentQuestion(Part):
    """A question that students ask, and what to answer."""

    ask: Line
    answer: Text


class Notes(Part):
    """What a teacher needs for a lesson. `minutes`: in class, with talking; `point_at`: what to show the class."""

    needs: Text = ""  # what students should know before
    minutes: Annotated[int, Field(ge=1, le=480)] | None = None
    point_at: Annotated[list[Text], Field(max_length=MOST_NOTES)] = []
    questions: Annotated[list[FrequentQuestion], Field(max_length=MOST_NOTES)] = []


class LessonStep(TextWithQuestion):
    """One step of a lesson. It is done once all of its conditions hold at the same time; a question is done once it is
    answered. Its question is about the run that has `knobs` in force."""

    outcome: Outcome | None = None
    rule: Text | None = None
    knobs: list[Text] = []
    accuracy: float | None = None  # mean over the last 50 training batches
    branch: bool = False  # the run is a branch
    map: MapStep | None = None  # the map proposed by the preset is complete, or one of its cells is the run
    hint: Text = ""  # shown on request
    formula: Line = ""  # in matplotlib's mathtext, without dollar signs
    paper: Paper | None = None

    def check(self, experiment: Experiment) -> None:
        """Raise KnobError if the step names an unknown knob, rule or measure, or a value that is not allowed."""
        experiment.with_texts(self.knobs)
        check_rule(self.rule)
        self.check_question()
        if self.is_question and (self.outcome or self.rule or self.accuracy is not None or self.branch or self.map):
            raise KnobError("a question has knobs and nothing else to wait for; put the rest into a step of its own")


def check_rule(rule: str | None) -> None:
    """Raise KnobError if no rule has this name."""
    if rule is not None and rule not in NAMES:
        raise KnobError(f"rule = {quote(rule)} is not allowed; allowed: one of: {', '.join(NAMES)}")
