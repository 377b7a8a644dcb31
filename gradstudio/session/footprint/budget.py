"""Rejects an experiment that uses more memory than its run.memory_budget, before anything is allocated."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from gradstudio.core import presets
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import MB, Cure, Footprint
from gradstudio.core.presets import Preset
from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown
from gradstudio.session.footprint.texts import refuse

# Knobs that change no shape: experiments that differ in these alone use the same memory.
_WITHOUT_SHAPE = (
    "run.seed", "run.steps", "run.stop_on_nonfinite", "optimizer.lr", "schedule.warmup_steps", "schedule.kind",
    "schedule.total_steps", "model.init", "model.init_gain", "model.initial_bias",
)  # fmt: skip
_MOST = 64  # number of cached answers

FootprintAndCures = tuple[Footprint, tuple[Cure, ...]]


class FootprintCache:
    """Earlier answers, and the process that computes new ones. Thread-safe."""

    def __init__(self) -> None:
        self._process = FootprintProcess()
        self._known = OrderedDict[str, FootprintAndCures]()
        self._one_at_a_time = threading.Lock()

    def of(self, experiment: Experiment, stopped: Callable[[], bool] = lambda: False) -> FootprintAndCures | None:
        """Return the memory use of an experiment, and the cures if it is over its budget; None if it is `stopped`.
        FootprintUnknown if it cannot be determined."""
        key = _key(experiment)
        while not self._one_at_a_time.acquire(timeout=0.1):
            if stopped():
                return None
        try:
            if key not in self._known:
                self._ask(key, experiment, stopped)
            return self._known.get(key)
        finally:
            self._one_at_a_time.release()

    def get(self, experiment: Experiment) -> FootprintAndCures | None:
        """Return the earlier result; None if there is none."""
        return self._known.get(_key(experiment))

    def learn(self, experiment: Experiment, answer: FootprintAndCures) -> None:
        """Store a result from another process."""
        self._keep(_key(experiment), answer)

    def end(self) -> None:
        """End the process, which otherwise waits some minutes for the next request. Answers stay cached."""
        with self._one_at_a_time:
            self._process.close()

    def _ask(self, key: str, experiment: Experiment, stopped: Callable[[], bool]) -> None:
        footprint, cures = None, list[Cure]()
        for answer in self._process.ask(experiment, stopped):
            if isinstance(answer, Footprint):
                footprint = answer
            else:
                cures.append(answer)
        if footprint is None or stopped():
            return
        self._keep(key, (footprint, tuple(cures)))

    def _keep(self, key: str, answer: FootprintAndCures) -> None:
        self._known[key] = answer
        if len(self._known) > _MOST:
            self._known.popitem(last=False)


ASKED = FootprintCache()


def check(experiment: Experiment, planned: Iterable[Change] = (), stopped: Callable[[], bool] = lambda: False) -> str:
    """Raise KnobError if an experiment, or one that results from its planned changes, exceeds its budget. Return why
    that is unknown, or "" if it fits. Takes some seconds, once for each experiment."""
    if experiment.run.memory_budget == 0:
        return ""
    for each in _stages(experiment, planned):
        try:
            answer = ASKED.of(each, stopped)
        except FootprintUnknown as why:
            return f"Whether a step fits into run.memory_budget is not known: {why}"
        if answer is not None and answer[0].peak > each.run.memory_budget * MB:
            raise refuse(each, *answer)
    return ""


def cures(experiment: Experiment, planned: Iterable[Change] = ()) -> tuple[Cure, ...]:
    """Return the changes with which a rejected experiment would fit, as computed for that error."""
    for each in _stages(experiment, planned):
        answer = ASKED.get(each)
        if answer is not None and answer[0].peak > each.run.memory_budget * MB > 0:
            return tuple(cure for cure in answer[1] if cure.fits)
    return ()


def known_stages(experiment: Experiment, planned: Iterable[Change]) -> list[FootprintAndCures | None]:
    """Return the cached results for an experiment and those that result from its planned changes, for another
    process."""
    return [ASKED.get(each) for each in _stages(experiment, planned)]


def learn_stages(
    experiment: Experiment, planned: Iterable[Change], answers: Iterable[FootprintAndCures | None]
) -> None:
    """Store the results of another process for the same experiments."""
    for each, answer in zip(_stages(experiment, planned), answers, strict=False):
        if answer is not None:
            ASKED.learn(each, answer)


def cached_footprint(experiment: Experiment) -> FootprintAndCures | None:
    """Return the memory use of a step of an experiment, and the cures, if cached."""
    return ASKED.get(experiment)


def representative(experiment: Experiment) -> Experiment:
    """Return the representative of all experiments with the same memory use."""
    return experiment.with_values({name: Experiment()[name] for name in _WITHOUT_SHAPE})


def _stages(experiment: Experiment, planned: Iterable[Change]) -> list[Experiment]:
    """Return the experiments that a run consists of."""
    stages = [experiment]
    for change in planned:
        stages.append(stages[-1].with_value(change.knob, change.value))
    return list({_key(each): each for each in stages}.values())


def _key(experiment: Experiment) -> str:
    """Return the values that determine the memory use of an experiment."""
    return presets.to_toml(Preset(id="asked", title="", experiment=representative(experiment)))
