"""The report of several runs: whole and safe, with a letter, a colour and a dash a run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.knobs import Value
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.core.text import join_with_and
from gradstudio.session.files import report
from gradstudio.session.files.report.comparison_report import SECTIONS, document
from gradstudio.session.files.report.palette import DASHES, LETTERS, SERIES
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter

HOSTILE = [
    "<script>alert(1)</script>",
    "\"' onload='x",
    "]]></style><img src=x>",
    "{{ 7 * 7 }}",
    "שלום \u202e evil",
    "a\x00b\x1bc",
    "x" * 900,
]


def made(
    losses: Sequence[float], title: str = "Made", status: Status = "finished", platform: str = "Linux", **knobs: Value
) -> Run:
    experiment = Experiment().with_values(
        {"run.stop_on_nonfinite": False, "run.device": "cpu"}
        | {name.replace("__", "."): value for name, value in knobs.items()}
    )
    run = Run(Preset(id="made", title=title, experiment=experiment), experiment)
    RunWriter(run).begin((Layer("weight", "weight", 4),), {"device": "cpu", "platform": platform})
    row = Row(
        0, 1.0, 1.0, 1.0, 1.0, 0.1, 1.0, False, 0, 1e-3, 1.0, 0.5, 0.01, np.ones((len(LAYER_METRICS), 1), np.float32)
    )
    for step, loss in enumerate(losses):
        RunWriter(run).record(
            replace(row, step=step, loss=loss, grad_norm=abs(loss), nonfinite=int(not math.isfinite(loss)))
        )
    RunWriter(run).end(status, "", None)
    return run


class Page(HTMLParser):
    """Tags, attributes and text, as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


FALLING = [3.0, 2.0, 1.0, 0.5]


def test_the_page_is_one_file_that_loads_nothing_and_runs_nothing() -> None:
    text = report.comparison([made(FALLING, HOSTILE[0]), made(FALLING[:3], HOSTILE[2], "interrupted")], "html")
    page = Page(text)
    assert not {"script", "img", "iframe", "object", "link", "form"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in [value for _, _, value in page.attributes]
    assert "://" not in text
    identifiers = [value for _, name, value in page.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize("count", [2, 8])
def test_two_to_eight_runs_are_told_apart_by_more_than_their_colour(count: int) -> None:
    runs = [made([loss * (index + 1) for loss in FALLING], optimizer__lr=0.1 * (index + 1)) for index in range(count)]
    text = report.comparison(runs, "html")
    for letter, series in zip(LETTERS[:count], SERIES, strict=False):
        assert f'<b style="color: var(--{series})">{letter}</b>' in text
        assert text.count(f"stroke: var(--{series})") >= 3
    assert len(set(DASHES)) == len(SERIES) == len(LETTERS)


@pytest.mark.parametrize("count", [0, 1, 9])
@pytest.mark.parametrize("suffix", ["html", "pdf"])
def test_another_number_of_runs_is_refused(count: int, suffix: str) -> None:
    with pytest.raises(ValueError, match="allowed: 2 to 8"):
        report.comparison([made(FALLING) for _ in range(count)], suffix)


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="there are: html, pdf"):
        report.comparison([made(FALLING), made(FALLING)], "doc")


def test_what_differs_is_said_in_words_and_in_tables() -> None:
    runs = [
        made(FALLING),
        made([3.0, 2.0, 9.0], optimizer__lr=0.5, platform="Mac"),
        made(FALLING),
        made([3.0, 2.0, 8.0]),
    ]
    RunWriter(runs[2]).change("clipping.kind", "norm")
    page = Page(report.comparison(runs, "html")).text
    assert "They differ in 2 knobs: clipping.kind, optimizer.lr." in page
    assert "The loss of B and D differs from that of A from step 2 on." in page
    assert "The loss of C equals that of A to the last bit in every common step." in page
    assert "optimizer.lr 0.1 0.5 0.1 0.1" in page
    assert "none; norm from step 4" in page
    assert "C 4 clipping.kind none → norm" in page
    assert "platform Linux Mac Linux Linux" in page
    assert "loss at the end 0.5 9 0.5 8" in page


def test_the_same_run_twice_over_differs_in_nothing() -> None:
    page = Page(report.comparison([made(FALLING), made(FALLING)], "html")).text
    assert "No knob differs between them." in page and "every knob is the same" in page


def test_how_each_run_ended_is_said() -> None:
    runs = [made(FALLING), made([1.0, math.nan], status="nonfinite"), made([1.0], status="interrupted")]
    page = Page(report.comparison(runs, "html")).text
    for part in ("1 finished, 1 diverged, 1 interrupted", "diverged at step 1", "interrupted after 1 of"):
        assert part in page


ODD = [[[], [1.0]], [[math.nan] * 3, [math.inf, 1.0], [0.0, 0.0], [-1.0, 2.0], [1e-300, 1e300], []], [[], []]]


@pytest.mark.parametrize(("odd", "suffix"), [
    *((odd, "html") for odd in ODD), (ODD[1], "pdf"),
    *(pytest.param(odd, "pdf", marks=pytest.mark.thorough) for odd in (ODD[0], ODD[2])),  # each embeds its fonts
])  # fmt: skip
def test_whatever_was_measured_is_reported(odd: list[list[float]], suffix: str) -> None:
    assert report.comparison([*map(made, odd), made(FALLING, precision__dtype="fp16")], suffix)


def test_hostile_titles_stay_text() -> None:
    runs = [made(FALLING, title, platform=title) for title in HOSTILE]
    text = report.comparison(runs, "html")
    assert not re.search("[\x00-\x08\x0b\x0e-\x1f\u202a-\u202e]", text)
    assert "<script" not in text and "<img" not in text
    words = "".join(Page(text).words)
    for title in HOSTILE:
        assert title.translate(dict.fromkeys([0, 27, 0x202E], "")) in words
    assert report.comparison(runs, "pdf").startswith(b"%PDF")


def test_every_section_has_something_to_say() -> None:
    runs = [made(FALLING), made(FALLING)]
    RunWriter(runs[0]).change("optimizer.lr", 0.5)
    sections = document(runs).sections
    assert len(sections) == len(SECTIONS) and all(section.title and section.blocks for section in sections)


def test_letters_are_listed_as_one_speaks() -> None:
    assert [join_with_and(letters) for letters in ("B", "BC", "BCD")] == ["B", "B and C", "B, C and D"]
