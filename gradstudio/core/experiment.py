"""Every knob of the program, declared once. An Experiment is one value for each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from gradstudio.core import combinations
from gradstudio.core.knobs import Knob, KnobError, Section, Value, knob, read_knobs

# Models whose layers take an activation, norms and residuals as the knobs say; the others bring their own.
LAYERED = ("mlp", "rnn", "cnn", "gan", "policy")


class Clipping(Section):
    kind: Literal["none", "norm", "value", "agc", "per_layer"] = knob(
        "none",
        "How gradients are clipped before the optimizer sees them: norm scales all of them together and keeps their "
        "direction, value cuts every entry, agc limits each unit relative to its weights, per_layer scales each layer by itself.",
    )
    max_norm: float = knob(
        1.0, "Largest gradient norm that reaches the optimizer. Larger ones are scaled down to it.",
        gt=0, le=1e30, slider=(1e-2, 1e2), logarithmic=True, when={"clipping.kind": ("norm", "per_layer")},
    )  # fmt: skip
    clip_value: float = knob(
        0.5, "Largest absolute value of a single gradient entry. Larger ones are cut, which bends the direction.",
        gt=0, le=1e30, slider=(1e-3, 1e1), logarithmic=True, when={"clipping.kind": ("value",)},
    )  # fmt: skip
    agc_factor: float = knob(
        0.01, "Largest gradient norm of a unit as a share of the norm of its weights (Brock 2021). The output layer is left out.",
        gt=0, le=1e6, slider=(1e-3, 1.0), logarithmic=True, when={"clipping.kind": ("agc",)},
    )  # fmt: skip


class Accumulation(Section):
    steps: int = knob(1, "Micro-batches whose gradients are averaged before one optimizer step.", ge=1, le=256, slider=(1, 32))


class Precision(Section):
    dtype: Literal["fp32", "bf16", "fp16"] = knob(
        "fp32", "Number format of the forward pass under autocast. fp16 ends at 65504 and loses what is below 6e-8."
    )
    scaling: Literal["dynamic", "static", "none"] = knob(
        "dynamic",
        "Loss scaling, which lifts small fp16 gradients over the underflow: dynamic is torch's GradScaler, static a fixed "
        "factor without any check, none nothing.",
        when={"precision.dtype": ("fp16",)},
    )
    init_scale: float = knob(
        65536.0, "The scale at the first step.", live=False, ge=1e-30, le=1e38, slider=(1.0, 2.0**32), logarithmic=True,
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic", "static")},
    )  # fmt: skip
    growth_factor: float = knob(
        2.0, "The scale is multiplied by this after growth_interval steps without overflow.", live=False, gt=1, le=1e6,
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )  # fmt: skip
    backoff_factor: float = knob(
        0.5, "The scale is multiplied by this at an overflow.", live=False, gt=0, le=0.999999,
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )  # fmt: skip
    growth_interval: int = knob(
        2000, "Steps without overflow before the scale grows.", ge=1, le=1_000_000, unit="steps",
        when={"precision.dtype": ("fp16",), "precision.scaling": ("dynamic",)},
    )  # fmt: skip


class Schedule(Section):
    warmup_steps: int = knob(
        0, "Steps over which the learning rate rises in a line from near 0 to lr.", ge=0, le=1_000_000, unit="steps", slider=(0, 1000)
    )
    kind: Literal["constant", "cosine", "linear"] = knob(
        "constant", "How the learning rate goes on after warmup: it stays, or falls to 0 at total_steps."
    )
    total_steps: int = knob(
        1000, "Step at which a falling learning rate reaches 0.", ge=1, le=10_000_000, unit="steps", when={"schedule.kind": ("cosine", "linear")}
    )


class Optimizer(Section):
    kind: Literal["sgd", "adam", "adamw", "rmsprop"] = knob("sgd", "The rule that turns gradients into a change of the weights.", live=False)
    lr: float = knob(0.1, "Learning rate: the size of a step.", ge=0, le=1e6, slider=(1e-5, 10.0), logarithmic=True)
    momentum: float = knob(
        0.0, "Share of the last step that is kept in this one.", ge=0, le=1, slider=(0.0, 0.99), when={"optimizer.kind": ("sgd", "rmsprop")}
    )
    beta1: float = knob(
        0.9, "Decay of Adam's running mean of gradients.", ge=0, le=0.999999, slider=(0.0, 0.99), when={"optimizer.kind": ("adam", "adamw")}
    )
    beta2: float = knob(
        0.999,
        "Decay of Adam's running mean of squared gradients.",
        ge=0,
        le=0.9999999,
        slider=(0.8, 0.999),
        when={"optimizer.kind": ("adam", "adamw")},
    )
    eps: float = knob(
        1e-8, "Added to the root of the squared gradients, so that it can divide.", ge=0, le=1, slider=(1e-10, 1e-1), logarithmic=True,
        when={"optimizer.kind": ("adam", "adamw", "rmsprop")},
    )  # fmt: skip
    weight_decay: float = knob(0.0, "Pull of the weights towards 0, per step and unit of learning rate.", ge=0, le=1e3, slider=(0.0, 0.1))


class Gradients(Section):
    centralize: bool = knob(False, "Take the mean over its inputs from every unit's gradient (Yong 2020).")
    noise_std: float = knob(0.0, "Standard deviation of Gaussian noise added to every gradient entry.", ge=0, le=1e6, slider=(0.0, 0.1))


class Loss(Section):
    kind: Literal["auto", "naive_log", "naive_division", "naive_sqrt", "naive_exp", "naive_variance"] = knob(
        "auto",
        "auto is what suits the task, in its stable form. The naive ones are written by hand, as people first write them: a log of a "
        "probability that reaches 0, a division by a prediction, a root at 0, a softmax whose exp overflows, the log of a variance that "
        "becomes negative. Their NaN is born in the loss, where clipping does not reach.",
        live=False,
    )
    eps: float = knob(
        0.0, "What a naive loss adds where it could take the log or the root of 0 or divide by it; 0 is nothing. 1e-7 heals naive_log and naive_sqrt, "
        "0.01 naive_variance, 0.1 naive_division; naive_exp overflows all the same.",
        ge=0, le=1, slider=(1e-12, 1.0), logarithmic=True, when={"loss.kind": tuple(combinations.LOSS_TASKS)},
    )  # fmt: skip
    weight: float = knob(1.0, "A factor on the loss, as in a weighted sum of losses.", ge=0, le=1e30, slider=(1e-8, 1e4), logarithmic=True)


class Model(Section):
    init: Literal["default", "xavier", "he", "orthogonal", "lsuv", "zeros", "normal"] = knob(
        "default", "How the weights are drawn at step 0; default is what torch does by itself.", live=False, group="Initialization"
    )
    init_gain: float = knob(
        1.0, "Multiplies the scheme's own gain, recurrent weights included.", live=False, ge=0, le=1e6, slider=(0.1, 10.0), logarithmic=True,
        group="Initialization",
    )  # fmt: skip
    initial_bias: float = knob(0.0, "Value of every hidden bias at step 0 (with init = default, added to torch's own).", live=False,
                               ge=-1e6, le=1e6, slider=(-4.0, 4.0), group="Initialization")  # fmt: skip
    kind: Literal["mlp", "rnn", "lstm", "gru", "cnn", "transformer", "gan", "policy"] = knob(
        "mlp",
        "The network: mlp is a stack of fully connected layers; rnn, lstm and gru read a sequence step by step; cnn slides 3 x 3 filters; "
        "transformer attends; gan is two networks against each other, for the ring; policy acts, for the pole.",
        live=False,
    )
    depth: int = knob(2, "Hidden layers.", live=False, ge=1, le=100, slider=(1, 40))
    width: int = knob(128, "Units of a hidden layer.", live=False, ge=1, le=2048, slider=(8, 512), logarithmic=True, unit="units")
    activation: Literal["tanh", "sigmoid", "relu", "leaky_relu", "gelu", "silu"] = knob(
        "relu", "What a hidden unit does with its sum.", live=False, when={"model.kind": (*LAYERED, "transformer")}
    )
    norm: Literal["none", "batch", "layer"] = knob(
        "none", "Normalization of each hidden layer: over the batch, or over the layer's units. A transformer always has layer norms.",
        live=False, when={"model.kind": LAYERED},
    )  # fmt: skip
    norm_position: Literal["pre", "post"] = knob(
        "pre", "Where the norm stands: before the activation (pre) or after it and after the residual sum (post). In a transformer: "
        "before each branch, or after each residual sum.", live=False,
        when=({"model.kind": LAYERED, "model.norm": ("batch", "layer")}, {"model.kind": ("transformer",)}),
    )  # fmt: skip
    residual: bool = knob(False, "Add each hidden layer's input to its output. A transformer always does.", live=False, when={"model.kind": LAYERED})
    checkpointing: bool = knob(
        False, "Forget activations in the forward pass and compute them again in the backward pass: less memory, more time.", live=False
    )


class Problem(Section):
    task: Literal["digits", "sequential_digits", "adding", "copy", "characters", "spirals", "ring", "pole"] = knob(
        "digits",
        "What is learned. digits: handwritten digits as 8 x 8 images. sequential_digits: the same pixels one after the other. adding: the sum "
        "of two marked numbers in a sequence. copy: to repeat symbols after a pause. characters: the next letter of a book. spirals: two arms "
        "wound around each other. ring: to draw points as if from eight clusters, by a gan. pole: to balance a pole, by trial and error.",
        live=False,
    )
    seq_len: int = knob(
        64, "Time steps of a sequence; for the pole, of an episode at most; for copy, of the pause. The 64 pixels of a digit are read in so "
        "many steps: 64 is pixel by pixel, 8 is row by row.", live=False, ge=1, le=1000, unit="steps", slider=(1, 200),
        when={"problem.task": ("sequential_digits", "adding", "copy", "characters", "pole")},
    )  # fmt: skip
    batch_size: int = knob(32, "Examples in a micro-batch; for the pole, episodes.", live=False, ge=1, le=1024, slider=(1, 512), logarithmic=True)
    scaling: Literal["standardized", "unit", "raw"] = knob(
        "standardized", "What the pixels are brought to: mean 0 and deviation 1 per pixel, 0 to 1, or left at 0 to 16.", live=False,
        when={"problem.task": ("digits", "sequential_digits")},
    )  # fmt: skip
    input_scale: float = knob(1.0, "A factor on every input.", live=False, ge=0, le=1e30, slider=(1e-3, 1e4), logarithmic=True)
    noise: float = knob(0.0, "Standard deviation of Gaussian noise on every input.", live=False, ge=0, le=1e6, slider=(0.0, 2.0))
    outlier_every: int = knob(0, "Every so many batches the inputs of a step are replaced by noise; 0 is never.", ge=0, le=1_000_000, unit="batches")
    outlier_scale: float = knob(1e4, "Standard deviation of the noise in an outlier batch.", ge=0, le=1e30, slider=(1.0, 1e6), logarithmic=True)
    skip_batches: int = knob(
        0, "How many batches of the data the run has passed over so far, a batch being that of an optimizer step. Raise it by 5, and the next "
        "five are thrown away before a step is made, as one does after a loss spike. It cannot fall: what was passed over is gone.",
        ge=0, le=100_000, unit="batches",
    )  # fmt: skip


class Mistakes(Section):
    clip_after_step: bool = knob(False, "Clip after the optimizer has stepped: the clipping acts on nothing.")
    clip_before_unscale: bool = knob(False, "Clip gradients that still carry the loss scale: nearly every step is clipped to nothing.")
    unscale_twice: bool = knob(False, "Call unscale_ a second time in a step: torch raises an error, which ends the run.")
    step_without_scaler: bool = knob(False, "Call optimizer.step() in place of scaler.step(): overflowed gradients reach the weights.")
    clip_each_micro_batch: bool = knob(False, "Clip after every backward pass instead of once on the sum.")
    unscaled_accumulation: bool = knob(False, "Forget to divide the loss by the number of micro-batches.")
    zero_grad_each_micro_batch: bool = knob(False, "Clear the gradients before every backward pass: all but the last micro-batch are lost.")
    never_zero_grad: bool = knob(False, "Forget to clear the gradients: every step adds to those before it.")
    scheduler_each_micro_batch: bool = knob(False, "Advance the schedule at every micro-batch instead of every step.")
    drop_last_micro_batches: bool = knob(False, "Leave the second half of the micro-batches out, but divide by all of them.")


class Run(Section):
    steps: int = knob(1000, "Optimizer steps until the run is finished.", live=False, ge=1, le=100_000_000, unit="steps")
    seed: int = knob(0, "Seed of weights, batches and noise. The same seed gives the same run.", live=False, ge=0, le=2**31 - 1)
    device: str = knob("auto", "Where it trains: auto, cpu, cuda:0, mps. auto takes the first accelerator, or the CPU.", live=False)
    deterministic: bool = knob(True, "Use only algorithms that give the same result every time.", live=False)
    stop_on_nonfinite: bool = knob(True, "End the run at the first NaN or Inf that reaches the loss or the weights.")


TITLES = {
    "clipping": "Clipping",
    "accumulation": "Accumulation",
    "precision": "Precision",
    "schedule": "Warmup and schedule",
    "optimizer": "Optimizer",
    "model": "Model",
    "problem": "Problem",
    "gradients": "Gradients",
    "loss": "Loss",
    "mistakes": "Mistakes",
    "run": "Run",
}


class Experiment(BaseModel):
    """A value for every knob. Sections stand in the order in which one reaches for them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    clipping: Clipping = Clipping()
    accumulation: Accumulation = Accumulation()
    precision: Precision = Precision()
    schedule: Schedule = Schedule()
    optimizer: Optimizer = Optimizer()
    model: Model = Model()
    problem: Problem = Problem()
    gradients: Gradients = Gradients()
    loss: Loss = Loss()
    mistakes: Mistakes = Mistakes()
    run: Run = Run()

    @model_validator(mode="after")
    def _values_that_go_together(self) -> Experiment:
        combinations.check(self)
        device = self.run.device
        if device not in ("auto", "cpu", "cuda", "mps") and not re.fullmatch("cuda:[0-9]{1,3}", device):
            raise KnobError(f"run.device = {device[:60]} is not allowed; allowed: auto, cpu, cuda, cuda:N, mps (default auto)")
        return self

    def __getitem__(self, name: str) -> Value:
        """The value of the knob with this dotted name; KnobError for a name that is none."""
        found = find_knob(name)
        return getattr(getattr(self, found.section), found.field)

    def items(self) -> Iterator[tuple[Knob, Value]]:
        for found in KNOBS.values():
            yield found, self[found.name]

    def with_value(self, name: str, value: Value) -> Experiment:
        """A copy with one knob changed; KnobError where the name or the value is not allowed."""
        return self.with_values({name: value})

    def with_values(self, values: Mapping[str, Value]) -> Experiment:
        """A copy with these knobs changed all at once, so that values that only go together can be set together."""
        sections = self.model_dump()
        for name, value in values.items():
            found = find_knob(name)
            sections[found.section][found.field] = value
        return experiment_from(sections)

    def with_texts(self, assignments: list[str]) -> Experiment:
        """A copy with `knob=value` assignments made, as they stand on a command line."""
        return self.with_values(dict(parse_assignment(text) for text in assignments))

    def changed(self) -> dict[str, Value]:
        """The knobs that differ from their default."""
        return {found.name: value for found, value in self.items() if value != found.default}

    def applies(self, name: str) -> bool:
        """Whether the knob has an effect beside the other values."""
        when = find_knob(name).when
        return not when or any(all(self[other] in values for other, values in condition.items()) for condition in when)


KNOBS: dict[str, Knob] = read_knobs(Experiment, TITLES)


def differing(before: Experiment, after: Experiment) -> dict[str, Value]:
    """The knobs that differ, as they are afterwards."""
    return {} if before is after else {knob.name: value for knob, value in after.items() if before[knob.name] != value}


def find_knob(name: str) -> Knob:
    """The knob of that dotted name; KnobError naming the nearest where there is none."""
    try:
        return KNOBS[name]
    except (KeyError, TypeError):
        raise KnobError(_unknown(str(name))) from None


def check_passed(wanted: Experiment, passed: int) -> None:
    """KnobError where the run is to pass over fewer batches than it has: what was drawn from the data cannot be put back."""
    knob, value = KNOBS["problem.skip_batches"], wanted.problem.skip_batches
    if value < passed:
        were = "batch was" if passed == 1 else "batches were"
        raise KnobError(
            f"{knob.name} = {value} is not allowed, for it cannot fall: {passed} {were} passed over already; "
            f"allowed: at least {passed}, at most {knob.maximum:.12g}"
        )


def parse_assignment(text: str) -> tuple[str, Value]:
    """'clipping.kind=norm' as a name and a value of the knob's kind (its range is not checked here)."""
    name, equals, value = text.partition("=")
    if not equals:
        raise KnobError(f"{text[:60]!r} is not allowed; allowed: knob=value, such as clipping.kind=norm")
    found = find_knob(name.strip())
    return found.name, found.parse(value)


def experiment_from(sections: Mapping[str, object]) -> Experiment:
    """An Experiment from nested plain data, checked in full; KnobError with one line for the first fault."""
    try:
        return Experiment.model_validate(sections)
    except ValidationError as fault:
        raise _explain(fault) from None


def _explain(fault: ValidationError) -> KnobError:
    first = fault.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return KnobError(_unknown(where))
    if where in KNOBS:
        return KNOBS[where].error(first["input"])
    if where in TITLES:
        return KnobError(f"{where} must be a section with knobs in it, such as [{where}]")
    return first.get("ctx", {}).get("error") or KnobError(first["msg"])


def _unknown(name: str) -> str:
    name = name if len(name) <= 60 else name[:57] + "..."
    section = name.partition(".")[0]
    if section not in TITLES:
        known = ", ".join(TITLES)
        if "." not in name and (near := difflib.get_close_matches(section, TITLES, n=1, cutoff=0.7)):
            return f"unknown section {section}; did you mean {near[0]}?"
        close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"sections are: {known}"
        return f"unknown knob {name}; {hint}"
    fields = [found.field for found in KNOBS.values() if found.section == section]
    close = difflib.get_close_matches(name, KNOBS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"unknown knob {name}; {hint}{section} has: {', '.join(fields)}"
