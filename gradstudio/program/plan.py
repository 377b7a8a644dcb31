"""What is known of a run before it starts: which knobs change in it, and what follows from them for its program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from gradstudio.core.combinations import LABELLED, PIXELS
from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS, LAYERED, WITH_MUP, Experiment
from gradstudio.core.knobs import Value
from gradstudio.core.ranks_allowed import several

COPIED = 10  # symbols that the copy task repeats
GOALS = {"adding": "value", "ring": "points", "pole": "reward"}  # all others: classes


RECURRENT = ("rnn", "lstm", "gru")


class Code(str):
    """An expression that the program has as it is."""


class Plan:
    """An experiment and its timeline. `states` has the values of all knobs at the start and after each change.

    Each property is a fact that the program's reference asks for; a specialised program does not."""

    def __init__(self, experiment: Experiment, timeline: Iterable[Change] = (), threads: str = "1") -> None:
        self.experiment = experiment
        self.threads: Any = Code(threads)
        self.timeline = tuple(effective(experiment, timeline))
        values = {variable(knob.name): value for knob, value in experiment.items()}
        self.states = [SimpleNamespace(**values)]
        for at, change in enumerate(self.timeline):
            values[variable(change.knob)] = change.value
            if at + 1 == len(self.timeline) or self.timeline[at + 1].step > change.step:
                self.states.append(SimpleNamespace(**values))
        # make_batches() reads the size of a step before the loop makes the changes of step 0
        at_first = [change for change in self.timeline if change.step == 0 and change.knob == "accumulation.steps"]
        self.start = SimpleNamespace(**vars(self.states[0]))
        for change in at_first:
            self.start.accumulation_steps = change.value

    def changes(self, *names: str) -> bool:
        """Return whether one of these knobs changes during the run."""
        return any(len({repr(getattr(state, name)) for state in self.states}) > 1 for name in names)

    def changing(self) -> list[str]:
        """Return the knobs that change, as the program calls them."""
        return [name for name in map(variable, KNOBS) if self.changes(name)]

    def ever(self, holds: Callable[[Any], bool]) -> bool:
        """Return whether something holds of the knobs at some step."""
        return any(holds(state) for state in self.states)

    def always(self, holds: Callable[[Any], bool]) -> bool:
        """Return whether something holds of the knobs at every step."""
        return all(holds(state) for state in self.states)

    def arguments(self, function: str) -> dict[str, Value]:
        """Return the arguments of a studio file's function that differ from their defaults."""
        file, given = self.experiment.studio_file, self.experiment.model_file
        return {name: given[name] for name in (file.reading.arguments[function] if file else ()) if name in given}

    # ---- the step

    @cached_property
    def own(self) -> bool:
        """Whether a studio file is trained."""
        return self.experiment.studio_file is not None

    @cached_property
    def many(self) -> bool:
        """Whether a step has several micro-batches."""
        return self.ever(lambda knobs: knobs.accumulation_steps > 1)

    @cached_property
    def first_count(self) -> int:
        """Number of micro-batches of step 0."""
        return self.start.accumulation_steps

    @cached_property
    def clips(self) -> bool:
        return self.ever(lambda knobs: knobs.clipping_kind != "none")

    @cached_property
    def climbs(self) -> bool:
        """Whether the weights are moved before the gradient is taken."""
        return self.ever(lambda knobs: knobs.optimizer_sam_rho > 0)

    @cached_property
    def autocasts(self) -> bool:
        return self.ever(lambda knobs: knobs.precision_dtype != "fp32")

    @cached_property
    def dynamic(self) -> bool:
        """Whether there is a GradScaler."""
        return self.ever(lambda knobs: knobs.precision_dtype == "fp16" and knobs.precision_scaling == "dynamic")

    @cached_property
    def static(self) -> bool:
        """Whether the loss is multiplied by a fixed scale."""
        return self.ever(lambda knobs: knobs.precision_dtype == "fp16" and knobs.precision_scaling == "static")

    @cached_property
    def falls(self) -> bool:
        return self.ever(lambda knobs: knobs.schedule_kind != "constant")

    @cached_property
    def scheduled(self) -> bool:
        """Whether the learning rate depends on the step."""
        return self.falls or self.ever(lambda knobs: knobs.schedule_warmup_steps > 1)

    @cached_property
    def live_schedule(self) -> bool:
        """Whether a change touches what a scheduler must know from the start."""
        rates = ("optimizer_lr", "optimizer_discriminator_factor")
        return self.changes(*rates, "schedule_kind", "schedule_warmup_steps", "schedule_total_steps")

    @cached_property
    def keeps_gradients(self) -> bool:
        """Whether something asks for gradients before the first backward pass, as not every rule of clipping does."""
        early = self.ever(lambda knobs: knobs.mistakes_clip_before_backward)
        return early and self.ever(lambda knobs: knobs.clipping_kind in ("value", "agc"))

    @cached_property
    def keeps_unclipped(self) -> bool:
        """Whether the gradient is needed without the clipping between two micro-batches."""
        return self.clips and self.ever(lambda knobs: knobs.mistakes_clip_each_micro_batch)

    @cached_property
    def clips_scaled(self) -> bool:
        return self.clips and self.ever(lambda knobs: knobs.mistakes_clip_before_unscale)

    @cached_property
    def may_skip(self) -> bool:
        """Whether the scaler may skip an update."""
        return self.dynamic and not self.always(lambda knobs: knobs.mistakes_step_without_scaler)

    @cached_property
    def asks_whether_skipped(self) -> bool:
        return self.may_skip and (self.scheduled or self.ever(lambda knobs: knobs.run_stop_on_nonfinite))

    @cached_property
    def forgets_scaler(self) -> bool:
        return self.ever(lambda knobs: knobs.mistakes_never_update_scaler)

    @cached_property
    def ever_keeps_gradients(self) -> bool:
        return self.ever(lambda knobs: knobs.mistakes_never_zero_grad)

    @cached_property
    def measured_before(self) -> bool:
        """Whether the norm is measured before the scale is taken out, or before the ranks have met."""
        early = self.ranks and self.experiment.distributed.clip_before_all_reduce
        return self.keeps_unclipped or self.clips_scaled or early

    @cached_property
    def rebuilds_scaler(self) -> bool:
        return self.changes("precision_dtype", "precision_scaling") and (self.dynamic or self.static)

    @cached_property
    def rises(self) -> bool:
        return self.ever(lambda knobs: knobs.schedule_warmup_steps > (0 if self.falls else 1))

    @cached_property
    def two_rates(self) -> bool:
        """Whether the discriminator of a gan has another learning rate than the generator."""
        other = self.ever(lambda knobs: knobs.optimizer_discriminator_factor != 1)
        return self.experiment.model.kind == "gan" and other

    @cached_property
    def new_rates(self) -> bool:
        """Whether the learning rate is changed where no schedule sets it."""
        factor = self.two_rates and self.changes("optimizer_discriminator_factor")
        return (self.changes("optimizer_lr") or factor) and not self.scheduled

    @cached_property
    def adds_momentum(self) -> bool:
        """Whether momentum is switched on during the run, for which RMSprop has no buffer."""
        begins = self.states[0].optimizer_momentum == 0 and self.changes("optimizer_momentum")
        return self.experiment.optimizer.kind == "rmsprop" and begins

    # ---- data and loss

    @cached_property
    def dataset(self) -> bool:
        """Whether there is a training set, rather than new examples every time."""
        return not self.own and self.experiment.problem.task in LABELLED

    @cached_property
    def parts_of_large(self) -> bool:
        """Whether micro-batches are parts of one large batch, which may be larger than the training set."""
        return self.many or (self.dataset and self.experiment.problem.imbalance != 1)

    @cached_property
    def classes(self) -> int:
        return 2 if self.experiment.problem.task == "spirals" else 10

    @cached_property
    def last_class(self) -> int:
        return self.classes - 1

    @cached_property
    def weighted(self) -> bool:
        """Whether the classes have weights."""
        return self.experiment.loss.class_weights == "balanced" and self.experiment.applies("loss.class_weights")

    @cached_property
    def shares(self) -> bool:
        """Whether a micro-batch counts by its share of the weight of all examples."""
        alone = self.always(lambda knobs: knobs.mistakes_normalize_each_micro_batch)
        return self.weighted and self.many and (self.climbs or not alone)

    @cached_property
    def loss(self) -> str:
        """Name of the loss: a naive one, or the goal of the task."""
        kind, task = self.experiment.loss.kind, self.experiment.problem.task
        return GOALS.get(task, "classes") if kind == "auto" else kind

    @cached_property
    def adds_z_loss(self) -> bool:
        return self.experiment.applies("loss.z_loss") and self.ever(lambda knobs: knobs.loss_z_loss > 0)

    # ---- the shapes of inputs and outputs

    @cached_property
    def time_steps(self) -> int:
        steps = self.experiment.problem.seq_len
        fixed = {"digits": 8, "copy": COPIED + steps + 1 + COPIED, "spirals": 1, "ring": 1, "pole": 1}
        return fixed.get(self.experiment.problem.task, steps)

    @cached_property
    def features(self) -> int:
        """Numbers in a time step; those of characters are known only when the program runs."""
        found = {"digits": 8, "adding": 2, "copy": 10, "spirals": 2, "ring": 2, "pole": 4}
        return found.get(self.experiment.problem.task, PIXELS // min(self.experiment.problem.seq_len, PIXELS))

    @cached_property
    def outputs(self) -> int:
        return {"adding": 1, "copy": 8, "spirals": 2, "ring": 1, "pole": 2}.get(self.experiment.problem.task, 10)

    @cached_property
    def answers(self) -> int:
        return {"copy": COPIED, "characters": self.time_steps}.get(self.experiment.problem.task, 1)

    # ---- the model

    @cached_property
    def layered(self) -> bool:
        """Whether hidden layers have a class of their own, for a norm or a residual."""
        model = self.experiment.model
        return model.kind in LAYERED and (model.norm != "none" or model.residual)

    @cached_property
    def normed(self) -> bool:
        model = self.experiment.model
        return model.kind == "transformer" or (model.norm != "none" and model.kind in LAYERED)

    @cached_property
    def own_rnn(self) -> bool:
        """Whether nn.RNN cannot do what the knobs ask for."""
        model = self.experiment.model
        return model.kind == "rnn" and (model.activation not in ("tanh", "relu") or self.layered)

    @cached_property
    def each_step(self) -> bool:
        """Whether a network without memory answers every time step by itself."""
        kind = self.experiment.model.kind
        return kind == "policy" or (kind in ("mlp", "cnn") and self.answers == self.time_steps > 1)

    @cached_property
    def checkpoints(self) -> bool:
        """Whether activations are computed again. Not in a policy with batch norm, where that would change its running
        statistics."""
        model = self.experiment.model
        return model.checkpointing and not (model.kind == "policy" and model.norm == "batch")

    @cached_property
    def residual_sums(self) -> int:
        """Number of residual sums between input and output of the network."""
        model = self.experiment.model
        if model.kind == "transformer":
            return 2 * model.depth
        return model.depth - 1 if model.kind in LAYERED and model.residual else 0

    @cached_property
    def factors(self) -> bool:
        """Whether each branch has a learned factor."""
        return self.experiment.model.residual_scaling in ("rezero", "fixup")

    @cached_property
    def heads(self) -> int:
        return math.gcd(self.experiment.model.width, 4)

    @cached_property
    def mup(self) -> bool:
        """Whether the width changes the parametrization."""
        model = self.experiment.model
        other = model.width != model.base_width
        return model.parametrization == "mup" and model.kind in WITH_MUP and other and not self.own

    @cached_property
    def first_weight(self) -> str:
        """What is in the name of the weight that reads the inputs."""
        if self.own_rnn:
            return "rnn.0.weight_ih"
        of_kind = {"transformer": "embedding.weight", **dict.fromkeys(RECURRENT, "weight_ih_l0")}
        return of_kind.get(self.experiment.model.kind, "hidden.0.weight")

    @cached_property
    def gated(self) -> bool:
        return self.experiment.model.kind in ("lstm", "gru")

    @cached_property
    def own_gain(self) -> Code | None:
        """The gain of orthogonal weights before the activation; None where it is 1."""
        gains = dict.fromkeys(("relu", "leaky_relu", "gelu", "silu"), "math.sqrt(2)") | {"tanh": "5 / 3"}
        gain = gains.get(self.experiment.model.activation)
        return None if gain is None or self.gated else Code(gain)

    @cached_property
    def draws_weights(self) -> bool:
        """Whether weights or biases are drawn in another way than torch's."""
        model = self.experiment.model
        return (model.init, model.init_gain, model.initial_bias) != ("default", 1, 0)

    # ---- ranks

    @cached_property
    def ranks(self) -> bool:
        return several(self.experiment)

    @cached_property
    def first_gpu(self) -> int:
        """Number of the GPU of rank 0."""
        return int(self.experiment.run.device.partition(":")[2] or 0)

    @cached_property
    def sharded(self) -> bool:
        """Whether each rank holds its shard of the weights and gradients alone."""
        return self.ranks and self.experiment.distributed.clip_shards and self.clips

    @cached_property
    def joins(self) -> bool:
        distributed = self.experiment.distributed
        return self.ranks and distributed.runs_out_at > 0 and distributed.join

    @cached_property
    def reduces_late(self) -> bool:
        """Whether all micro-batches but the last stand within no_sync()."""
        distributed = self.experiment.distributed
        return self.ranks and not self.sharded and self.many and distributed.no_sync

    @cached_property
    def never_reduces(self) -> bool:
        """Whether every micro-batch stands within no_sync()."""
        distributed = self.experiment.distributed
        never = distributed.never_synced or distributed.clip_before_all_reduce
        return self.ranks and not self.sharded and never

    @cached_property
    def holds_back(self) -> bool:
        """Whether there are micro-batches within no_sync()."""
        return self.reduces_late or self.never_reduces


def effective(experiment: Experiment, timeline: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes that have an effect: not those to a value in force, nor those after the end of the run."""
    in_force: dict[str, Value] = {}
    for change in timeline:
        if change.step < experiment.run.steps and in_force.get(change.knob, experiment[change.knob]) != change.value:
            in_force[change.knob] = change.value
            yield change


def variable(name: str) -> str:
    """Return 'clipping_max_norm' for clipping.max_norm."""
    return name.replace(".", "_")
