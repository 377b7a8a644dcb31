"""The changes of a run since the last message, in frames: no row and no entry of a list is sent twice. One side sends
(RunTold), the other writes it into a run of its own (RunReader)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradstudio.core import gauge_samples
from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import differing_values
from gradstudio.core.history import BLOCK, History
from gradstudio.core.rank_figures import RANK_COLUMNS
from gradstudio.core.typed_json import NotConforming, from_plain, to_plain
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.remote.run_document import FIELDS, LAYERS, LISTS, VALUES, list_of
from gradstudio.worker.worker_process import Said

MOST = 16 << 20  # bytes of the rows of a frame, if there is more than one
_SAMPLES = {
    kind.__name__: kind
    for kind in (
        gauge_samples.Exponents, gauge_samples.Sharpness, gauge_samples.NoiseScale, gauge_samples.Overshoot,
        gauge_samples.ClippedGradient, gauge_samples.Logits,
    )
}  # fmt: skip
_SINGLE = len(LAYER_METRICS) * 4  # bytes of a row for each layer


class RunSender:
    """How much of a run was sent. The writer of the run does not have to wait: it is read like by any reader."""

    def __init__(self, run: Run, *, rows_too: bool = False) -> None:
        """Everything that the run has now is known on the other side; with `rows_too`, except its rows."""
        self.run, self._history = run, run.history
        self._rows, self._ranks = (0, 0) if rows_too else (len(run.history), len(run.history.ranks))
        self._lists = {kind: (list_of(run, kind), len(list_of(run, kind))) for kind in LISTS}
        self._findings = dict(run.findings)
        self._fields: dict[str, Any] = {name: getattr(run, name) for name in FIELDS}
        self._in_force, self._step_now = run.in_force, run.step_now
        self._samples = {name: list(samples) for name, samples in run.gauge_samples.items()}
        self._problems = dict(run.gauge_problems)

    def news(self, to: int) -> list[Said]:
        """Return the frames that contain the news; none if there is none. A status comes with everything that led to
        it."""
        run = self.run
        head: dict[str, Any] = {}
        fields = {name: getattr(run, name) for name in FIELDS}  # first: what is sent later is at least as new
        head |= {"state": state} if (state := self._state(fields)) else {}
        if run.step_now != self._step_now:
            self._step_now = step_now = run.step_now
            head["step_now"] = step_now and [step_now[0], time.monotonic() - step_now[1]]
        head |= self._values()
        raw: list[np.ndarray] = []
        if run.history is not self._history:
            self._history, self._rows, self._ranks = run.history, 0, 0
            head["layers"] = to_plain(run.history.layers)
        if lists := self._grown():
            head["lists"] = lists
        if gauges := self._gauges(raw):
            head["gauges"] = gauges
        rows = list(self._new_rows(to))
        if not head and not rows:
            return []
        if rows:
            head["seconds"] = run.seconds
        if "layers" in head:  # before its rows
            first = {"m": "run", "to": to, "layers": head.pop("layers")}
            rows.insert(0, (first, ()))
        return [*rows, ({"m": "run", "to": to, **head}, raw)]

    def _state(self, fields: dict[str, Any]) -> dict[str, Any]:
        before, self._fields = self._fields, fields
        return {
            name: to_plain(value)
            for name, value in fields.items()
            if value is not before[name] and value != before[name]
        }

    def _values(self) -> dict[str, Any]:
        """Return the knobs and findings that are new."""
        head: dict[str, Any] = {}
        now, before = self.run.in_force, self._in_force
        if now is not before:
            self._in_force = now
            head["in_force"] = to_plain(list(differing_values(before, now).items()))
        findings, known = dict(self.run.findings), self._findings
        new = [finding for rule, finding in findings.items() if finding is not known.get(rule)]
        if new or len(findings) != len(known):
            self._findings = findings
            still = [each for each in new if each.rule in known and known[each.rule].until(each.last_step) == each]
            head["findings"] = to_plain([each for each in new if each not in still])
            head["until"] = {each.rule: each.last_step for each in still}
            head["gone"] = [rule for rule in known if rule not in findings]
        return head

    def _grown(self) -> dict[str, Any]:
        """Return the new entries of each list, and the number of the first. A list that was replaced is sent from where
        it differs."""
        grown = {}
        for kind in LISTS:
            now = list_of(self.run, kind)
            before, count = self._lists[kind]
            start, entries = count, now[count:]
            if now is not before or len(now) < count:
                old = before[:count]
                start = next((at for at, (one, other) in enumerate(zip(old, now, strict=False)) if one != other),
                             min(len(old), len(now)))  # fmt: skip
                entries = now[start:]
            if entries or start < count:
                grown[kind] = [start, to_plain(entries)]
            self._lists[kind] = (now, start + len(entries))
        return grown

    def _gauges(self, raw: list[np.ndarray]) -> list[Any]:
        messages: list[Any] = []
        for name, samples in list(self.run.gauge_samples.items()):
            known = self._samples.get(name, [])
            if not known or samples[-1] is not known[-1]:
                last = known[-1][0] if known else -1
                new = [sample for sample in samples if sample[0] >= last and not any(sample is each for each in known)]
                for step, value in new:
                    arrays: list[np.ndarray] = []
                    given = to_plain(value, arrays)
                    raw += arrays
                    messages.append([name, step, type(value).__name__, given, sum(each.nbytes for each in arrays)])
                self._samples[name] = samples
        problems = dict(self.run.gauge_problems)
        messages += [[name, why] for name, why in problems.items() if self._problems.get(name) != why]
        self._problems = problems
        return messages

    def _new_rows(self, to: int) -> Iterator[Said]:
        """Yield frames with the new rows."""
        history = self._history
        stop = len(history)
        ranks = history.ranks.rows(self._ranks, stop) if len(history.ranks) > self._ranks else None
        self._ranks += 0 if ranks is None else len(ranks)
        while self._rows < stop:
            start = self._rows
            count = min(stop - start, BLOCK, max(MOST // (len(COLUMNS) * 8 + _SINGLE * len(history.layers)), 1))
            self._rows += count
            yield rows_said(history, start, start + count, to, ranks)
            ranks = None


def rows_said(history: History, start: int, stop: int, to: int, ranks: np.ndarray | None, name: str = "run") -> Said:
    """Return the frame with rows start to stop, including the ranks' measurements if there are any."""
    columns = np.ascontiguousarray(history.table(start, stop))
    layers = np.stack([history.layer_metric(metric, start, stop) for metric in LAYER_METRICS])
    head = {"m": name, "to": to, "rows": [start, stop - start, len(history.layers)]}
    if ranks is None:
        return head, [columns, layers]
    return head | {"ranks": list(ranks.shape[:2])}, [columns, layers, np.ascontiguousarray(ranks)]


def take_rows(history: History, head: dict[str, Any], raw: memoryview) -> None:
    """Add the rows of a frame to a history. NotConforming if they are not the next ones."""
    start, count, layers = from_plain(tuple[int, int, int], head["rows"])
    ranks = from_plain(tuple[int, int], head["ranks"]) if "ranks" in head else None
    sizes = [count * len(COLUMNS) * 8, count * layers * _SINGLE]
    more = ranks[0] * ranks[1] * len(RANK_COLUMNS) * 4 if ranks else 0
    if start != len(history) or layers != len(history.layers) or len(raw) != sum(sizes) + more or count < 1:
        raise NotConforming(f"rows {start:,} to {start + count:,} behind {len(history):,}")
    columns = np.frombuffer(raw[: sizes[0]], np.float64).reshape(count, len(COLUMNS))
    measured = np.frombuffer(raw[sizes[0] : sum(sizes)], np.float32).reshape(len(LAYER_METRICS), count, layers)
    if ranks:  # before the rows: a reader of a row looks up its ranks
        history.ranks.extend(np.frombuffer(raw[sum(sizes) :], np.float32).reshape(*ranks, len(RANK_COLUMNS)))
    history.extend(columns, measured)


class RunReader:
    """Writes the news into its own copy of the run."""

    def __init__(self, run: Run) -> None:
        self.run, self._values = run, vars(run)
        self._writer = RunWriter(run)
        self.begun = False  # whether anything was reported besides waiting for its turn

    def take(self, head: dict[str, Any], raw: memoryview) -> None:
        """Receive a frame of news. NotConforming or KeyError if it is invalid."""
        self.begun |= head.get("state") != {"status": "starting"} or "rows" in head or "layers" in head
        if "rows" in head:
            take_rows(self.run.history, head, raw)
            return
        if "layers" in head:
            self._values["history"] = History(from_plain(LAYERS, head["layers"]))
        if "seconds" in head:
            self._values["seconds"] = from_plain(float, head["seconds"])
        for kind, (start, entries) in head.get("lists", {}).items():
            self._take_list(kind, from_plain(int, start), from_plain(list[LISTS[kind]], entries))
        self._take_findings(head)
        if "in_force" in head:
            self._writer.put_in_force(dict(from_plain(VALUES, head["in_force"])))
        self._take_gauges(head.get("gauges", []), raw)
        if "step_now" in head:
            now = from_plain(tuple[int, float] | None, head["step_now"])
            self._values["step_now"] = now and (now[0], time.monotonic() - now[1])
        state = {name: from_plain(FIELDS[name], value) for name, value in head.get("state", {}).items()}
        status = state.pop("status", None)
        self._values.update(state)
        if status is not None:  # last: a reader that sees the end sees all of it
            self._values["status"] = status

    def _take_list(self, kind: str, start: int, entries: list[Any]) -> None:
        kept = list_of(self.run, kind)
        if start > len(kept):
            raise NotConforming(f"{kind} from {start:,} on, behind {len(kept):,}")
        if start == len(kept) and kind != "timeline":
            kept.extend(entries)
        elif kept[start:] != entries:  # readers keep a reference to the old list
            where = self._values if kind in self._values else vars(self.run.history)
            where[kind] = [*kept[:start], *entries]

    def _take_findings(self, head: dict[str, Any]) -> None:
        findings = self._values["findings"]
        for rule in from_plain(list[str], head.get("gone", [])):
            findings.pop(rule, None)
        for rule, step in from_plain(dict[str, int], head.get("until", {})).items():
            findings[rule] = findings[rule].until(step)
        findings.update((each.rule, each) for each in from_plain(list[Finding], head.get("findings", [])))

    def _take_gauges(self, told: list[Any], raw: memoryview) -> None:
        for name, *rest in told:
            if len(rest) == 1:
                self._writer.fail_gauge(from_plain(str, name), from_plain(str, rest[0]))
                continue
            step, kind, given, size = rest
            value = from_plain(_SAMPLES[kind], given, raw[:size])
            raw = raw[size:]
            self._writer.add_gauge_sample(from_plain(str, name), (from_plain(int, step), value))
