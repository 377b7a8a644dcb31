"""The engine trains as plain PyTorch does: the script of an experiment prints the numbers of its run.

To the last bit on the CPU, where both do the same operations in the same order; within 1e-5 in fp16, where a norm can
be measured before or after the scale is taken out of it. After a NaN or Inf as before it."""

from __future__ import annotations

import contextlib
import io
import math
import os
import random
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from pairs import pairs
from ruff.__main__ import find_ruff_bin
from waiting import PATIENCE

from gradstudio.core import presets
from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS, Experiment, parse_assignment
from gradstudio.core.knobs import Knob, KnobError, Value
from gradstudio.core.planned_changes import read_timeline
from gradstudio.engine.passes import forward_backward
from gradstudio.engine.trainer import Trainer
from gradstudio.program import run_reference, script
from gradstudio.session.files.output import OutputError, write_program

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about what a mistake does

STEPS = 6


@pytest.fixture(autouse=True)
def passes_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first of a kind, so that the runs are made of repeated ones too."""
    monkeypatch.setattr(forward_backward, "PATIENCE", 1)


SMALL = {
    "run.steps": STEPS, "run.device": "cpu", "model.width": 12, "model.depth": 2, "problem.batch_size": 8,
    "problem.seq_len": 4,
}  # fmt: skip

Figures = list[tuple[float, float]]

# Every entry of every table at least once (test_the_matrix_is_whole), and what interacts in pairs. STEP:knob=value is a
# live change.
CASES = """
model.kind=mlp problem.task=spirals
model.kind=mlp problem.task=adding
model.kind=mlp problem.task=copy
model.kind=mlp problem.task=characters
model.kind=mlp problem.task=characters problem.seq_len=1
model.kind=mlp model.checkpointing=true model.norm=batch model.norm_position=post model.residual=true model.depth=4
model.kind=rnn problem.task=sequential_digits
model.kind=rnn model.depth=3 model.norm=layer model.residual=true
model.kind=rnn model.norm=batch model.norm_position=post model.activation=gelu model.residual=true
model.kind=rnn model.activation=silu model.norm=batch model.checkpointing=true
model.kind=lstm problem.task=adding model.init=he model.initial_bias=1
model.kind=lstm problem.task=copy model.init=lsuv model.init_gain=0.8
model.kind=gru problem.task=characters model.init=lsuv
model.kind=cnn model.norm=batch model.residual=true
model.kind=cnn model.norm=group model.residual=true
model.kind=rnn model.norm=rms model.norm_position=post
model.kind=gan problem.task=ring model.norm=rms
model.norm=group model.width=16 clipping.kind=per_module
model.kind=rnn model.norm=group
model.kind=cnn model.norm=layer model.norm_position=post problem.task=copy model.checkpointing=true
model.kind=cnn model.init=lsuv model.norm=batch model.activation=leaky_relu
model.kind=cnn clipping.kind=agc clipping.agc_factor=0.1
model.kind=transformer
model.kind=transformer model.qk_norm=true clipping.kind=agc
model.kind=transformer clipping.qk_clip=0.05 accumulation.steps=2 optimizer.kind=adamw optimizer.lr=0.1
model.kind=transformer clipping.qk_clip=0.1 problem.task=characters precision.dtype=bf16 precision.weights=bf16 model.init=lsuv
2:clipping.qk_clip=0.02 4:clipping.qk_clip=0 model.kind=transformer optimizer.kind=muon model.checkpointing=true 3:precision.dtype=bf16
clipping.qk_clip=0.02 model.kind=transformer model.parametrization=mup model.base_width=64 optimizer.sam_rho=0.5 problem.task=characters
clipping.qk_clip=0.01 model.kind=transformer precision.dtype=fp16 precision.init_scale=1e30 run.steps=9 accumulation.steps=2
clipping.qk_clip=0.01 model.kind=transformer clipping.on_spike=rewind run.steps=30 problem.outlier_every=22 optimizer.lr=0.01
clipping.on_spike=skip clipping.spike_deviations=5 run.steps=30 problem.outlier_every=22 optimizer.kind=adam schedule.kind=cosine schedule.total_steps=28
clipping.on_spike=rewind run.steps=30 problem.outlier_every=22 optimizer.momentum=0.9 clipping.kind=norm optimizer.lr=0.01
2:clipping.on_spike=rewind 27:clipping.on_spike=none run.steps=30 problem.outlier_every=13 problem.outlier_scale=100 optimizer.kind=rmsprop
clipping.on_spike=skip run.steps=28 problem.outlier_every=22 precision.dtype=fp16 precision.scaling=dynamic schedule.warmup_steps=26
model.kind=transformer model.qk_norm=true problem.task=characters model.norm_position=post model.init=lsuv precision.dtype=bf16
model.parametrization=mup model.base_width=4 optimizer.kind=adam optimizer.lr=0.01 3:optimizer.lr=0.03 model.init=lsuv
model.parametrization=mup model.base_width=64 model.kind=transformer problem.task=characters model.qk_norm=true schedule.kind=cosine schedule.total_steps=5
model.parametrization=mup model.base_width=3 model.kind=rnn model.norm=layer model.depth=3 schedule.warmup_steps=3 4:optimizer.lr=0.05
model.parametrization=mup model.base_width=24 model.kind=gru problem.task=adding optimizer.kind=rmsprop optimizer.lr=0.01 2:optimizer.momentum=0.5
model.parametrization=mup model.base_width=4 model.kind=policy problem.task=pole optimizer.momentum=0.9 2:optimizer.weight_decay=0.1
precision.weights=bf16 optimizer.kind=adam optimizer.lr=0.001 model.init=he
precision.weights=bf16_stochastic precision.dtype=fp16 accumulation.steps=2 clipping.kind=norm mistakes.clip_after_step=true
precision.weights=bf16_stochastic problem.task=ring model.kind=gan optimizer.momentum=0.9 run.seed=7
model.kind=transformer model.residual_scaling=rezero clipping.kind=agc model.init=he
model.kind=transformer model.residual_scaling=fixup problem.task=characters optimizer.lr=0.5 model.initial_bias=0.2
model.kind=transformer model.residual_scaling=deepnorm model.norm_position=post model.init=xavier
model.residual_scaling=rezero model.residual=true model.depth=4 model.init=he model.norm=batch model.checkpointing=true
model.residual_scaling=deepnorm model.residual=true model.depth=4 model.norm=layer model.norm_position=post model.init=lsuv
model.kind=rnn model.residual_scaling=rezero model.residual=true model.depth=3
model.kind=rnn model.residual_scaling=deepnorm model.residual=true model.depth=3 model.init=lsuv
model.kind=gan problem.task=ring model.residual_scaling=deepnorm model.residual=true model.depth=3 model.init=he
model.kind=cnn model.residual_scaling=rezero model.residual=true precision.dtype=bf16
model.norm=batch model.norm_momentum=0.01 problem.task=pole model.kind=policy problem.baseline=true problem.noise=0.01
model.kind=rnn model.norm=batch model.norm_momentum=1 problem.label_noise=0.3 problem.task=sequential_digits
model.kind=cnn model.norm=batch model.norm_momentum=0.5 problem.label_noise=0.5 accumulation.steps=2
problem.task=spirals problem.label_noise=0.2 loss.kind=naive_variance loss.eps=0.1
loss.z_loss=0.01 3:loss.z_loss=0.1 precision.dtype=bf16
loss.z_loss=0.01 problem.task=copy model.kind=gru loss.weight=2
2:loss.z_loss=1 problem.task=characters model.kind=lstm
3:problem.nan_every=4 run.stop_on_nonfinite=false
problem.nan_every=2 problem.skip_batches=1 problem.outlier_every=2 accumulation.steps=2 2:problem.skip_batches=2
model.kind=transformer model.norm_position=post problem.task=characters model.init=lsuv
model.kind=transformer model.width=13 problem.task=copy model.checkpointing=true model.init=orthogonal model.activation=tanh
problem.task=ring model.kind=gan
problem.task=ring model.kind=gan model.norm=layer model.residual=true model.checkpointing=true clipping.kind=agc
problem.task=ring model.kind=gan model.init=lsuv accumulation.steps=2 mistakes.clip_each_micro_batch=true clipping.kind=norm
problem.task=ring model.kind=gan optimizer.discriminator_factor=4 optimizer.kind=adam schedule.kind=cosine schedule.total_steps=5
problem.task=ring model.kind=gan 2:optimizer.discriminator_factor=3 4:optimizer.lr=0.05 optimizer.momentum=0.9
problem.task=ring model.kind=gan 3:optimizer.discriminator_factor=0.5 schedule.warmup_steps=4 optimizer.kind=rmsprop
problem.task=pole model.kind=policy
problem.task=pole model.kind=policy model.norm=batch accumulation.steps=3 problem.noise=0.01 problem.input_scale=2
problem.task=pole model.kind=policy model.init=lsuv model.checkpointing=true
problem.task=pole model.kind=policy problem.passes=3 problem.baseline=true problem.normalize=true loss.ratio_limit=0.2 3:loss.entropy_bonus=0.1
problem.task=pole model.kind=policy accumulation.steps=2 problem.passes=4 2:loss.kl_penalty=2 3:accumulation.steps=1 precision.dtype=bf16
problem.task=bandit model.kind=policy model.init=lsuv problem.noise=0.1 optimizer.lr=1 problem.label_noise=0.2
problem.task=bandit model.kind=policy problem.samples=4 problem.baseline=true problem.normalize=true problem.passes=2 2:loss.ratio_limit=0.1 model.norm=batch
problem.task=bandit model.kind=policy problem.reward_flaw=2 loss.kl_penalty=1 problem.passes=3 accumulation.steps=2 problem.skip_batches=2 optimizer.kind=adam
problem.task=bandit model.kind=policy problem.batch_size=1024 accumulation.steps=2 problem.scaling=raw 3:loss.kl_penalty=0.1 4:accumulation.steps=1
model.init=he model.init_gain=1.3 model.initial_bias=0.1
model.init=xavier model.kind=transformer model.init_gain=0.7
model.init=orthogonal model.activation=tanh model.kind=rnn model.initial_bias=0.2
model.init=lsuv model.init_gain=0.5 model.norm=batch model.depth=4
model.init=lsuv model.kind=rnn problem.task=copy model.depth=3
model.init=lsuv model.kind=rnn model.norm=layer model.residual=true
model.init=zeros model.activation=sigmoid
model.init=normal model.init_gain=2
model.init_gain=1.5 model.initial_bias=-0.5 model.kind=gru
loss.kind=naive_log 3:loss.eps=1e-7
loss.kind=naive_log problem.task=characters model.kind=gru loss.eps=1e-7
loss.kind=naive_division loss.eps=0.5 problem.task=adding
loss.kind=naive_sqrt loss.eps=1e-12
loss.kind=naive_exp problem.scaling=raw problem.input_scale=100
loss.kind=naive_exp problem.task=copy model.kind=gru loss.eps=1e-6
loss.kind=naive_variance 2:loss.eps=0.01
loss.kind=naive_variance problem.task=adding loss.eps=0.01 model.kind=rnn
problem.noise=0.3 problem.scaling=unit problem.outlier_every=2 problem.input_scale=3 accumulation.steps=2
problem.task=spirals problem.noise=0.1 problem.input_scale=2 4:problem.outlier_every=1 5:problem.outlier_scale=10
problem.skip_batches=5
problem.skip_batches=150 problem.noise=0.3 problem.outlier_every=3 problem.outlier_scale=10 problem.batch_size=20
problem.skip_batches=3 problem.task=pole model.kind=policy model.norm=batch accumulation.steps=2 problem.noise=0.01
problem.skip_batches=2 problem.task=spirals 0:accumulation.steps=3 2:accumulation.steps=1
3:problem.skip_batches=5
0:problem.skip_batches=2 problem.task=copy model.kind=gru
1:problem.skip_batches=1 4:problem.skip_batches=4 problem.task=characters problem.noise=0.1 accumulation.steps=3
problem.skip_batches=1 2:problem.skip_batches=3 3:problem.skip_batches=5 problem.task=adding problem.outlier_every=2 5:problem.outlier_scale=10
2:problem.skip_batches=2 2:accumulation.steps=3 4:accumulation.steps=1 4:problem.skip_batches=3 problem.batch_size=300 problem.noise=0.1
2:accumulation.steps=3 2:problem.skip_batches=4 1:problem.outlier_every=4 problem.noise=0.1 problem.outlier_scale=10 optimizer.lr=0.001
1:problem.skip_batches=2 3:problem.skip_batches=3 problem.task=pole model.kind=policy accumulation.steps=2 problem.noise=0.01
2:problem.skip_batches=9 2:problem.skip_batches=0 4:problem.skip_batches=1 problem.task=ring model.kind=gan
problem.skip_batches=4 0:problem.skip_batches=1 problem.outlier_every=1 problem.outlier_scale=10
1:problem.skip_batches=2 precision.dtype=bf16 accumulation.steps=2 mistakes.drop_last_micro_batches=true mistakes.zero_grad_each_micro_batch=true
optimizer.kind=adam optimizer.lr=0.01 optimizer.beta1=0.8 optimizer.beta2=0.9 optimizer.weight_decay=0.1
optimizer.kind=adam 2:optimizer.lr=0.3 3:optimizer.beta1=0.5 4:optimizer.eps=0.01
optimizer.kind=adamw optimizer.lr=0.01
optimizer.kind=lion optimizer.lr=0.001 optimizer.weight_decay=0.1 model.kind=cnn 2:optimizer.lr=0.01 3:optimizer.beta1=0.5 4:optimizer.beta2=0.9
optimizer.kind=lion optimizer.lr=0.001 precision.dtype=fp16 schedule.kind=wsd schedule.total_steps=5
optimizer.kind=muon optimizer.lr=0.02 model.depth=3 optimizer.beta1=0.95 optimizer.weight_decay=0.1 schedule.kind=wsd schedule.total_steps=6
optimizer.kind=muon optimizer.lr=0.02 model.kind=cnn model.depth=4 model.norm=batch clipping.kind=norm 3:optimizer.lr=0.1 4:optimizer.eps=0.01 5:optimizer.adamw_lr=0.1
optimizer.kind=muon model.kind=transformer problem.task=characters schedule.warmup_steps=3 2:optimizer.adamw_lr=0.01 accumulation.steps=2 precision.weights=bf16
optimizer.kind=muon optimizer.adamw_lr=0.003 model.depth=1 precision.dtype=fp16
optimizer.kind=stable_adamw optimizer.lr=0.01 optimizer.weight_decay=0.1 problem.outlier_every=3 model.kind=rnn 4:optimizer.beta2=0.9
optimizer.kind=stable_adamw optimizer.lr=0.01 accumulation.steps=2 optimizer.eps=0.001 model.kind=cnn 2:optimizer.eps=0.1 3:optimizer.lr=0.1
optimizer.kind=schedule_free optimizer.lr=0.01 optimizer.weight_decay=0.1 schedule.warmup_steps=3 model.kind=cnn 4:optimizer.beta1=0.5
optimizer.kind=schedule_free optimizer.lr=0.01 accumulation.steps=2 2:optimizer.lr=0 3:optimizer.lr=0.1 model.kind=rnn precision.dtype=bf16
optimizer.sam_rho=0.05 model.kind=cnn model.norm=batch clipping.kind=norm clipping.max_norm=0.1
optimizer.sam_rho=0.1 accumulation.steps=3 problem.outlier_every=2 gradients.noise_std=0.01 optimizer.kind=adam optimizer.lr=0.01
2:optimizer.sam_rho=0.2 4:optimizer.sam_rho=0.5 accumulation.steps=2 precision.dtype=fp16 clipping.kind=norm
optimizer.sam_rho=0.1 3:optimizer.sam_rho=0 problem.task=ring model.kind=gan precision.weights=bf16_stochastic
optimizer.sam_rho=0.1 problem.task=pole model.kind=policy precision.dtype=fp16 precision.scaling=static precision.init_scale=128
optimizer.sam_rho=0.1 accumulation.steps=3 mistakes.never_zero_grad=true mistakes.drop_last_micro_batches=true 2:accumulation.steps=1
optimizer.sam_rho=1 accumulation.steps=2 clipping.kind=agc mistakes.clip_each_micro_batch=true mistakes.zero_grad_each_micro_batch=true
optimizer.sam_rho=0.1 accumulation.steps=2 clipping.kind=norm mistakes.unscaled_accumulation=true mistakes.scheduler_each_micro_batch=true schedule.warmup_steps=9
optimizer.kind=rmsprop optimizer.lr=0.01 3:optimizer.momentum=0.5
optimizer.momentum=0.9 2:optimizer.lr=0.3 3:optimizer.momentum=0.5 4:optimizer.weight_decay=0.2
schedule.warmup_steps=4 schedule.kind=cosine schedule.total_steps=5
schedule.warmup_steps=4 3:schedule.kind=linear 3:schedule.total_steps=7 4:schedule.warmup_steps=0 4:optimizer.lr=0.5
schedule.kind=linear schedule.total_steps=4
schedule.kind=exponential schedule.total_steps=4
schedule.kind=one_cycle schedule.total_steps=5
schedule.warmup_steps=2 schedule.kind=one_cycle schedule.total_steps=5 3:schedule.kind=exponential
accumulation.steps=3 problem.batch_size=600 problem.noise=0.1 2:accumulation.steps=2 4:accumulation.steps=1
accumulation.steps=2 problem.batch_size=300 problem.task=spirals problem.noise=0.1
problem.skip_batches=3 accumulation.steps=2 problem.batch_size=3 problem.task=adding problem.noise=0.1 problem.input_scale=2
schedule.warmup_steps=1 schedule.kind=linear schedule.total_steps=4
schedule.warmup_steps=3 schedule.kind=cosine schedule.total_steps=2
accumulation.steps=3 clipping.kind=norm clipping.max_norm=0.1 2:accumulation.steps=1 4:clipping.kind=value 4:clipping.clip_value=0.001
clipping.kind=norm clipping.max_norm=0.1 3:clipping.max_norm=0.01 optimizer.kind=adam
clipping.kind=value clipping.clip_value=0.001 model.kind=rnn
clipping.kind=agc model.kind=transformer
clipping.kind=per_tensor clipping.max_norm=0.05 model.kind=lstm problem.task=adding
clipping.kind=per_tensor 3:clipping.kind=agc
clipping.kind=per_module clipping.max_norm=0.05 model.kind=transformer 3:clipping.kind=per_network
clipping.kind=per_network clipping.max_norm=0.05 problem.task=ring model.kind=gan
clipping.kind=per_example clipping.max_norm=0.5 problem.batch_size=1 accumulation.steps=3 gradients.noise_std=0.01
2:clipping.kind=per_example clipping.max_norm=0.2 problem.batch_size=1 accumulation.steps=3 model.kind=gru 4:accumulation.steps=1
clipping.kind=per_example clipping.max_norm=0.2 problem.batch_size=1 accumulation.steps=2 optimizer.sam_rho=0.05 precision.dtype=bf16
clipping.kind=zclip run.steps=40 problem.outlier_every=13 model.width=4
clipping.kind=zclip clipping.zclip_deviations=0.5 run.steps=32 precision.dtype=fp16 precision.init_scale=1e30 3:clipping.kind=none 5:clipping.kind=zclip 28:clipping.zclip_deviations=1
clipping.kind=adagc clipping.max_norm=0.5 run.steps=115 model.width=4 problem.outlier_every=37 optimizer.kind=adam 110:clipping.adagc_factor=0.9
clipping.kind=adagc accumulation.steps=2 mistakes.clip_each_micro_batch=true run.steps=54 model.width=4 model.kind=rnn
gradients.centralize=true gradients.noise_std=0.01 model.kind=cnn
2:gradients.centralize=true 3:gradients.noise_std=0.01 model.kind=rnn model.norm=batch
loss.weight=0.001 3:loss.weight=100
precision.dtype=bf16 model.kind=transformer optimizer.kind=adamw
precision.dtype=fp16 model.kind=cnn model.norm=batch
precision.dtype=fp16 precision.init_scale=1e30 precision.backoff_factor=0.0001 schedule.warmup_steps=5
precision.dtype=fp16 precision.scaling=static precision.init_scale=1000
precision.dtype=fp16 precision.scaling=none
precision.dtype=fp16 precision.growth_interval=2 precision.growth_factor=3 accumulation.steps=2 clipping.kind=norm
2:precision.dtype=fp16 4:precision.scaling=static 5:precision.dtype=bf16
precision.dtype=fp16 3:precision.growth_interval=1
run.stop_on_nonfinite=false optimizer.lr=1e6
run.deterministic=false run.seed=11
run.memory_budget=100000
clipping.kind=agc mistakes.clip_before_backward=true mistakes.never_zero_grad=true
problem.imbalance=20
problem.task=spirals problem.imbalance=5 problem.label_noise=0.2 loss.class_weights=balanced
problem.imbalance=1000 problem.batch_size=1024 problem.noise=0.1 loss.class_weights=balanced loss.weight=3
loss.class_weights=balanced problem.imbalance=8 accumulation.steps=3
loss.class_weights=balanced problem.imbalance=8 problem.batch_size=1 accumulation.steps=8 run.steps=40 optimizer.kind=adam
loss.class_weights=balanced problem.task=sequential_digits model.kind=rnn 1:accumulation.steps=3 4:accumulation.steps=1
loss.class_weights=balanced accumulation.steps=3 mistakes.normalize_each_micro_batch=true
loss.class_weights=balanced accumulation.steps=3 problem.outlier_every=2 1:problem.skip_batches=3 2:mistakes.normalize_each_micro_batch=true 4:mistakes.normalize_each_micro_batch=false
loss.class_weights=balanced accumulation.steps=4 precision.dtype=bf16 mistakes.drop_last_micro_batches=true mistakes.scheduler_each_micro_batch=true schedule.warmup_steps=9
loss.class_weights=balanced accumulation.steps=3 optimizer.sam_rho=0.1 mistakes.normalize_each_micro_batch=true
loss.class_weights=balanced accumulation.steps=3 optimizer.sam_rho=0.1 mistakes.unscaled_accumulation=true 2:optimizer.sam_rho=0
precision.dtype=fp16 loss.weight=1e30 schedule.warmup_steps=5 mistakes.never_update_scaler=true
precision.dtype=fp16 mistakes.never_update_scaler=true mistakes.step_without_scaler=true 1:precision.scaling=static 2:precision.scaling=dynamic
accumulation.steps=3 clipping.kind=norm clipping.max_norm=0.1 mistakes.divide_each_micro_batch=true mistakes.clip_each_micro_batch=true
accumulation.steps=2 mistakes.divide_each_micro_batch=true mistakes.unscaled_accumulation=true 3:mistakes.divide_each_micro_batch=false
accumulation.steps=2 clipping.kind=norm clipping.max_norm=0.1 mistakes.clip_each_micro_batch=true mistakes.never_zero_grad=true mistakes.zero_grad_each_micro_batch=true
""".strip().splitlines()
MISTAKES = [name for name in KNOBS if name.startswith("mistakes.")]
AROUND_A_MISTAKE = (
    "",
    "precision.dtype=fp16",
    "precision.dtype=fp16 precision.scaling=static precision.init_scale=128",
    "model.kind=rnn clipping.kind=value",
)
CASES += [
    f"accumulation.steps=3 clipping.kind=norm clipping.max_norm=0.1 schedule.warmup_steps=9 {around} {switched}".replace(
        "  ", " "
    )
    for mistake, around, switch in pairs(MISTAKES, AROUND_A_MISTAKE, ("{0}=true", "2:{0}=true 4:{0}=false"))
    for switched in [switch.format(mistake)]
]


def with_a_new_pass(cases: list[str]) -> set[str]:
    """The cases in which a pass has something that it has in no case before, with this model; and those with a live
    change, which may void a recording. To record a pass takes most of the time of a case."""
    known: set[tuple[str, str]] = set()
    found = set()
    for case in cases:
        words = case.split()
        kind = next((word for word in words if word.startswith("model.kind=")), "")
        new = {
            (kind if word.startswith("model.") else "", word)
            for word in words
            if word.startswith(("model.", "loss.", "precision.", "accumulation.", "mistakes.", "optimizer.sam_rho"))
            and not word.startswith(("model.init", "model.base_width"))
        }
        if new - known or any(word[0].isdigit() for word in words):
            found.add(case)
            known |= new
    return found


RECORDED = with_a_new_pass(CASES)


def read(case: str) -> tuple[Experiment, tuple[Change, ...]]:
    """The experiment and timeline of a line of CASES."""
    live = [part for part in case.split() if ":" in part.partition("=")[0]]
    experiment = Experiment().with_values(SMALL).with_texts([part for part in case.split() if part not in live])
    entries = []
    for part in live:
        step, _, assignment = part.partition(":")
        name, value = parse_assignment(assignment)
        entries.append({"step": int(step), "knob": name, "value": value})
    return experiment, read_timeline(entries, experiment)


def engine(experiment: Experiment, timeline: tuple[Change, ...]) -> tuple[Figures, str]:
    """Loss and norm of every step, and the error that ended the run."""
    trainer, figures, due = Trainer(experiment), [], list(timeline)
    steps = trainer.steps()
    while len(figures) < experiment.run.steps:
        while due and due[0].step <= len(figures):
            change = due.pop(0)
            if trainer.experiment[change.knob] != change.value:
                trainer.change(change.knob, change.value)
        try:
            row = next(steps)
        except RuntimeError as fault:
            return figures, str(fault)
        figures.append((row.loss, float(f"{row.grad_norm:.9g}")))
        if row.went_nonfinite and trainer.experiment.run.stop_on_nonfinite:
            break
    return figures, ""


def plain(program: str) -> tuple[Figures, str]:
    """What the script prints, and the error that ended it."""
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(program, "train.py", "exec"), {"__name__": "__main__"})
        except RuntimeError as fault:
            error = str(fault)
    figures = []
    for number, line in enumerate(printed.getvalue().splitlines()):
        step, loss, norm = line.split()
        assert int(step) == number
        figures.append((float(loss), float(norm)))
    return figures, error


def is_exact(experiment: Experiment, timeline: tuple[Change, ...]) -> bool:
    """Whether both do the same operations in the same order."""
    return experiment.precision.dtype != "fp16" and all(change.value != "fp16" for change in timeline)


RULES = (
    "--isolated --no-cache --select E,F,W,I,B,UP --ignore E501,B905,B023,UP015 --line-length 150 --target-version py311"
)


def clean(program: str) -> str:
    """The program, which has no name that is not there, no import that is not used, no line that Python would warn
    about."""
    words = [find_ruff_bin(), "check", *RULES.split(), "--stdin-filename", "train.py", "-"]
    done = subprocess.run(words, input=program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return program


def compare(experiment: Experiment, timeline: tuple[Change, ...], program: str) -> None:
    """The run and its script give the same numbers and end in the same way."""
    exact = is_exact(experiment, timeline)
    (measured, error), (printed, other_error) = engine(experiment, timeline), plain(program)
    assert error == other_error
    for row, line in zip_longest(measured, printed):
        assert row is not None and line is not None, "one ended before the other"
        for one, other in zip(row, line, strict=True):
            if not math.isfinite(one):
                assert repr(one) == repr(other)
            elif exact:
                assert one == other
            else:
                assert one == pytest.approx(other, rel=1e-5, abs=0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_prints_the_numbers_of_the_run(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if case not in RECORDED:
        monkeypatch.setattr(forward_backward, "PATIENCE", math.inf)
    compare(*read(case), clean(script(*read(case), title=case)))


@pytest.mark.parametrize("case", [case for case in CASES if "never_update_scaler" not in case][::30], ids=str)
def test_the_reference_runs_as_it_is(case: str) -> None:
    """With every branch in it, it prints what the program does that has only those that are taken."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_reference(*read(case))
        wanted, rest = printed.getvalue(), printed.tell()
        exec(compile(script(*read(case)), "train.py", "exec"), {"__name__": "__main__"})
    assert wanted and printed.getvalue()[rest:] == wanted


def test_the_reference_asks_for_knobs_that_there_are() -> None:
    folder = Path(sys.modules[script.__module__].__file__ or "").parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    asked = set(re.findall(r"\bknobs\.(\w+_\w+)", text)) - {"section_name"}
    assert asked and asked <= {name.replace(".", "_") for name in KNOBS}


def test_the_matrix_is_whole() -> None:
    """Every choice of every knob, and every other knob with a value that is not its default. Those of the ranks, whose
    programs need torchrun, are in test_ranks.py."""
    seen = {
        (part.partition("=")[0].rpartition(":")[2], part.partition("=")[2]) for case in CASES for part in case.split()
    }
    named = {name for name, _ in seen} | set(SMALL)
    for knob in [knob for knob in KNOBS.values() if knob.section != "distributed"]:
        assert knob.name in named, f"no case sets {knob.name}"
        for choice in knob.choices:
            assert choice == knob.default or (knob.name, choice) in seen, f"no case has {knob.name}={choice}"


# ---- experiments that nobody thought of

VALUES: dict[str, tuple[Value, ...]] = {
    "problem.seq_len": (1, 2, 8, 16), "problem.batch_size": (2, 5, 8), "model.depth": (1, 2, 3),
    "model.width": (4, 12, 13),
    "optimizer.lr": (0.01, 0.1, 1.0), "run.seed": (0, 3, 99), "accumulation.steps": (1, 2, 3),
    "clipping.max_norm": (0.01, 0.1, 1.0),
    "clipping.spike_deviations": (2.0, 6.0), "clipping.clip_value": (1e-3, 0.1), "clipping.agc_factor": (0.01, 0.1),
    "clipping.qk_clip": (0.0, 0.05, 1.0), "clipping.zclip_deviations": (0.5, 2.5), "clipping.adagc_factor": (1.05, 2.0),
    "precision.init_scale": (1.0, 128.0, 1000.0, 65536.0, 1e30),
    "precision.growth_factor": (2.0, 3.0), "precision.backoff_factor": (0.5, 0.1),
    "precision.growth_interval": (1, 2, 2000),
    "schedule.warmup_steps": (0, 1, 3, 9), "schedule.total_steps": (3, 7, 1000), "optimizer.momentum": (0.0, 0.9),
    "optimizer.beta1": (0.9, 0.5, 0.0), "optimizer.beta2": (0.999, 0.9), "optimizer.eps": (1e-8, 1e-3),
    "optimizer.weight_decay": (0.0, 0.01), "optimizer.discriminator_factor": (1.0, 4.0, 0.3),
    "gradients.noise_std": (0.0, 0.01), "loss.eps": (0.0, 1e-7, 0.1), "loss.weight": (1.0, 0.01, 30.0),
    "model.init_gain": (1.0, 0.5, 1.7),
    "model.initial_bias": (0.0, 0.3), "problem.input_scale": (1.0, 2.5), "problem.noise": (0.0, 0.2),
    "problem.outlier_every": (0, 2, 3),
    "problem.label_noise": (0.0, 0.3), "problem.imbalance": (1.0, 4.0, 30.0), "problem.nan_every": (0, 4), "loss.z_loss": (0.0, 0.01, 1.0),
    "model.norm_momentum": (0.1, 0.5), "model.base_width": (4, 12, 48),
    "optimizer.sam_rho": (0.0, 0.05, 1.0), "optimizer.adamw_lr": (0.001, 0.1),
    "problem.passes": (1, 3), "problem.samples": (1, 2), "problem.reward_flaw": (0.0, 1.2),
    "loss.ratio_limit": (0.0, 0.2), "loss.kl_penalty": (0.0, 1.0), "loss.entropy_bonus": (0.0, 0.1),
    "problem.outlier_scale": (10.0, 1e3), "problem.skip_batches": (0, 1, 5),
}  # fmt: skip
UNDRAWN = ("run.steps", "run.device", "run.deterministic", "run.memory_budget")
OURS = [knob for knob in KNOBS.values() if knob.name not in UNDRAWN and knob.section != "distributed"]


def draw(source: random.Random, knob: Knob) -> Value:
    if knob.kind == "bool":
        return source.random() < 0.5
    return source.choice(knob.choices or VALUES[knob.name])


def experiment_of(seed: int) -> tuple[Experiment, tuple[Change, ...]]:
    """A random experiment with a random timeline, the same for the same seed."""
    source, experiment = random.Random(seed), Experiment().with_values(SMALL)
    for knob in OURS:
        often = {"problem.task": 1.0, "model.kind": 1.0}.get(knob.name, 0.12 if knob.section == "mistakes" else 0.35)
        if source.random() < often:
            value = draw(source, knob)
            with contextlib.suppress(KnobError):  # a mistake that does not go with what is drawn already
                experiment = with_adjustments(experiment, knob.name, value)
    live = [knob for knob in OURS if knob.live]
    chosen = [source.choice(live) for _ in range(source.randint(0, 6))]
    chosen += chosen[:2]  # some change twice, and perhaps to what they are already
    entries = [{"step": source.randrange(STEPS), "knob": knob.name, "value": draw(source, knob)} for knob in chosen]
    for entry in entries:
        if entry["knob"] == "problem.skip_batches":  # which cannot fall
            entry["value"] = experiment.problem.skip_batches + entry["step"]
    allowed: list[dict[str, object]] = []
    for entry in entries:
        with contextlib.suppress(KnobError):  # a value that does not go with the others
            read_timeline([*allowed, entry], experiment)
            allowed.append(entry)
    return experiment, read_timeline(allowed, experiment)


@pytest.mark.parametrize("seed", range(40))
def test_prints_the_numbers_of_a_random_run(seed: int) -> None:
    experiment, timeline = experiment_of(seed)
    program = clean(script(experiment, timeline))
    try:
        Trainer(experiment)
        compare(experiment, timeline, program)
    except KnobError:
        pytest.skip("this processor cannot do it in that precision, and says so")


# ---- as a program


def run_alone(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python where GradStudio cannot be had, neither as code nor for its data."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "gradstudio.py").write_text("raise ImportError('the script must not need it')\n")
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=elsewhere,
        check=False,
        env={**os.environ, "PYTHONPATH": str(elsewhere)},
    )


EACH = """
import runpy, sys
for program in sys.argv[1:]:
    runpy.run_path(program, run_name="__main__")
"""


def test_programs_run_by_themselves(tmp_path: Path) -> None:
    """With torch, numpy and the data beside them alone, in a fresh interpreter: the numbers of their runs. Data that is
    not beside its program is missed in one line. It is one interpreter for all three, as torch takes most of the time.
    """
    loaded = presets.load("rnn-explosion")
    of_letters, changes = read("problem.task=characters model.kind=gru run.steps=4")
    runs = {
        "digits": (loaded.experiment.with_value("run.steps", 20), loaded.timeline),
        "letters": (of_letters, changes),
    }
    wanted = []
    for name, (experiment, timeline) in runs.items():
        experiment = experiment.with_value("run.device", "cpu")
        write_program(script(experiment, timeline, title=name), tmp_path / "saved" / name / "train.py")
        rows = engine(experiment, timeline)[0]
        wanted += [f"{step} {loss} {norm}" for step, (loss, norm) in enumerate(rows)]
    file, program = "alice.txt", script(*read("problem.task=characters run.steps=2"))
    assert str(presets.files.RESOURCES) not in program, "no path of this machine"
    write_program(program, tmp_path / "saved" / "without" / "train.py")
    assert sorted(path.name for path in (tmp_path / "saved" / "without").iterdir()) == sorted([file, "train.py"])
    moved = (tmp_path / "saved").rename(tmp_path / "moved")
    (moved / "without" / file).unlink()
    done = run_alone(tmp_path, "-c", EACH, *(moved / name / "train.py" for name in (*runs, "without")))
    assert done.stdout.splitlines() == wanted and len(wanted) == 24, done.stderr
    assert done.stderr.startswith(f"{file} is missing: ") and done.stderr.count("\n") == 1
    assert done.returncode == 1


def test_another_file_with_the_name_of_the_data_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "digits.npz").write_text("mine")
    with pytest.raises(OutputError, match="another file of that name"):
        write_program(script(*read("")), tmp_path / "train.py")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("digits.npz", "mine")]


def test_says_how_many_digits_of_the_norm_it_prints() -> None:
    """The losses are the run's to the last bit; the norm is a sum in another order."""
    program = script(Experiment())
    assert "nine digits" in program.split('"""')[1] and "{grad_norm:.9g}" in program


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_marked(mistake: str) -> None:
    """Where it stands, or at the top with the reason why it changes nothing."""
    short = mistake.partition(".")[2]
    seen = script(
        *read(
            f"accumulation.steps=2 clipping.kind=norm precision.dtype=fp16 schedule.warmup_steps=5 "
            f"loss.class_weights=balanced {mistake}=true"
        )
    )
    assert f"# MISTAKE {short}" in seen[seen.index("for step in") :]
    alone = script(*read(f"{mistake}=true"))
    if short != "never_zero_grad":  # it does harm wherever it stands
        assert f"# MISTAKE {short}" in alone


def test_no_mistake_is_marked_where_none_is() -> None:
    assert "# MISTAKE" not in script(*read("accumulation.steps=2 clipping.kind=norm precision.dtype=fp16"))


def test_what_is_switched_off_is_not_there() -> None:
    program = script(Experiment())
    for word in ("autocast", "scaler", "scheduler", "clip_grad", "noise", "knobs.", "TIMELINE", "checkpoint", "norm(x"):
        assert word not in program, word
    assert len(program.splitlines()) < 90


@pytest.mark.parametrize(("knob", "written"), [
    ("clipping.kind=norm", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ("precision.dtype=fp16", "torch.amp.GradScaler"),
    ("accumulation.steps=4", "(loss / 4).backward()"),
    ("schedule.warmup_steps=100", "torch.optim.lr_scheduler.LambdaLR"),
    ("optimizer.kind=adamw", "torch.optim.AdamW"),
    ("model.checkpointing=true", "from torch.utils.checkpoint import checkpoint"),
])  # fmt: skip
def test_uses_torch_s_own(knob: str, written: str) -> None:
    assert written in script(*read(knob))


def test_a_title_cannot_break_out() -> None:
    program = script(Experiment().with_values(SMALL), title='"""\nimport os\\')
    compile(program, "train.py", "exec")
    assert "import os" not in program.splitlines()


def test_a_change_that_changes_nothing_is_left_out() -> None:
    assert "TIMELINE" not in script(*read("3:optimizer.lr=0.1"))
    assert "TIMELINE" not in script(*read(f"{STEPS}:optimizer.lr=0.2")), "after the end"
    assert script(*read("2:optimizer.lr=0.2 3:optimizer.lr=0.2")) == script(*read("2:optimizer.lr=0.2"))


@pytest.mark.parametrize(("case", "written"), [
    ("problem.skip_batches=5", "\nfor _ in range(5):  # batches that are skipped\n    next(batches)\n"),
    ("problem.skip_batches=5 accumulation.steps=3", "\nfor _ in range(5 * 3):"),
    ("problem.skip_batches=5 problem.outlier_every=4", "if (step + 5) % 4 == 0:"),
    ("2:problem.skip_batches=5", "    while passed < knobs.problem_skip_batches:\n        next(batches)\n        "
        "passed += 1\n"),
    ("2:problem.skip_batches=5 accumulation.steps=3", "        for _ in range(3):\n            next(batches)\n       "
        " passed += 1\n"),
    ("2:problem.skip_batches=5 problem.outlier_every=4", "if step + passed > 0 and (step + passed) % 4 == 0:"),
])  # fmt: skip
def test_batches_are_passed_over_as_one_would_write_it(case: str, written: str) -> None:
    assert written in script(*read(case))


def test_a_script_passes_over_what_the_run_does_not_take_back() -> None:
    """A fall that the run refuses, for the batches are gone: it goes on as it was, and so does the script."""
    experiment, timeline = read(
        "1:problem.skip_batches=3 4:problem.skip_batches=5 problem.outlier_every=2 problem.outlier_scale=10"
    )
    refused = Change(3, "problem.skip_batches", 1)
    assert (
        plain(script(experiment, (timeline[0], refused, timeline[1])))
        == plain(script(experiment, timeline))
        == engine(experiment, timeline)
    )
