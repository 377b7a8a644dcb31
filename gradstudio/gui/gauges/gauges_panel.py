"""The gauges on demand, a card each: the gradient's exponents against fp16, sharpness, noise scale, overshoot, the
outputs of activations, and the clip microscope."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QWidget

from gradstudio.core.gauge_samples import ClippedGradient, Exponents, Logits, NoiseScale, Overshoot, Sample, Sharpness
from gradstudio.core.row import Activations
from gradstudio.core.text import number, short_name, strong
from gradstudio.gui.gauges.clip_card import ClipCard
from gradstudio.gui.gauges.gauge_pictures import ExponentBars, Sparkline
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.page import Page
from gradstudio.gui.widgets.picture import Picture
from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.record.run import Run
from gradstudio.session.words import gauge_readings

MUCH = 0.5  # share of a layer, dead or saturated, above which it is bold
LONGEST_NAME = 24  # letters

WAITING = "Measured at the next step of the run."
ABSENT = "No gauge was measured in this run."
SOME_ABSENT = "The other gauges were not measured in this run."
MEASURE = "Rewinds a run that diverged to its last healthy step, any other to its last one, and measures there"


class GaugeCard(QFrame):
    """A card with a title, the latest value, a picture and a sentence."""

    def __init__(self, title: str, about: str, picture: Picture | None = None) -> None:
        super().__init__()
        self.setObjectName("card")
        self.setToolTip(about)
        self.title, self.figure, self.when, self.text = QLabel(title), QLabel(), QLabel(), QLabel()
        self.picture = picture
        self.title.setProperty("role", "title")
        self.figure.setProperty("role", "title")
        self.when.setProperty("role", "dim")
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        head = in_row(self.title, 1, self.figure, self.when, spacing=8)
        column = in_column(head, of=self, margins=(12, 9, 12, 10), spacing=6)
        if picture is not None:
            picture.hide()
            column.addWidget(picture)
        column.addWidget(self.text)
        self._watch = ChangeWatch()
        self.say("", "", WAITING)

    def is_new(self, *things: object) -> bool:
        """Return whether any of these differs from the content of the card, and treat them as shown."""
        return self._watch.has_changed(*things)

    def show_picture(self, shown: bool) -> None:
        if self.picture is not None:
            self.picture.setVisible(shown)

    def say(self, figure: str, when: str, text: str) -> None:
        """Show the latest value, its step and the sentence, also for screen readers."""
        self.figure.setText(figure)
        self.when.setText(when)
        self.text.setText(text)
        self.setAccessibleName(f"{self.title.text()}. {text}")
        self.setAccessibleDescription(self.toolTip())
        if self.picture is not None:
            self.picture.setAccessibleDescription(text)


class GaugesPanel(Page):
    """All cards below each other, with a note on when they are measured. Gauges that were not measured in a finished
    run are one line with a button."""

    measure_asked = Signal()  # at the step that the run can be rewound to

    def __init__(self) -> None:
        super().__init__()
        self.note = role_label("", "dim", wordWrap=True)
        self.missing, self.measure = QLabel(), QPushButton("Measure at this step")
        self._make_cards()
        self.clipping = ClipCard()
        self.cards = (self.exponents, self.sharpness, self.noise_scale, self.overshoot, self.logits, self.activations)
        self._run: Run | None = None
        self._lay_out()
        theme.changed.connect(self._restyle)

    def _make_cards(self) -> None:
        bars, steepness, noise, past, drift = (
            ExponentBars(), Sparkline("Sharpness over the steps"), Sparkline("Noise scale over the steps"),
            Sparkline("Overshoot over the steps"), Sparkline("Largest attention logit, or log Z, over the steps"),
        )  # fmt: skip
        self.exponents = GaugeCard(
            "Gradient exponents",
            "Sizes of the gradient's entries, by powers of two, against the range of fp16. Entries to the left of the "
            "shaded range are lost; a loss scale moves all of them to the right.",
            bars,
        )
        self.sharpness = GaugeCard(
            "Sharpness",
            "The largest curvature of the loss: the largest eigenvalue of the Hessian, on a fixed batch. Above 2/lr "
            "(with momentum (2 + 2 momentum)/lr, 38/lr for Adam with its usual beta1) a step "
            "ends further from the minimum than it started.",
            steepness,
        )
        self.noise_scale = GaugeCard(
            "Noise scale",
            "The batch size above which a larger batch helps little: the variance of the gradients of single examples, "
            "divided by the squared norm of their mean.",
            noise,
        )
        self.overshoot = GaugeCard(
            "Overshoot",
            "Whether the last update went past the minimum in its direction: its length, divided by the length that "
            "reaches the minimum of a parabola through the losses along it, on a fixed batch.",
            past,
        )
        self.logits = GaugeCard(
            "Logits",
            "The largest logit of each attention and the entropy of its softmax, and log Z of the outputs, on a fixed "
            "batch. Large logits make an attention look at one time step alone, and its gradient vanishes.",
            drift,
        )
        self.activations = GaugeCard(
            "Activations",
            "For each layer, the share of outputs where the slope of the activation is almost zero (saturated), and "
            "the share of units whose output is zero for a whole batch (dead).",
        )
        self.activations.text.setTextFormat(Qt.TextFormat.RichText)
        self._bars, self._steepness, self._noise, self._past, self._drift = bars, steepness, noise, past, drift

    def refresh(self, run: Run) -> None:
        """Show the latest samples of a run. Cards without a new sample stay as they are."""
        self._run = run
        self._note(run)
        shows: dict[str, tuple[GaugeCard, Callable[[Run, Sequence[Sample]], None]]] = {
            "exponents": (self.exponents, self._show_exponents),
            "sharpness": (self.sharpness, self._show_sharpness),
            "noise_scale": (self.noise_scale, self._show_noise_scale),
            "overshoot": (self.overshoot, self._show_overshoot),
            "logits": (self.logits, self._show_logits),
        }
        for name, (card, show) in shows.items():
            samples, problem = run.gauge_samples.get(name), run.gauge_problems.get(name, "")
            card.setVisible(bool(samples or problem) or not run.over)
            if not card.is_new(run, samples, problem, run.over):
                continue
            card.show_picture(bool(samples) and not problem)
            if problem:
                card.say("", "", problem)
            elif samples:
                show(run, samples)
            else:
                card.say("", "", WAITING)
        latest_cut = run.gauge_samples.get("clipping", [])[-1:]
        cut = [(step, value) for step, value in latest_cut if isinstance(value, ClippedGradient)]
        problem = run.gauge_problems.get("clipping", "")
        self.clipping.setVisible(bool(cut or problem) or not run.over)
        self.clipping.refresh(run.in_force.clipping, cut[0] if cut else None, problem)
        latest = run.history.activations[-1] if run.history.activations else None
        self.activations.setVisible(latest is not None or not run.over)
        if self.activations.is_new(run, latest, run.over):
            self._show_activations(latest)
        absent = [card for card in (self.clipping, *self.cards) if not card.isVisibleTo(self)]
        none = len(absent) > len(self.cards)
        self.note.setVisible(not none)
        self.missing.setText(ABSENT if none else SOME_ABSENT)
        self.missing.setVisible(bool(absent))
        self.measure.setVisible(bool(absent) and not run.watched)

    # ---- each gauge

    def _show_exponents(self, run: Run, samples: Sequence[Sample]) -> None:
        step, exponents = samples[-1]
        assert isinstance(exponents, Exponents)
        self._bars.show_of(exponents)
        self.exponents.say("", _at(step), gauge_readings.exponents(exponents, run))

    def _show_sharpness(self, run: Run, samples: Sequence[Sample]) -> None:
        steps, values = zip(*((step, value) for step, value in samples if isinstance(value, Sharpness)), strict=True)
        self._steepness.show_of(
            steps, [each.value for each in values], [each.limit for each in values], gauge_readings.rule(values[-1])
        )
        self.sharpness.say(number(values[-1].value), _at(steps[-1]), gauge_readings.sharpness(values[-1], run))

    def _show_noise_scale(self, run: Run, samples: Sequence[Sample]) -> None:
        steps, values = zip(*((step, value) for step, value in samples if isinstance(value, NoiseScale)), strict=True)
        self._noise.show_of(steps, [each.value for each in values], [each.batch for each in values], "batch")
        self.noise_scale.say(number(values[-1].value, 2), _at(steps[-1]), gauge_readings.noise_scale(values[-1]))

    def _show_overshoot(self, run: Run, samples: Sequence[Sample]) -> None:
        steps, values = zip(*((step, value) for step, value in samples if isinstance(value, Overshoot)), strict=True)
        self._past.show_of(steps, [each.ratio for each in values], [1.0] * len(values), "minimum")
        ratio = values[-1].ratio
        self.overshoot.say(
            "uphill" if ratio == math.inf else number(ratio, 2), _at(steps[-1]), gauge_readings.overshoot(values[-1])
        )

    def _show_logits(self, run: Run, samples: Sequence[Sample]) -> None:
        steps, latest = zip(*((step, value) for step, value in samples if isinstance(value, Logits)), strict=True)
        values = [max(each.largest, default=each.log_z or 0.0) for each in latest]
        self._drift.show_of(steps, values, [math.inf] * len(latest), "")
        self.logits.say(number(values[-1]), _at(steps[-1]), gauge_readings.logits(latest[-1]))

    def _show_activations(self, activations: Activations | None) -> None:
        if activations is None:
            self.activations.say("", "", WAITING)
            return
        dim = theme.colors.dim
        head = f"<tr style='color:{dim}'><td>layer</td><td align='right'>saturated</td><td align='right'>dead</td></tr>"
        rows = "".join(
            f"<tr><td>{escape(short_name(each.layer.removesuffix('.weight'), LONGEST_NAME))}</td>"
            f"{_share(each.saturated)}{_share(each.dead)}</tr>"
            for each in activations.layers
        )
        self.activations.say(
            "", _at(activations.step), f"<table width='100%' cellspacing='0' cellpadding='1'>{head}{rows}</table>"
        )
        texts = [
            f"{each.layer}: {number(100 * each.saturated, 2)} % saturated, {number(100 * each.dead, 2)} % dead"
            for each in activations.layers
        ]
        self.activations.setAccessibleName(f"Activations. {'; '.join(texts)}")

    # ---- inside

    def _note(self, run: Run) -> None:
        if run.watched:
            text = "This run was watched in another program, which alone has its model: gauges are measured only here."
        elif run.over:
            text = "The run is over, and these are its last values. To measure at another step, rewind to it."
        else:
            text = (
                "Gauges are measured while this page is shown, in at most a tenth of the time. They do not change the "
                "run."
            )
        if text != self.note.text():
            self.note.setText(text)

    def _lay_out(self) -> None:
        inside = QWidget()
        column = in_column(of=inside, margins=(12, 6, 12, 12), spacing=9)
        self.missing.setWordWrap(True)
        self.measure.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.measure.setToolTip(MEASURE)
        self.measure.setAccessibleDescription(MEASURE)
        self.measure.clicked.connect(self.measure_asked)
        for part in (self.note, self.missing):
            column.addWidget(part)
        column.addWidget(self.measure, 0, Qt.AlignmentFlag.AlignLeft)
        for card in (self.clipping, *self.cards):
            column.addWidget(card)
        column.addStretch(1)
        in_column(scroll_area(inside, "Gauges"), of=self, margins=NO_MARGINS)
        for part in (self.note, self.missing, self.measure, *self.cards, self.clipping):
            theme.apply_style(part)

    def _restyle(self) -> None:
        if self._run is not None and self._run.history.activations:
            self._show_activations(self._run.history.activations[-1])


def _at(step: int) -> str:
    return f"step {step:,}"


def _share(value: float) -> str:
    """Return a table cell with a share in percent, bold if it is at least MUCH."""
    text = f"{number(100 * value, 2)} %"
    return f"<td align='right'>{strong(text) if value >= MUCH else text}</td>"
