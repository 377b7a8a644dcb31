"""The report: whole, safe and readable, whatever was measured and whatever it is called."""

from __future__ import annotations

import base64
import io
import math
import re
import tracemalloc
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gradstudio.core import presets
from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import BLOCK, COLUMNS, LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Row
from gradstudio.session.files import report, run_files
from gradstudio.session.files.report import figure_data, pdf_pages, sections
from gradstudio.session.files.report.figure_axis import log_ticks, power_of_ten
from gradstudio.session.files.report.sections import SECTIONS, timeline
from gradstudio.session.files.report.setup_sections import command
from gradstudio.session.files.report.typesetting import width, wrap
from gradstudio.session.record import run_writer
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.session.running.worker import Worker
from gradstudio.session.words.story import tell

HOSTILE = [
    "<script>alert(1)</script>",
    "\"' onload='x",
    "]]></style><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "$x^2$ \\frac",
    "日本 🙂 \x07",
    "a" * 1500,
]
NOTE = "\n".join([*HOSTILE, "שלום \u202e evil", "nul \x00 escape \x1b[31m"])
VOID = {"meta", "br", "img", "link", "col", "hr", "input"}


class Page(HTMLParser):
    """What a browser would see: tags, attributes and text; fails where a tag is left open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def made(
    losses: list[float], layers: int = 3, title: str = "Made", name: str = "weight", names: list[str] | None = None,
    **more: str,
) -> Run:  # fmt: skip
    names = names or [f"{name}.{index}" for index in range(layers)]
    layers = len(names)
    experiment = Experiment().with_value("run.stop_on_nonfinite", False)
    run = Run(Preset(id="made", title=title, summary=more.get("summary", ""), experiment=experiment), experiment)
    RunWriter(run).begin(
        tuple(Layer(each, "weight", 4) for each in names),
        {"device": "cpu", "platform": more.get("platform", "")},
    )
    noise = np.random.default_rng(0)
    row = Row(
        0,
        1.0,
        1.0,
        1.0,
        1.0,
        0.1,
        1.0,
        False,
        0,
        1e-3,
        1.0,
        0.5,
        0.01,
        np.ones((len(LAYER_METRICS), layers), np.float32),
    )
    for step, loss in enumerate(losses):
        norm = loss * float(np.exp(noise.normal()))
        cells = (
            np.full((len(LAYER_METRICS), layers), norm).astype(np.float32)
            if abs(norm) < 1e30 or norm != norm
            else row.layers * np.inf
        )
        RunWriter(run).record(
            replace(
                row,
                step=step,
                loss=loss,
                grad_norm=norm,
                clipped_norm=min(norm, 1.0),
                nonfinite=int(not math.isfinite(norm)),
                layers=cells,
            )
        )
    return run


@pytest.fixture(scope="module")
def diverged() -> Run:
    preset = presets.load("rnn-explosion")
    texts = ["run.steps=40", "optimizer.lr=5", "problem.seq_len=8", "model.width=16"]
    run = Run(
        preset, preset.experiment.with_texts(texts), (Change(1, "optimizer.lr", 1e6), Change(2, "loss.weight", 1e20))
    )
    Worker(run).run()
    assert run.status == "nonfinite", run.message
    return run


@pytest.fixture(scope="module")
def healthy() -> Run:
    texts = [
        "run.steps=12",
        "model.width=8",
        "problem.batch_size=8",
        "clipping.kind=norm",
        "precision.dtype=fp16",
        "run.device=cpu",
    ]
    experiment = Experiment().with_texts(texts)
    run = Run(
        Preset(id="mine", title="Healthy", experiment=experiment), experiment, (Change(4, "clipping.max_norm", 0.2),)
    )
    Worker(run).run()
    assert run.status == "finished", run.message
    return run


@pytest.fixture(scope="module")
def diverged_page(diverged: Run) -> str:
    return report.content(diverged, "html")


@pytest.fixture(scope="module")
def healthy_page(healthy: Run) -> str:
    return report.content(healthy, "html")


@pytest.fixture(scope="module")
def diverged_pages(diverged: Run) -> tuple[bytes, set[str]]:
    """The report as a PDF, which takes more than a second, and the font files that were left open."""
    before = set(_open_files())  # formulas of lessons keep their fonts
    pages = report.content(diverged, "PDF")
    assert isinstance(pages, bytes)
    return pages, {path for path in _open_files() if path.endswith((".ttf", ".otf")) and path not in before}


@pytest.mark.parametrize("which", ["diverged", "healthy"])
def test_the_page_is_one_file_that_loads_nothing(which: str, request: pytest.FixtureRequest) -> None:
    text = request.getfixturevalue(f"{which}_page")
    page = Page(text)
    policy = [
        value for tag, name, value in page.attributes if tag == "meta" and name == "content" and "default-src" in value
    ]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert not {"script", "iframe", "object", "embed", "link", "form", "base"} & set(page.tags)
    assert "://" not in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    for _, name, value in page.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/png;base64,")), value[:80]
    identifiers = [value for _, name, value in page.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))


def test_a_report_leaves_no_file_open(diverged_pages: tuple[bytes, set[str]]) -> None:
    pages, left_open = diverged_pages
    assert pages.startswith(b"%PDF") and not left_open


def _open_files() -> list[str]:
    folder = Path("/proc/self/fd")
    return [str(link.resolve()) for link in folder.iterdir()] if folder.exists() else []


def test_every_section_is_there_and_says_what_happened(diverged: Run, diverged_page: str) -> None:
    page = Page(diverged_page)
    for title in ("What happened", "Findings", "Curves", "Timeline", "Knobs", "Environment", "How to repeat it"):
        assert title in page.text
    assert f"step {diverged.first_nonfinite_step}" in page.text
    assert "optimizer.lr 5 → 1e6" in page.text
    assert "NaN" in page.text or "Inf" in page.text
    for finding in ranked_findings(diverged):
        assert " ".join(finding.evidence.split()) in page.text
    at_default = 0
    for knob, value in diverged.experiment.items():
        if value != knob.default:
            assert f"● {knob.name}" in page.text
        else:
            at_default += knob.default == diverged.in_force[knob.name]
    assert f"Every other knob, {at_default} in all, is at its default." in page.text


def test_colours_follow_the_reader_and_none_is_left_fixed(healthy_page: str) -> None:
    assert "prefers-color-scheme: dark" in healthy_page
    assert "#0c1b" not in healthy_page
    assert "var(--accent)" in healthy_page
    assert "#000000" not in healthy_page


@pytest.mark.parametrize("title", HOSTILE)
def test_a_hostile_name_stays_a_name(title: str) -> None:
    run = made([2.0, 1.0, math.nan], title=title, name=title, summary=title, platform=title)
    RunWriter(run).note("finding", title)
    text = report.content(run, "html")
    page = Page(text)
    assert "script" not in page.tags
    assert not {"img"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert " ".join(title.split()) in page.text


def hostile() -> Run:
    """A run with all of them, as its names and in what it tells."""
    together = " ".join(HOSTILE)
    run = made([2.0, 1.0, math.nan], title=together, names=HOSTILE, summary=together, platform=together)
    for title in HOSTILE:
        RunWriter(run).note("finding", title)
    return run


LOSSES = {
    "none": [], "one": [1.0], "two": [1.0, 1.0], "nan": [math.nan] * 4, "inf": [math.inf] * 3, "zero": [0.0] * 5,
    "negative": [-1.0, 2.0, -3.0],
    "huge": [1e-300, 1e300, math.inf, math.nan], "alone": [1.0, math.nan, 2.0, math.inf, 0.0, 3.0],
    "tiny": [1e-38, 1e-37], "flat": [2.3] * 50,
}  # fmt: skip


def interrupted() -> Run:
    run = made([2.0, 1.0])
    RunWriter(run).set_status("interrupted")
    return run


def measured(name: str) -> Run:
    run = made(LOSSES[name])
    RunWriter(run).end("finished" if name not in ("nan", "inf", "huge", "alone") else "nonfinite", "", math.nan)
    return run


@pytest.mark.parametrize("name", LOSSES)
def test_whatever_was_measured_a_page_comes_of_it(name: str) -> None:
    page = Page(report.content(measured(name), "html"))
    for value, word in ((math.nan, "NaN"), (math.inf, "Inf")):
        if value in LOSSES[name] or (value != value and any(loss != loss for loss in LOSSES[name])):
            assert word in page.text


SHOWING = {"what-happened", "findings", "curves", "timeline", "environment"}  # sections that differ from run to run


def test_whatever_was_measured_and_whatever_it_is_called_is_set_on_pages() -> None:
    """All sections that show it, of all runs in one document, with hostile names and a note on its first page: each PDF
    takes more than a second to embed its fonts."""
    runs = [interrupted(), *map(measured, LOSSES)]
    one = sections.document(hostile(), NOTE)
    shown = [section for section in one.sections if section.id != "knobs"]
    assert {section.id for section in shown} >= SHOWING | {"note"}
    shown += [section for run in runs for section in sections.document(run).sections if section.id in SHOWING]
    pages = pdf_pages.render(replace(one, sections=tuple(shown)))
    assert pages.startswith(b"%PDF") and pages.count(b"/Type /Page\n") + pages.count(b"/Type /Page ") >= len(runs)


def test_a_run_that_failed_says_why() -> None:
    run = made([])
    RunWriter(run).end("failed", "Out of memory: halve problem.batch_size.", None)
    assert "Out of memory: halve problem.batch_size." in Page(report.content(run, "html")).text


def test_a_long_run_stays_small() -> None:
    noise = np.exp(np.random.default_rng(1).normal(size=5000))
    run = made(noise.tolist(), layers=42, name="blocks.attention.projection.weight")
    assert len(report.content(run, "html")) < 2_000_000
    assert len(report.content(run, "pdf")) < 2_000_000


def test_a_reduced_curve_keeps_peaks_gaps_and_ends() -> None:
    values = np.sin(np.arange(100_000) / 900)
    values[[31_415, 77_777]] = [99.0, -99.0]
    values[[5, 50_000]] = [np.nan, np.inf]
    kept = figure_data.reduce(values)
    assert len(kept) <= figure_data.POINTS
    assert (np.diff(kept) > 0).all()
    assert {0, 5, 31_415, 50_000, 77_777, 99_999} <= set(kept.tolist())


def test_a_reduced_map_keeps_what_is_not_finite_and_the_largest() -> None:
    norms = np.ones((5000, 3), np.float32)
    norms[1234, 0], norms[77, 1], norms[4999, 2] = np.nan, np.inf, 7.0
    cells = figure_data.reduce_cells(lambda start, stop: norms[start:stop], len(norms), 3)
    assert cells.shape == (3, figure_data.CELLS)
    assert np.isnan(cells).sum(axis=1).tolist() == [1, 1, 0]
    assert cells[2].max() == 7.0


def test_the_map_shows_a_cell_that_is_not_finite_in_a_colour_of_its_own() -> None:
    image = pytest.importorskip("PIL.Image")
    text = report.content(made([1.0, math.nan, 1.0, 0.0] * 5), "html")
    figure = text[text.index('id="plot-layers"') :]
    picture = re.search(r"data:image/png;base64,\s*([A-Za-z0-9+/=\s]+)", figure)
    assert picture
    colours = {
        pixel[:3]
        for _, pixel in image.open(io.BytesIO(base64.b64decode(picture[1]))).convert("RGBA").getcolors(1_000_000)
    }
    assert {(0xE5, 0x48, 0x4D), (0x9A, 0xA1, 0xAC)} <= colours


def test_the_pdf_holds_text_pages_and_no_more_than_the_map_as_a_picture(
    diverged_pages: tuple[bytes, set[str]],
) -> None:
    data, _ = diverged_pages
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") >= 2
    assert b"/Subtype /Type3" not in data
    assert b"/FontFile2" in data


def test_the_command_repeats_the_run_from_its_preset() -> None:
    preset = presets.load("rnn-explosion")
    run = Run(preset, preset.experiment.with_texts(["clipping.kind=norm", "run.steps=5", "run.seed=7"]))
    RunWriter(run).change("optimizer.lr", 0.1)
    assert (
        command(run)
        == "gradstudio run rnn-explosion --set clipping.kind=norm --steps 5 --seed 7 --at 0:optimizer.lr=0.1"
    )


def test_the_story_speaks_of_changes_clipping_and_skipped_steps(healthy: Run) -> None:
    told = tell(healthy)
    for part in (
        "fully connected network of 2 hidden layers",
        "clipping.max_norm changed from 1 to 0.2 at step 4",
        "Clipping shortened",
        "of the test set",
    ):
        assert part in told


def test_the_program_is_folded_away_on_the_page_and_follows_in_print(healthy: Run, healthy_page: str) -> None:
    from gradstudio.session.files.report.blocks import Fold
    from gradstudio.session.files.report.setup_sections import script

    [fold] = [block for block in script(healthy).blocks if isinstance(block, Fold)]
    assert fold.text == run_files.train_py(healthy) and "gradstudio script" in fold.elsewhere and fold.printed
    page = Page(healthy_page)
    assert {"details", "summary"} <= set(page.tags) and " ".join(fold.text.split()) in page.text


def test_mistakes_and_comparisons_are_told() -> None:
    texts = [
        "run.steps=4",
        "model.width=8",
        "run.device=cpu",
        "accumulation.steps=4",
        "mistakes.clip_after_step=true",
        "loss.kind=naive_log",
    ]
    experiment = Experiment().with_texts(texts)
    run = Run(Preset(id="mine", title="Mine", experiment=experiment), experiment, (), (2,))
    Worker(run).run()
    assert run.status == "finished", run.message
    told = tell(run)
    assert "A mistake was switched on: mistakes.clip_after_step (changes nothing without clipping)." in told
    assert "under a loss written by hand (naive_log)" in told and "at step 2." in told
    rows = [row for block in timeline(run).blocks for row in block.rows]
    assert any(row[-1].startswith("each step calls zero_grad, 4 × (forward, backward), step") for row in rows)


def test_a_change_that_was_undone_is_told_nowhere() -> None:
    run = made([2.0, 1.0])
    writer, lr = RunWriter(run), run.in_force.optimizer.lr
    for value in (0.5, lr):  # and back, before the next step
        writer.change("optimizer.lr", value)
    writer.change("clipping.max_norm", 0.25)
    assert [change.text for change in run.changes] == ["clipping.max_norm 1 → 0.25"]
    assert [change.knob for change in figure_data.take(run).changes] == ["clipping.max_norm"]
    assert "optimizer.lr changed" not in tell(run) and "clipping.max_norm changed from 1 to 0.25" in tell(run)
    rows = [row for block in timeline(run).blocks for row in block.rows]
    assert not any("optimizer.lr" in row[-1] for row in rows)
    assert [row[1] for row in rows if "clipping.max_norm" in row[-1]] == ["1"]
    writer.change("clipping.max_norm", 0.125)
    assert [change.text for change in run.changes] == ["clipping.max_norm 1 → 0.125"]


def test_many_alike_events_are_counted_only_as_far_as_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_writer, sections):
        monkeypatch.setattr(module, "MOST_ALIKE", 7)
    for skipped, told in (
        (6, "6 updates that the loss scaler skipped, the last at step 5"),
        (9, "7 updates that the loss scaler skipped up to step 6; later ones are not listed"),
    ):
        run = made([2.0, 1.0])
        writer = RunWriter(run)
        for step in range(skipped):
            writer.note("step_skipped", "overflow", step)
        rows = [row[-1] for block in timeline(run).blocks for row in block.rows]
        assert [row for row in rows if "skipped" in row] == [told]
        writer.resume(Diagnosis([]), {})  # which counts them anew
        writer.note("step_skipped", "overflow", 9)
        assert sum(event.kind == "step_skipped" for event in run.events) == 7


def test_a_run_whose_program_was_killed_says_so() -> None:
    page = Page(report.content(interrupted(), "html")).text
    assert "interrupted after 2 of 1,000 steps" in page
    assert "The program ended while it trained" in page


def test_a_note_stands_in_the_report_as_text(healthy: Run) -> None:
    page_text = report.content(healthy, "html", NOTE)
    page = Page(page_text)
    assert "Note" in page.words and not {"script", "img"} & set(page.tags)
    assert not set("\x00\x07\x1b\u202e") & set(page_text)


def test_what_the_test_set_tells_is_drawn_where_it_was_measured() -> None:
    from matplotlib.figure import Figure

    from gradstudio.session.files.report import figures

    run = made([1.0] * 6)
    assert "Test accuracy" not in report.content(run, "html")
    tested = {0: (0.1, 1.0), 2: (math.nan, 0.8), 4: (0.7, -0.5)}
    run = made([])
    row = Row(0, *[1.0] * 12, layers=np.ones((len(LAYER_METRICS), 3), np.float32))
    for step in range(10):
        more = dict(zip(("test_accuracy", "head_cosine"), tested.get(step, ()), strict=False))
        RunWriter(run).record(replace(row, step=step, clip_cosine=0.5, **more))
    colours = dict.fromkeys(("accent", "dim", "good", "warning", "bad", "plot", "grid", "line"), "#000000")
    axes = Figure().subplots()
    figures.directions(axes, figure_data.take(run), colours)
    drawn = {str(line.get_label()): line for line in axes.get_lines()}
    np.testing.assert_array_equal(drawn["test accuracy"].get_xydata(), [[0, 0.1], [2, math.nan], [4, 0.7]])
    np.testing.assert_array_equal(drawn["cosine at the head"].get_xydata(), [[0, 1], [2, 0.8], [4, -0.5]])
    assert drawn["of clipping"].get_ydata().tolist() == [0.5] * 10 and "of the update" not in drawn
    assert drawn["NaN"].get_xdata().tolist() == [2] and axes.get_ylim()[0] < -0.5
    assert "Test accuracy, directions" in Page(report.content(run, "html")).text


def test_no_title_stands_alone_at_the_foot_of_a_page(healthy: Run) -> None:
    from gradstudio.session.files.report import pdf_pages
    from gradstudio.session.files.report.sections import curves

    section = curves(healthy)
    assert section and pdf_pages._together(section.blocks) > 100


def test_a_long_run_is_never_held_whole() -> None:
    columns, layers = len(COLUMNS), 40
    run = made([], layers)
    count = 3 * BLOCK + 5
    for start in range(0, count, BLOCK):
        rows = min(BLOCK, count - start)
        run.history.extend(np.ones((rows, columns)), np.ones((len(LAYER_METRICS), rows, layers), np.float32))
    report.content(made([1.0]), "html")  # what is loaded once does not count
    tracemalloc.start()
    taken = figure_data.take(run)
    assert taken.layer_norms.shape == (layers, figure_data.CELLS)
    assert tracemalloc.get_traced_memory()[1] < 2 * BLOCK * layers * 4
    tracemalloc.stop()


@pytest.mark.parametrize(
    "count", [1, 2, figure_data.CELLS, figure_data.CELLS + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17]
)
def test_a_map_read_in_blocks_is_that_read_at_once(count: int) -> None:
    norms = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    norms[count // 2, 0] = np.nan
    edges = np.linspace(0, count, min(count, figure_data.CELLS) + 1).astype(int)[:-1]
    expected = np.maximum.reduceat(norms, edges, axis=0).T
    np.testing.assert_array_equal(figure_data.reduce_cells(lambda start, stop: norms[start:stop], count, 2), expected)


def test_formats_go_by_their_name(healthy: Run, healthy_page: str) -> None:
    assert report.content(healthy, "html") == healthy_page and healthy_page.startswith("<!DOCTYPE html>")
    with pytest.raises(ValueError, match="there are: html, pdf"):
        report.content(healthy, "doc")


@pytest.mark.parametrize("make", SECTIONS, ids=lambda make: make.__name__)
def test_every_section_stands_alone(make, healthy: Run) -> None:
    script = WatchedScript("train.py", ("--lr", "1"), "", 1, ()) if make.__name__ == "script_section" else None
    section = make(replace(healthy, watched=script))
    if make.__name__ in ("ranks", "memory"):  # of one process, whose memory nobody has asked for
        assert section is None
        return
    assert section and section.title and section.blocks


@pytest.mark.parametrize(
    ("low", "high"), [(-38, 38), (-1, 1), (0, 2), (0.36, 0.42), (0.4, 0.4001), (-307, 307), (2.1, 3.3)]
)
def test_ticks_lie_within_and_are_few(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 1 <= sum(10.0**low <= tick <= 10.0**high for tick in ticks) <= 8
    assert all(tick > 0 for tick in ticks)


def test_figures_of_ticks() -> None:
    assert [power_of_ten(value) for value in (1e-7, 0.01, 1.0, 2.31, 1000.0, 1e4, 3e5)] == [
        "10⁻⁷",
        "0.01",
        "1",
        "2.31",
        "1000",
        "10⁴",
        "3e5",
    ]


@pytest.mark.parametrize("text", ["", "short", "many words " * 40, "x" * 400, "  indented", "a\tb\nc"])
def test_no_line_is_wider_than_its_room(text: str) -> None:
    lines = wrap(text, 9, 120)
    assert all(width(line, 9) <= 121 for line in lines)
    kept = "".join(lines).replace(" ", "")
    assert kept == "".join(text.split())
