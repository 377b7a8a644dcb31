"""The facts that are known about a run before it starts: which knobs change in it, and what follows from them for its
program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

from gradstudio.core.combinations import ACTING, DATASETS, PIXELS
from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import Value
from gradstudio.core.ranks_allowed import several
from gradstudio.core.sections.task_knobs import LAYERED, WITH_MUP

COPIED = 10  # symbols that the copy task repeats
RECURRENT = ("rnn", "lstm", "gru")
_GAINS = dict.fromkeys(("relu", "leaky_relu", "gelu", "silu"), ("math.sqrt(2)", math.sqrt(2))) | {
    "tanh": ("5 / 3", 5 / 3)
}


class WrittenNumber(float):
    """A number with its own notation in a program."""

    def __new__(cls, text: str, value: float) -> WrittenNumber:
        made = super().__new__(cls, value)
        made.text = text
        return made

    text: str


class Plan:
    """An experiment and its timeline. `states` has the values of all knobs at the start and after each change.

    Its facts are used only by the reference: a specialised program contains the resulting branch."""

    def __init__(
        self,
        experiment: Experiment,
        timeline: Iterable[Change] = (),
        threads: str = "1",
        *,
        measures: bool = True,
        tells_phases: bool = False,
    ) -> None:
        """`measures`: the program prints each step. `tells_phases`: it calls tell() with each part of a step."""
        self.experiment, self.threads, self.measures, self.tells_phases = (
            experiment,
            int(threads),
            measures,
            tells_phases,
        )
        self.timeline = tuple(effective(experiment, timeline))
        values = {variable(knob.name): value for knob, value in experiment.items()}
        self.states, self.start = [SimpleNamespace(**values)], SimpleNamespace(**values)
        for change, following in zip_longest(self.timeline, self.timeline[1:]):
            values[variable(change.knob)] = change.value
            if following is None or following.step > change.step:
                self.states.append(SimpleNamespace(**values))
            if change.step == 0 and change.knob == "accumulation.steps":  # batches are made before these changes
                self.start.accumulation_steps = change.value
        self.own = experiment.studio_file is not None
        self.ranks = several(experiment)
        self._note_passes()
        self._note_loss_scale()
        self._note_rates()
        self._note_task()
        self._note_model()
        self._note_ranks()

    def changes(self, *names: str) -> bool:
        """Return whether one of these knobs changes during the run."""
        return any(len({repr(getattr(state, name)) for state in self.states}) > 1 for name in names)

    def changing_knobs(self) -> list[str]:
        """Return the knobs that change, by their names in the program."""
        return [name for name in map(variable, KNOBS) if self.changes(name)]

    def ever(self, holds: Callable[[Any], bool]) -> bool:
        """Return whether a condition on the knobs holds at some step."""
        return any(holds(state) for state in self.states)

    def arguments(self, function: str) -> dict[str, Value]:
        """Return the arguments of a studio file's function that differ from their defaults."""
        file, given = self.experiment.studio_file, self.experiment.model_file
        return {name: given[name] for name in (file.reading.arguments[function] if file else ()) if name in given}

    def _note_passes(self) -> None:
        """Derive the facts about the micro-batches of a step and their gradients."""
        ever = self.ever
        self.many = ever(lambda knobs: knobs.accumulation_steps > 1)
        self.first_count: int = self.start.accumulation_steps
        self.climbs = ever(lambda knobs: knobs.optimizer_sam_rho > 0)
        self.clips = ever(lambda knobs: knobs.clipping_kind != "none")
        self.leaves_out = ever(lambda knobs: knobs.clipping_on_spike != "none")
        self.goes_back = ever(lambda knobs: knobs.clipping_on_spike == "rewind")
        self.compares_norms = ever(lambda knobs: knobs.clipping_kind in ("zclip", "adagc"))
        self.ever_keeps_gradients = ever(lambda knobs: knobs.mistakes_never_zero_grad)
        # something needs gradients before the first backward pass, which not every clipping rule does
        early = ever(lambda knobs: knobs.mistakes_clip_before_backward)
        self.keeps_gradients = early and ever(lambda knobs: knobs.clipping_kind in ("value", "agc"))
        # the gradient is needed without the clipping between two micro-batches
        between = ever(lambda knobs: knobs.mistakes_clip_each_micro_batch or knobs.clipping_kind == "per_example")
        self.keeps_unclipped = self.measures and self.clips and between
        self.clips_scaled = self.measures and self.clips and ever(lambda knobs: knobs.mistakes_clip_before_unscale)
        before_reduction = self.ranks and self.experiment.distributed.clip_before_all_reduce
        self.measured_before = self.keeps_unclipped or self.clips_scaled or before_reduction

    def _note_loss_scale(self) -> None:
        """Derive how the loss is scaled, and whether the scaler may skip an update."""
        ever, scaled = (
            self.ever,
            lambda knobs, kind: knobs.precision_dtype == "fp16" and knobs.precision_scaling == kind,
        )
        self.autocasts = ever(lambda knobs: knobs.precision_dtype != "fp32")
        self.dynamic = ever(lambda knobs: scaled(knobs, "dynamic"))
        self.static = ever(lambda knobs: scaled(knobs, "static"))
        self.rebuilds_scaler = self.changes("precision_dtype", "precision_scaling") and (self.dynamic or self.static)
        self.forgets_scaler = ever(lambda knobs: knobs.mistakes_never_update_scaler)
        self.may_skip = self.dynamic and ever(lambda knobs: not knobs.mistakes_step_without_scaler)

    def _note_rates(self) -> None:
        """Derive the course of the learning rate."""
        ever = self.ever
        self.falls = ever(lambda knobs: knobs.schedule_kind != "constant")
        self.rises = ever(lambda knobs: knobs.schedule_warmup_steps > (0 if self.falls else 1))
        self.scheduled = self.falls or self.rises
        self.asks_whether_skipped = self.may_skip and (
            self.scheduled or (self.measures and ever(lambda knobs: knobs.run_stop_on_nonfinite))
        )
        # a change affects what a scheduler must know from the start
        rates = ("optimizer_lr", "optimizer_adamw_lr", "optimizer_discriminator_factor")
        course = ("schedule_kind", "schedule_warmup_steps", "schedule_total_steps")
        self.live_schedule = self.changes(*rates, *course)
        # the discriminator of a gan has its own learning rate
        is_gan = self.experiment.model.kind == "gan"
        self.two_rates = is_gan and ever(lambda knobs: knobs.optimizer_discriminator_factor != 1)
        self.new_rates = self.changes(*rates[: 2 + self.two_rates]) and not self.scheduled
        # momentum that is switched on, for which RMSprop has no buffer
        begins = self.states[0].optimizer_momentum == 0 and self.changes("optimizer_momentum")
        self.adds_momentum = self.experiment.optimizer.kind == "rmsprop" and begins

    def _note_task(self) -> None:
        """Derive the shapes of the task, and the kind of its data and loss."""
        problem, loss = self.experiment.problem, self.experiment.loss
        task, steps = problem.task, problem.seq_len
        copied = COPIED + steps + 1 + COPIED
        self.time_steps = {"digits": 8, "copy": copied, "spirals": 1, "ring": 1, "pole": 1, "bandit": 1}.get(
            task, steps
        )
        features = {"digits": 8, "adding": 2, "copy": 10, "spirals": 2, "ring": 2, "pole": 4, "bandit": PIXELS}
        self.features = features.get(task, PIXELS // min(steps, PIXELS))  # for characters the program counts them
        self.outputs = {"adding": 1, "copy": 8, "spirals": 2, "ring": 1, "pole": 2}.get(task, 10)
        self.answers = {"copy": COPIED, "characters": self.time_steps}.get(task, 1)
        self.classes = 2 if task == "spirals" else 10
        self.last_class = self.classes - 1
        self.dataset = not self.own and task in DATASETS  # rather than new examples every time
        # micro-batches are parts of one large batch, which may be larger than the training set
        self.parts_of_large = self.many or (self.dataset and problem.imbalance != 1)
        goals = {"adding": "value", "ring": "points", **dict.fromkeys(ACTING, "reward")}
        self.loss = goals.get(task, "classes") if loss.kind == "auto" else loss.kind
        self.acts = self.loss == "reward"
        self.on_policy = problem.passes == 1  # the model drew the actions itself
        self.with_old_policy = self.acts and (
            not self.on_policy or self.ever(lambda knobs: knobs.loss_ratio_limit > 0 or knobs.loss_kl_penalty > 0)
        )
        self.adds_z_loss = self.experiment.applies("loss.z_loss") and self.ever(lambda knobs: knobs.loss_z_loss > 0)
        self.weighted = loss.class_weights == "balanced" and self.experiment.applies("loss.class_weights")
        # a micro-batch counts by its share of the weight of all examples
        normalized = self.ever(lambda knobs: not knobs.mistakes_normalize_each_micro_batch)
        self.shares = self.weighted and self.many and (self.climbs or normalized)

    def _note_model(self) -> None:
        """Derive the parts of the network."""
        model = self.experiment.model
        kind, normed = model.kind, model.norm != "none"
        self.layered = kind in LAYERED and (normed or model.residual)  # hidden layers have a class of their own
        self.normed = kind == "transformer" or (normed and kind in LAYERED)
        self.own_rnn = kind == "rnn" and (model.activation not in ("tanh", "relu") or self.layered)
        self.gated = kind in ("lstm", "gru")
        # a network without memory answers every time step by itself
        self.each_step = kind == "policy" or (kind in ("mlp", "cnn") and self.answers == self.time_steps > 1)
        # not in a policy with batch norm: a second pass would change its running statistics
        self.checkpoints = model.checkpointing and not (kind == "policy" and model.norm == "batch")
        sums = model.depth - 1 if kind in LAYERED and model.residual else 0
        self.residual_sums = 2 * model.depth if kind == "transformer" else sums
        self.factors = model.residual_scaling in ("rezero", "fixup")  # learned, one on each branch
        self.heads = math.gcd(model.width, 4)
        self.limits_logits = self.experiment.applies("clipping.qk_clip") and self.ever(
            lambda knobs: knobs.clipping_qk_clip > 0
        )
        wider = model.width != model.base_width and kind in WITH_MUP
        self.mup = model.parametrization == "mup" and wider and not self.own
        weights = {"transformer": "embedding.weight", **dict.fromkeys(RECURRENT, "weight_ih_l0")}
        self.first_weight = "rnn.0.weight_ih" if self.own_rnn else weights.get(kind, "hidden.0.weight")
        gain = None if self.gated else _GAINS.get(model.activation)
        self.own_gain = None if gain is None else WrittenNumber(*gain)  # of orthogonal weights before the activation
        self.draws_weights = (model.init, model.init_gain, model.initial_bias) != ("default", 1, 0)

    def _note_ranks(self) -> None:
        """Derive when the ranks reduce their gradients."""
        distributed, device = self.experiment.distributed, self.experiment.run.device
        self.first_gpu = int(device.partition(":")[2] or 0)
        self.sharded = self.ranks and distributed.clip_shards and self.clips
        self.joins = self.ranks and distributed.runs_out_at > 0 and distributed.join
        replicas = self.ranks and not self.sharded
        self.reduces_late = replicas and self.many and distributed.no_sync
        self.never_reduces = replicas and (distributed.never_synced or distributed.clip_before_all_reduce)
        self.holds_back = self.reduces_late or self.never_reduces


def effective(experiment: Experiment, timeline: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes that have an effect: not those to a value already in force, nor those after the end of the
    run."""
    in_force: dict[str, Value] = {}
    for change in timeline:
        if change.step < experiment.run.steps and in_force.get(change.knob, experiment[change.knob]) != change.value:
            in_force[change.knob] = change.value
            yield change


def variable(name: str) -> str:
    """Return 'clipping_max_norm' for clipping.max_norm."""
    return name.replace(".", "_")
