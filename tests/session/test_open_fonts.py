"""The files of fonts: those that matplotlib opens to draw are closed again."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest
from waiting import join

from gradstudio.core import presets
from gradstudio.session.course import formula
from gradstudio.session.files.report import html_page
from gradstudio.session.files.report.blocks import Plot


def open_fonts() -> list[str]:
    gc.collect()
    targets = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [target for target in map(os.path.realpath, targets) if "matplotlib" in target]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed as Linux shows them")
def test_formulas_and_reports_leave_no_font_open() -> None:
    texts = {step.formula for path in presets.available() for step in presets.read(path).lesson if step.formula}
    before = open_fonts()  # of a test that drew with matplotlib alone
    for number, text in enumerate(sorted(texts)):
        thread = threading.Thread(target=formula.outline, args=(text,))
        thread.start()
        join(thread)
        if number % 20 == 0:
            html_page.svg(Plot("loss", "Loss", "", 2.0, lambda axes, *more: axes.set_title("$x^2$"), None))
    assert len(texts) > 50 and open_fonts() == before
