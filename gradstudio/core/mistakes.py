"""Notes on the mistakes: when one has no effect, and what hides its effect from the loss."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.core.experiment import Experiment

MARK = "# MISTAKE"  # the beginning of the comment on a mistake in a program
NO_EFFECT = "changes nothing"  # the beginning of a note on a mistake that has no effect with the other values
# which hardly depend on the size of a gradient
SCALE_FREE = ("adam", "adamw", "rmsprop", "lion", "muon", "stable_adamw", "schedule_free")


def note(name: str, knobs: Experiment) -> str:
    """Return the note on the mistake with this dotted name, given the other values: that it changes nothing, or what
    hides it. Empty if the effect shows in the loss."""
    return next((text for holds, text in _NOTES.get(name, ()) if holds(knobs)), "")


def _one_micro_batch(knobs: Experiment) -> bool:
    return knobs.accumulation.steps == 1


def _no_clipping(knobs: Experiment) -> bool:
    return knobs.clipping.kind == "none"


def _no_scaling(knobs: Experiment) -> bool:
    return knobs.precision.dtype != "fp16" or knobs.precision.scaling == "none"


def _scale_free(knobs: Experiment) -> bool:
    return knobs.optimizer.kind in SCALE_FREE


def _fixed_rate(knobs: Experiment) -> bool:
    return knobs.schedule.warmup_steps <= 1 and knobs.schedule.kind == "constant"


def _is_unweighted(knobs: Experiment) -> bool:
    return knobs.loss.class_weights == "none" or not knobs.applies("loss.class_weights")


def _not_dynamic(knobs: Experiment) -> bool:
    return _no_scaling(knobs) or knobs.precision.scaling != "dynamic"


_ALONE = (_one_micro_batch, "changes nothing with one micro-batch a step: raise accumulation.steps")
_UNCLIPPED = (_no_clipping, "changes nothing without clipping")
_UNSCALED = (_no_scaling, "changes nothing without loss scaling: set precision.dtype = fp16")
_NOT_DYNAMIC = (_not_dynamic, "changes nothing without dynamic loss scaling: set precision.dtype = fp16")
_RATE_FREE = (
    _scale_free,
    "the loss hardly shows it: Adam and RMSprop divide a gradient by its own size; set sgd to see it",
)

# The first note whose condition holds is shown. The hiding was measured with an MLP, 4 micro-batches, clipping at norm
# 1 and a loss scale of 65536.
_NOTES: dict[str, tuple[tuple[Callable[[Experiment], bool], str], ...]] = {
    "mistakes.clip_after_step": (_UNCLIPPED,),
    "mistakes.clip_before_backward": (_UNCLIPPED,),
    "mistakes.clip_before_unscale": (_UNCLIPPED, _UNSCALED, _RATE_FREE),
    "mistakes.unscale_twice": (_UNSCALED,),
    "mistakes.step_without_scaler": (_NOT_DYNAMIC, (lambda knobs: True, "shows only where a gradient overflows")),
    "mistakes.never_update_scaler": (_NOT_DYNAMIC,),
    "mistakes.clip_each_micro_batch": (
        _UNCLIPPED,
        (
            lambda knobs: _one_micro_batch(knobs) and not _no_scaling(knobs),
            "with one micro-batch it is the same as clip_before_unscale",
        ),
        _ALONE,
    ),
    "mistakes.unscaled_accumulation": (
        _ALONE,
        _RATE_FREE,
        (
            lambda knobs: knobs.applies("clipping.max_norm"),
            "clipping hides it wherever it cuts the gradient to max_norm anyway",
        ),
    ),
    "mistakes.divide_each_micro_batch": (
        _ALONE,
        (lambda knobs: True, "no curve looks broken: each step is shorter, and made of the last examples"),
    ),
    "mistakes.normalize_each_micro_batch": (
        (lambda knobs: knobs.studio_file is not None, "changes nothing: a studio file brings its own loss"),
        _ALONE,
        (_is_unweighted, "changes nothing without class weights: set loss.class_weights = balanced"),
    ),
    "mistakes.zero_grad_each_micro_batch": (
        _ALONE,
        (lambda knobs: True, "no curve looks broken: each step sees fewer examples, and its gradient is shorter"),
    ),
    "mistakes.never_zero_grad": (
        (
            lambda knobs: not _no_scaling(knobs),
            "a large loss scale hides it: the old gradient is unscaled, so it is tiny beside the new one",
        ),
    ),
    "mistakes.scheduler_each_micro_batch": (
        _ALONE,
        (_fixed_rate, "changes nothing without warmup or a falling schedule"),
    ),
    "mistakes.drop_last_micro_batches": (_ALONE,),
}
