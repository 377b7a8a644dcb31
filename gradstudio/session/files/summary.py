"""The summary of a run as one JSON object: the output of `gradstudio run --json` and the content of run.json."""

from __future__ import annotations

import json
from typing import Any

from gradstudio.core.strict_json import encode_floats
from gradstudio.core.unknown import is_known
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.ranked_findings import in_order
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_figures import figures, skipped_batches
from gradstudio.session.running.investigation import as_json


def summarize(run: Run) -> dict[str, Any]:
    """Return the run as one JSON object: NaN and Inf as the strings "nan", "inf", "-inf", missing values as null."""
    findings = [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "first_step": (finding.own_steps or (finding.first_step,))[0],
            "layers": list(finding.layers),
            "title": finding.title,
            "last_step": (finding.own_steps or (finding.last_step,))[-1],
            "evidence": finding.evidence,
            "meaning": finding.meaning,
            "remedies": list(finding.remedies),
            "explains": list(finding.explains),
        }
        for finding in in_order(run)
    ]
    comparisons = [{"step": step, "difference": difference} for step, difference, _ in list(run.compared)]
    line = {"parent": run.parent or None, "parent_step": run.parent_step if run.parent else None}
    return encode_floats(
        {
            "run": run.id,
            **vars(figures(run)),
            "findings": findings,
            "provenance": as_json(run.provenance),
            "comparisons": comparisons,
            "tests": _tests(run),
            **line,
            **_script(run),
        },
        _spell,
    )


def _script(run: Run) -> dict[str, Any]:
    """Return the watched script; empty for a run of the studio."""
    script = run.watched
    if script is None:
        return {}
    told = {"script": script.script, "arguments": list(script.arguments), "sha256": script.sha256}
    skipped = [{"step": event.step, "text": event.text} for event in skipped_batches(run)]
    logged = {name: run.history.logged_as(name)[1][-1] for name in run.history.logged_names}
    return {
        "watched": {**told, "every": script.every, **dict(script.facts)}, "skipped_batches": skipped, "logged": logged
    }  # fmt: skip


def _tests(run: Run) -> list[dict[str, Any]]:
    """Return the test-set measurements during training; null if not measured."""
    history, measured = run.history, []
    for step in map(int, history.measurements("test_accuracy")[0]):
        alike = history.value("head_cosine", step)
        accuracy = history.value("test_accuracy", step)
        measured.append(
            {"step": own_step(history, step), "accuracy": accuracy, "head_cosine": alike if is_known(alike) else None}
        )
    return measured


def to_json(value: Any) -> str:
    """Return strict JSON, indented for readability, with NaN and Inf as strings."""
    return json.dumps(encode_floats(value, _spell), indent=2, ensure_ascii=False, allow_nan=False)


def _spell(value: float) -> str:
    return repr(float(value))
