"""The screen of `gradstudio top`: a run on one screen of text, the same at 80 by 24 and on a larger one."""

from __future__ import annotations

import textwrap

import numpy as np

from gradstudio.commands.text_curve import curve
from gradstudio.core.text import number, one_line, percent, shorten
from gradstudio.core.unknown import is_known
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.words.outcome_words import OUTCOMES

QUIT = "q quit"
KEYS = f"{QUIT}   p pause or go on   s stop"
LATEST = 20  # rows that determine the pace
WORST = 3  # layers
COLOURS = {"critical": "bold red", "warning": "yellow", "info": "dim"}
Line = tuple[str, str]  # a text, and its style


def screen(run: Run, width: int, height: int, said: str = "") -> list[Line]:
    """Return `height` lines at most, each no longer than `width`: head, curves, figures, layers, findings, keys."""
    head = [(_head(run), "bold"), (_figures(run), "")]
    layers = _layers(run)[: WORST if height < 40 else 4 * WORST]
    findings = _findings(run, width)
    rest = height - len(head) - len(layers) - 3  # titles of both curves, and the keys
    told = min(len(findings), max(rest - 8, 2))
    each = max((rest - told) // 2, 2)
    lines = list(head)
    for title, name in (("loss", "loss"), ("gradient norm", "grad_norm")):
        lines.append((title, "dim"))
        lines += [(line, "cyan") for line in curve(run.history.column(name), width, each)]
    lines += layers + findings[:told]
    lines = lines[: height - 1] + [("", "")] * (height - 1 - len(lines))
    lines.append((said or (QUIT if run.over else KEYS), "reverse"))
    return [(_cut(text, width), style) for text, style in lines]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _head(run: Run) -> str:
    count = len(run.history)
    step = f"step {own_step(run.history, count - 1):,}" if count else "no step yet"
    return f"{shorten(one_line(run.title), 44)}  {OUTCOMES[run.status].word}  {step}{_pace(run)}"


def _pace(run: Run) -> str:
    seconds = run.history.column("step_seconds", len(run.history) - LATEST)
    seconds = seconds[np.isfinite(seconds)]
    mean = float(seconds.mean()) if len(seconds) else 0.0
    return f"  {number(1 / mean)} steps/s" if mean > 0 and not run.over else ""


def _figures(run: Run) -> str:
    if not len(run.history):
        return ""
    row = run.history.row(len(run.history) - 1)
    clipped = f" → {number(row['clipped_norm'])}" if row["clip_coef"] < 1 else ""
    parts = [f"loss {number(row['loss'])}", f"norm {number(row['grad_norm'])}{clipped}", f"lr {number(row['lr'])}"]
    if is_known(row["scale"]) and row["scale"] != 1:
        parts.append(f"scale {number(row['scale'])}")
    skipped = int((run.history.column("skipped") == 1).sum())
    return "   ".join([*parts, *([f"{skipped:,} skipped"] if skipped else [])])


def _layers(run: Run) -> list[Line]:
    """Return the layers with the largest share of the latest gradient, non-finite ones first."""
    if not run.history.layers or not len(run.history):
        return []
    norms = run.history.layer_metric("grad_norm", len(run.history) - 1)[-1].astype(float)
    order = np.argsort(np.where(np.isfinite(norms), -norms, -np.inf), kind="stable")[: 4 * WORST]
    total = float(np.sqrt((norms[np.isfinite(norms)] ** 2).sum())) or 1.0
    lines = []
    for place in order.tolist():
        finite = np.isfinite(norms[place])
        share = percent(float(norms[place] / total) ** 2) if finite else "not finite"
        name = shorten(run.history.layers[place].name, 40)
        lines.append((f"  {name:<40} {number(float(norms[place])):>9}  {share}", "" if finite else "bold red"))
    return lines


def _findings(run: Run, width: int) -> list[Line]:
    lines: list[Line] = []
    for finding in ranked_findings(run):
        head = f"{finding.severity}: {finding.title}, {finding.when}. {finding.evidence}"
        told = [("", head), *(("  ", f"try: {remedy}") for remedy in finding.remedies[:1])]
        for indent, text in told:
            wrapped = textwrap.wrap(one_line(text), width, initial_indent=indent, subsequent_indent="  ")
            lines += [(line, COLOURS[finding.severity]) for line in wrapped]
    return lines
