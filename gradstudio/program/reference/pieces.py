"""The pieces of a step: each stands in the loop where it is called."""

import os
import signal
import time
from contextlib import nullcontext

import torch
from torch import nn

from gradstudio.program.reference.optimizers import *

gradient_noise = torch.Generator().manual_seed(seed + 3_000_017)
outliers = torch.Generator().manual_seed(seed + 2_000_003)
batches = drawn_by(model) if plan.acts else make_batches()


@inline
def is_due(every):
    """Return whether this batch is one of every `every` batches; the first batch of a run never is."""
    return (
        every > 0 and (plan.start.problem_skip_batches > 0 or number_of_batch() > 0) and number_of_batch() % every == 0
    )


@inline
def number_of_batch():
    return step + passed if plan.changes("problem_skip_batches") else step + knobs.problem_skip_batches


@inline
def spoilt(x):
    """Return a copy of a tensor whose first number is NaN."""
    return torch.cat([x.new_full((1,), float("nan")), x.flatten()[1:]]).view_as(x)


@inline
def as_double(tensor):
    """Return a tensor in float64. Apple's GPUs have no float64, so theirs is converted on the CPU."""
    return tensor.cpu().double() if knobs.run_device == "mps" else tensor.double()


@inline
def phase(name):
    """Tell a memory estimate which part of the step begins. An exported program has no such line."""
    if plan.tells_phases:
        tell(name)


@inline
def zero_grad():
    optimizer.zero_grad(set_to_none=not (plan.own or plan.keeps_gradients))


@inline
def unscale():
    """Divide the gradients by the loss scale."""
    if plan.dynamic or plan.static:
        phase("unscale")
    if plan.dynamic:
        scaler.unscale_(optimizer)
    if plan.static:
        for parameter in trainable():
            parameter.grad.mul_(1 / scale)


@inline
def true_norm(grads):
    """Return the norm of the gradients without the loss scale that they still carry."""
    if plan.dynamic and plan.static:
        return nn.utils.get_total_norm(grads) / scaler.get_scale() / scale
    if plan.dynamic:
        return nn.utils.get_total_norm(grads) / scaler.get_scale()
    return nn.utils.get_total_norm(grads) / scale if plan.static else nn.utils.get_total_norm(grads)


@inline
def backward(share):
    """Run the backward pass of a loss that was divided by the number of micro-batches."""
    phase("backward")
    if plan.dynamic:
        scaler.scale(share * scale if plan.static else share).backward()
    else:
        (share * scale if plan.static else share).backward()


@inline
def sync():
    """Return the context of a backward pass: one that reduces the gradients over the ranks, or one that does not
    yet."""
    if plan.never_reduces:
        return parallel.no_sync()
    if plan.reduces_late:
        return parallel.no_sync() if index < last_micro_batch() else nullcontext()
    return nullcontext()


@inline
def kept_micro_batches():
    """Return the number of micro-batches that are left when the second half is dropped."""
    return knobs.accumulation_steps - knobs.accumulation_steps // 2


@inline
def last_micro_batch():
    return (kept_micro_batches() if knobs.mistakes_drop_last_micro_batches else knobs.accumulation_steps) - 1


@inline
def last_loss():
    return step_loss if plan.climbs else loss


@inline
def loss_of_step():
    """Return the mean loss of the micro-batches. A GPU sums three numbers in another order than the CPU."""
    if not plan.many:
        return last_loss().item()
    if knobs.run_device == "cpu":
        return torch.stack(losses).double().mean().item()
    return torch.stack(losses).cpu().double().mean().item()


@inline
def loss_is_finite():
    if plan.ranks and not plan.joins:
        return figures[0].isfinite()
    return torch.stack(losses).isfinite().all() if plan.many else last_loss().isfinite()


@inline
def norm_is_finite():
    return figures[1].isfinite() if plan.ranks and not plan.joins else grad_norm.isfinite()


@inline
def next_batch():
    global batch, inputs, targets
    phase("data")
    if plan.own:
        batch = next(batches)
    else:
        inputs, targets = next(batches)


@inline
def next_of_step():
    """Take the next of the micro-batches that were drawn for this step."""
    global batch, inputs, targets
    phase("data")
    if plan.own:
        batch = micro_batches[index]
    else:
        inputs, targets = micro_batches[index]


@inline
def is_undivided():
    return knobs.mistakes_unscaled_accumulation or knobs.mistakes_divide_each_micro_batch


@inline
def clips_elsewhere():
    """Return whether a mistake clips somewhere else, in place of the correct call."""
    return (
        knobs.mistakes_clip_each_micro_batch
        or knobs.mistakes_clip_before_backward
        or knobs.mistakes_clip_before_unscale
        or knobs.mistakes_clip_after_step
    )


@inline
def disturb():
    """Replace the batch by noise or put a NaN into it, if that is due, and take this rank's share of it."""
    global batch, inputs, targets, size
    if plan.own:
        if is_due(knobs.problem_outlier_every):  # an outlier batch
            batch = with_first(batch, lambda x: outlier(x).requires_grad_(x.requires_grad))
        if is_due(knobs.problem_nan_every):  # with a NaN
            batch = with_first(batch, lambda x: spoilt(x))
    else:
        if is_due(knobs.problem_outlier_every):  # an outlier batch
            inputs = outlier(inputs)
        if plan.ranks:
            if knobs.distributed_same_data:
                # MISTAKE same_data: every rank has the share of rank 0
                pass
            if knobs.distributed_weigh_shares:
                size = len(targets)
            if knobs.distributed_uneven_every > 0:
                share = slice(rank, None, world)
                if (number_of_batch() + 1) % knobs.distributed_uneven_every == 0:  # all but a quarter for rank 0
                    first = len(targets) - len(targets) // 4
                    share = slice(first) if rank == 0 else slice(first + rank - 1, None, world - 1)
                inputs, targets = inputs[share].contiguous(), targets[share].contiguous()
            elif knobs.distributed_same_data:
                inputs, targets = inputs[0::world].contiguous(), targets[0::world].contiguous()
            else:
                inputs, targets = inputs[rank::world].contiguous(), targets[rank::world].contiguous()
        if (not plan.ranks or rank == knobs.distributed_nan_rank) and is_due(knobs.problem_nan_every):  # with a NaN
            inputs = spoilt(inputs)


@inline
def outlier(x):
    return torch.randn(x.shape, generator=outliers).to(device) * knobs.problem_outlier_scale


@inline
def fail_on_purpose():
    """Make a rank exit or hang at the step that a knob sets."""
    if (
        plan.ranks
        and knobs.distributed_fault != "none"
        and rank == knobs.distributed_fault_rank
        and step == knobs.distributed_fault_step
    ):
        if knobs.distributed_fault == "ends":
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        else:
            time.sleep(3600)


@inline
def forward():
    """Compute the loss of a micro-batch."""
    global loss, outputs
    phase("forward")
    if plan.own:
        with torch.autocast(device.type, low_precision(), enabled=knobs.precision_dtype != "fp32"):
            loss = compute_loss(model, batch, **plan.arguments("compute_loss"))
        loss = loss.float() * knobs.loss_weight
    else:
        with torch.autocast(device.type, low_precision(), enabled=knobs.precision_dtype != "fp32"):
            outputs = parallel(inputs) if plan.ranks and not plan.sharded else model(inputs)
        if plan.autocasts:
            outputs = outputs.float()
        loss = task_loss(outputs, targets)
        if plan.adds_z_loss:
            loss = loss + z_loss(outputs)
        loss = loss * knobs.loss_weight


if plan.limits_logits:

    @torch.no_grad()
    def limit_logits(optimizer, args, kwargs):
        """QK-clip (Kimi K2 2025): shrink queries and keys where the largest logit is above the limit."""
        if knobs.clipping_qk_clip > 0:
            for attention in [block.attention for block in model.blocks]:
                limit, largest = knobs.clipping_qk_clip, attention.largest
                factors = torch.where(largest > limit, limit / largest, 1.0).sqrt()
                for part in (attention.query, attention.key):
                    part.weight.unflatten(0, (plan.heads, -1)).mul_(factors[:, None, None])
                    part.bias.unflatten(0, (plan.heads, -1)).mul_(factors[:, None])

    optimizer.register_step_post_hook(limit_logits)  # after each update, but not one that is skipped


@inline
def low_precision():
    return torch.bfloat16 if knobs.precision_dtype == "bf16" else torch.float16


if knobs.precision_weights != "fp32":
    with torch.no_grad():  # precision.weights = {knobs.precision_weights}
        for parameter in trainable():
            parameter.copy_(parameter.bfloat16())
if plan.asks_whether_skipped and plan.forgets_scaler:
    updates = []  # the steps whose update was made: without scaler.update() the scale does not tell
    optimizer.register_step_post_hook(lambda *_: updates.append(step))
if plan.keeps_gradients and not plan.own:
    for parameter in model.parameters():  # for what clips before the first backward pass
        parameter.grad = torch.zeros_like(parameter)


def adds_to(total):
    def hook(grad):
        total.add_(grad)

    return hook


if plan.keeps_unclipped:
    # The gradient without the clipping in between, only to print its norm
    unclipped = {parameter: torch.zeros_like(parameter) for parameter in trainable()}
    for parameter, total in unclipped.items():
        parameter.register_hook(adds_to(total))
