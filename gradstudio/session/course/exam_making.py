"""Making an exam from a drawn fault or from a user's experiment. Each is tried before it is written: with three seeds
the run is broken as it is, and a fix holds."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from gradstudio.core.assignment import AssignmentError
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.exam import LONGEST_CHOICE, MOST_FIXED, MOST_STEPS, SEEDS, TASK, Exam, HiddenPart
from gradstudio.core.experiment import KNOBS, Experiment, parse_assignment
from gradstudio.core.knobs import KnobError, Value, format_value
from gradstudio.core.planned_changes import read_timeline
from gradstudio.core.presets import LONGEST_TITLE, Preset
from gradstudio.core.text import clean
from gradstudio.session.course import causes
from gradstudio.session.course.drawn_faults import from_mid_run, one_fault
from gradstudio.session.course.drawn_faults.drawing_runs import LEARNED
from gradstudio.session.course.drawn_faults.kinds import DrawnFault, Kind
from gradstudio.session.course.promises import Training
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import HARMED, is_harmed, learned_little

DRAWS = 60  # of faults until one makes an exam
LAST_SEED = int(KNOBS["run.seed"].maximum) - SEEDS + 1  # of a run that is tried with SEEDS seeds
SPARE = 2  # knobs that a fix may change beyond the known one
TEXT = (
    "This run does not train as it should. Find out why from its measurements, say what the cause is, and change as "
    "few knobs as you can so that it trains with any seed."
)

Telling = Callable[[str], object]

KINDS: tuple[Kind, ...] = tuple(
    kind for kind in (*one_fault.KINDS, *from_mid_run.KINDS) if kind.name in set(causes.kinds())
)


def draw_exam(seed: int, train: Training, tell: Telling, *, tries: int = 6) -> Exam:
    """Return the exam for a seed: a fault of a random kind, redrawn until one harms the run with three seeds."""
    random = np.random.default_rng([zlib.crc32(b"exam"), seed])
    for place in range(DRAWS):
        kind = KINDS[int(random.integers(len(KINDS)))]
        fault = kind.draw(np.random.default_rng([zlib.crc32(kind.name.encode()), seed, place]))
        tell(f"draw {place + 1} of at most {DRAWS}")
        first = int(random.integers(1, 1_000_000))
        broken, timeline, fix = _as_exam(fault, first)
        aims = _aims(broken, timeline, fix, train, LEARNED[broken.problem.task])
        if aims is None:
            continue
        right, cause = causes.choices(causes.of_kind(kind.name), random)
        return _exam(f"Exam {seed}", broken, timeline, fix, aims, right, cause, tries=tries, changes=len(fix) + SPARE)
    raise AssignmentError(f"--seed {seed} draws no run that breaks and heals with {SEEDS} seeds; allowed: another seed")


def of(
    preset: Preset,
    seed: int,
    train: Training,
    tell: Telling,
    *,
    title: str = "",
    cause: str = "",
    fix: Sequence[str] = (),
    changes: int = 0,
    tries: int = 6,
    locked: Sequence[str] = (),
    shown: Sequence[str] = (),
) -> Exam:
    """Return an exam made from an experiment. `cause` defaults to that of the first finding, and `fix` to the preset's
    promise, or else to the first remedy that holds. AssignmentError if there is none."""
    experiment = preset.experiment
    title, cause = clean(title.strip()), clean(cause.strip())
    held = (*locked, *shown)
    _check_asked(experiment, title, cause, fix, held)
    timeline = tuple((change.step, change.knob, change.value) for change in preset.timeline)
    tell("the run as it stands")
    run = _train(experiment, timeline, {}, experiment.run.seed, train)
    findings = [each for each in ranked_findings(run) if each.severity != "info"]
    if not (cause or findings):
        raise AssignmentError("nothing is wrong with this run as it stands; an exam needs one that breaks")
    given = [list(fix)] if fix else [texts for texts in _fixes(findings, preset) if not _changed_by(texts, held)]
    for texts in given:
        tell(f"the fix {' '.join(texts)}")
        values = dict(parse_assignment(text) for text in texts)
        aims = _aims(experiment, timeline, values, train)
        if aims is not None:
            right = cause or _cause_of(findings, preset, values)
            random = np.random.default_rng([zlib.crc32(b"exam"), seed])
            text, place = causes.choices(right, random)
            allowed = _allowed_changes(changes, len(values))
            return _exam(title or f"Exam {seed}", experiment, timeline, values, aims, text, place, tries=tries,
                         changes=allowed, locked=locked, shown=shown)  # fmt: skip
    tried = "; ".join(" ".join(texts) for texts in given[:3]) or "none is known"
    raise AssignmentError(
        f"no fix makes this run reach more than {1 / HARMED:.1f} times its accuracy with {SEEDS} seeds (tried: "
        f"{tried}): name one (--fix KNOB=VALUE, or the field Fix)"
    )


def _check_asked(experiment: Experiment, title: str, cause: str, fix: Sequence[str], held: Sequence[str]) -> None:
    """Raise AssignmentError for an impossible request, before anything is trained. `held`: the knobs and sections that
    are locked or shown."""
    if experiment.studio_file is not None:
        raise AssignmentError("an exam cannot have a studio file, whose text would tell what is wrong")
    if experiment.distributed.ranks > 1:
        raise AssignmentError("an exam has one process; allowed: distributed.ranks = 1")
    for name, text, most in (("title", title, LONGEST_TITLE), ("cause", cause, LONGEST_CHOICE)):
        if len(text) > most:
            raise AssignmentError(f"the {name} has {len(text):,} characters; allowed: at most {most}")
    steps, seed = experiment.run.steps, experiment.run.seed
    if steps > MOST_STEPS:
        raise AssignmentError(f"run.steps = {steps:,} is not allowed in an exam; allowed: at most {MOST_STEPS:,}")
    if seed > LAST_SEED:
        raise AssignmentError(f"run.seed = {seed} leaves no {SEEDS} seeds to try; allowed: at most {LAST_SEED}")
    if len(fix) > MOST_FIXED:
        raise AssignmentError(f"the fix changes {len(fix)} knobs; allowed: at most {MOST_FIXED}")
    if odd := _changed_by(fix, held):
        raise AssignmentError(f"{odd[0]} is a knob of the fix, so it can be neither locked nor shown")


def _allowed_changes(asked: int, of_fix: int) -> int:
    """Return how many knobs may be changed; AssignmentError if the fix changes more."""
    allowed = asked or min(of_fix + SPARE, MOST_FIXED)
    if allowed < of_fix:
        raise AssignmentError(
            f"the fix changes {of_fix} knobs, and {allowed} may be changed: allow more (--changes N, or the field "
            "Knobs a fix may change)"
        )
    return allowed


def _changed_by(fix: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which of these knobs a fix changes."""
    values = dict(parse_assignment(text) for text in fix)
    return [name for name in names if name in values]


def of_seed(exam: Exam, changed: Mapping[str, Value], seed: int | None = None) -> Run:
    """Return a run of an exam, not yet trained, with no name that reveals what is hidden."""
    experiment, timeline = exam.experiment(changed)
    if seed is not None:
        experiment = experiment.with_value("run.seed", seed)
    return Run(Preset(id="exam", title=exam.title, experiment=experiment), experiment, timeline)


def _as_exam(fault: DrawnFault, seed: int) -> tuple[Experiment, tuple[tuple[int, str, Value], ...], dict[str, Value]]:
    """Return a drawn fault as a run, its live changes, and the values of the healthy run for the knobs involved."""
    part = fault.parts[0]
    healthy = Experiment().with_texts(["run.device=cpu", "run.steps=200", f"run.seed={seed}", *fault.base])
    broken = healthy.with_texts(list(part.change))
    timeline = []
    for text in part.at:
        step, _, assignment = text.partition(":")
        timeline.append((int(step), *parse_assignment(assignment)))
    names = [parse_assignment(text)[0] for text in part.change] + [knob for _, knob, _ in timeline]
    return broken, tuple(timeline), {name: healthy[name] for name in names}


def _aims(
    experiment: Experiment,
    timeline: Sequence[tuple[int, str, Value]],
    fix: Mapping[str, Value],
    train: Training,
    least: float = 0.0,
) -> dict[str, float] | None:
    """Return the accuracy of the fix by seed; None if the fix fails with any seed, or the run is not broken. `least`:
    an accuracy below that of any run that has learned the task."""
    aims: dict[str, float] = {}
    for seed in range(experiment.run.seed, experiment.run.seed + SEEDS):
        healed = _train(experiment, timeline, fix, seed, train)
        if healed.status != "finished" or healed.accuracy is None or learned_little(healed, least):
            return None
        if not is_harmed(_train(experiment, timeline, {}, seed, train), healed):
            return None
        aims[str(seed)] = healed.accuracy
    return aims


def _train(
    experiment: Experiment, timeline: Sequence[tuple[int, str, Value]], changed: Mapping[str, Value], seed: int,
    train: Training,
) -> Run:  # fmt: skip
    made = experiment.with_values({**changed, "run.seed": seed})
    entries = [{"step": step, "knob": knob, "value": value} for step, knob, value in timeline if knob not in changed]
    run = Run(Preset(id="exam", title="exam", experiment=made), made, read_timeline(entries, made))
    train(run)
    return run


def _cause_of(findings: Sequence[Finding], preset: Preset, fix: Mapping[str, Value]) -> str:
    """Return the name of the cause indicated by the findings and the preset's promise; AssignmentError if there is
    none."""
    rules = [each.rule for each in findings]
    if preset.promise is not None and preset.promise.rule:
        rules.insert(0, preset.promise.rule)
    if cause := causes.of_findings(rules, preset.experiment, preset.timeline, fix):
        return cause
    raise AssignmentError("what is wrong with this run is not known by name: say it (--cause TEXT, or the field Cause)")


def _fixes(findings: Sequence[Finding], preset: Preset) -> Iterator[list[str]]:
    if preset.promise is not None and preset.promise.fix:
        yield list(preset.promise.fix)
    for finding in findings[:3]:
        for remedy in finding.remedies[:3]:
            texts = remedy.split()
            try:
                preset.experiment.with_texts(texts)
            except KnobError:
                continue
            yield texts


def _exam(
    title: str, experiment: Experiment, timeline: Sequence[tuple[int, str, Value]], fix: Mapping[str, Value],
    aims: dict[str, float], choices: list[str], right: int, *, tries: int, changes: int, locked: Sequence[str] = (),
    shown: Sequence[str] = (),
) -> Exam:  # fmt: skip
    held = _without(fix, (*TASK, *locked))
    hidden = HiddenPart(
        knobs=experiment.changed_knobs(), timeline=list(timeline), right=right, aims=aims,
        fix=[f"{name}={format_value(value)}" for name, value in fix.items()],
    )  # fmt: skip
    texts = list(dict.fromkeys((*held, *_without(fix, shown))))
    exam = Exam(schema=1, title=title, text=TEXT, changes=changes, tries=tries, choices=choices, locked=held,
                shown=texts)  # fmt: skip
    return exam.with_hidden(hidden)


def _without(fix: Mapping[str, Value], names: Sequence[str]) -> list[str]:
    """Return these knobs and sections without the knobs of the fix: a section that contains one is replaced by its
    other knobs."""
    remaining: list[str] = []
    for name in names:
        within = [knob for knob in KNOBS if knob.partition(".")[0] == name]
        remaining += [knob for knob in within if knob not in fix] if set(within) & set(fix) else [name]
    return [name for name in dict.fromkeys(remaining) if name not in fix]
