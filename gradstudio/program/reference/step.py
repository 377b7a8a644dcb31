"""The training loop: one step, from top to bottom."""

import copy
from collections import deque
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join

from gradstudio.program.reference.sharpness_aware import *

step_loss: Any
figures: Any
grad_norm: Any
everybody: Any
before_spike: Any

if plan.changes("problem_skip_batches"):
    passed = 0  # batches that were skipped
elif knobs.problem_skip_batches > 0:
    for _ in range(knobs.problem_skip_batches * plan.first_count):  # batches that are skipped
        next(batches)
measured = []
if plan.leaves_out:
    norms = deque(maxlen=128)  # gradient norms of the updates that were made
if plan.goes_back:
    before_spike = None
if plan.compares_norms:
    usual = {}  # gradient norms, and what clipping left of them

with Join([parallel]) if plan.joins else nullcontext():  # a rank without batches takes part in the others' all-reduces
    for step in range(knobs.run_steps):
        take_live_changes()
        if (
            plan.ranks
            and knobs.distributed_runs_out_at > 0
            and rank == world - 1
            and step == knobs.distributed_runs_out_at
        ):
            break  # it has no batch left
        fail_on_purpose()
        if plan.changes("problem_skip_batches"):
            while passed < knobs.problem_skip_batches:
                for _ in range(knobs.accumulation_steps):
                    next(batches)
                passed += 1

        if plan.climbs:
            if plan.many:
                micro_batches, losses = [], []
                for _ in range(knobs.accumulation_steps):
                    next_batch()
                    disturb()
                    micro_batches.append(batch if plan.own else (inputs, targets))
                if plan.shares:
                    shares = shares_of(micro_batches)
            else:
                next_batch()
                disturb()
            # Sharpness-aware minimization (Foret 2021): go to w + rho g / |g|, and take the gradient there
            climb()

        # MISTAKE never_zero_grad: without zero_grad() every gradient adds to those before
        if not knobs.mistakes_never_zero_grad:
            zero_grad()
        if plan.limits_logits:
            for block in model.blocks:
                block.attention.largest = torch.zeros(plan.heads, device=device)
        if plan.keeps_unclipped:
            if plan.ever_keeps_gradients:
                for parameter, total in unclipped.items():
                    total.copy_(torch.zeros_like(total) if parameter.grad is None else parameter.grad)
            else:
                for total in unclipped.values():
                    total.zero_()
        # MISTAKE clip_before_backward: there is nothing to clip yet
        if plan.clips and knobs.mistakes_clip_before_backward:
            clip()
        if plan.shares and not plan.climbs:
            micro_batches = [next(batches) for _ in range(knobs.accumulation_steps)]
            shares = shares_of(micro_batches)
        if plan.many and not plan.climbs:
            losses = []
        if knobs.clipping_kind == "per_example":
            means = [torch.zeros_like(parameter) for parameter in trainable()]
        for index in range(knobs.accumulation_steps):
            if (plan.climbs and plan.many) or plan.shares:
                next_of_step()
            elif not plan.climbs:
                next_batch()
            if not plan.climbs:
                disturb()
            # MISTAKE drop_last_micro_batches: the divisor below still counts these
            if plan.many and knobs.mistakes_drop_last_micro_batches and index >= kept_micro_batches():
                continue
            # MISTAKE zero_grad_each_micro_batch: all but the last micro-batch are lost
            if knobs.mistakes_zero_grad_each_micro_batch:
                zero_grad()
                if plan.keeps_unclipped:
                    for total in unclipped.values():
                        total.zero_()
            # MISTAKE scheduler_each_micro_batch: the learning rate changes as many times too fast
            if plan.many and plan.scheduled and knobs.mistakes_scheduler_each_micro_batch and index > 0:
                advance()
            if plan.ranks and plan.many and not knobs.distributed_no_sync and not plan.sharded:
                # MISTAKE no_sync: forgotten, so every micro-batch is reduced
                pass
            if plan.holds_back and not knobs.distributed_forward_outside_no_sync and knobs.distributed_never_synced:
                # MISTAKE never_synced: no micro-batch is reduced, and the ranks drift apart
                pass
            with nullcontext() if knobs.distributed_forward_outside_no_sync else sync():
                forward()
                if plan.ranks and knobs.distributed_weigh_shares:
                    loss = loss * (len(targets) * world / size)  # each example counts the same
                # MISTAKE normalize_each_micro_batch: each loss is divided by the weight of its own examples alone
                if plan.weighted and plan.many and not knobs.mistakes_normalize_each_micro_batch:
                    loss = loss * shares[index]  # sum(w l) / sum(w) over all micro-batches
                # MISTAKE unscaled_accumulation: not divided by the number of micro-batches
                if plan.holds_back and knobs.distributed_forward_outside_no_sync:
                    # MISTAKE forward_outside_no_sync: without effect, for the forward pass decides
                    pass
                if plan.holds_back and knobs.distributed_forward_outside_no_sync and knobs.distributed_never_synced:
                    # MISTAKE never_synced: no micro-batch is reduced, and the ranks drift apart
                    pass
                with sync() if knobs.distributed_forward_outside_no_sync else nullcontext():
                    backward(loss / (1 if is_undivided() else knobs.accumulation_steps))
            # MISTAKE divide_each_micro_batch: what came before is divided again each time
            if plan.many and knobs.mistakes_divide_each_micro_batch:
                for parameter in trainable():
                    parameter.grad.div_(knobs.accumulation_steps)
                    if plan.keeps_unclipped:
                        unclipped[parameter].div_(knobs.accumulation_steps)
            if knobs.clipping_kind == "per_example":
                clip_example(means, knobs.clipping_max_norm / knobs.accumulation_steps)
            # MISTAKE clip_each_micro_batch: it acts on parts of the sum
            if plan.clips and knobs.mistakes_clip_each_micro_batch:
                clip()
            if plan.climbs:
                if knobs.optimizer_sam_rho == 0:
                    if plan.many:
                        losses.append(loss.detach())
                    else:
                        step_loss = loss.detach()
            elif plan.many:
                losses.append(loss.detach())
        phase("data")
        if knobs.clipping_kind == "per_example":
            for parameter, mean in zip(trainable(), means):
                parameter.grad.copy_(mean)
        if plan.climbs and knobs.optimizer_sam_rho > 0:
            with torch.no_grad():
                for tensor, value in zip(places, origin):
                    tensor.copy_(value)

        if plan.ranks and knobs.distributed_clip_before_all_reduce:
            # The mean of what nobody has clipped, only to print its norm
            grads = average([parameter.grad for parameter in model.parameters()])
            grad_norm = nn.utils.get_total_norm([grad.double() for grad in grads])
            # MISTAKE clip_before_all_reduce: each rank clips another gradient than the mean
            clip()
            means = average([parameter.grad for parameter in model.parameters()])
            for parameter, mean in zip(model.parameters(), means):
                parameter.grad.copy_(mean)
        if plan.ranks and knobs.distributed_divide_by_world_size:
            # MISTAKE divide_by_world_size: DistributedDataParallel has taken the mean already
            for parameter in model.parameters():
                parameter.grad.div_(world)
        if plan.keeps_unclipped:
            grads = [as_double(total) for total in unclipped.values()]
            grad_norm = true_norm(grads)
        elif plan.clips_scaled:
            grads = [as_double(parameter.grad) for parameter in trainable()]
            grad_norm = true_norm(grads)
        # MISTAKE clip_before_unscale: these gradients still carry the loss scale
        if plan.clips and knobs.mistakes_clip_before_unscale:
            clip()
        unscale()
        if plan.measures and not plan.measured_before:
            grads = [as_double(parameter.grad) for parameter in trainable()]
            grad_norm = nn.utils.get_total_norm(grads)
            if plan.sharded:
                grad_norm = grad_norm.full_tensor()  # of the shards of all ranks
        if knobs.clipping_on_spike != "none":
            spike = is_spike([parameter.grad for parameter in trainable()])
        # MISTAKE unscale_twice: GradScaler raises an error, a fixed scale is divided out twice
        if knobs.mistakes_unscale_twice:
            unscale()
        phase("clip")
        if knobs.gradients_centralize:
            for parameter in trainable():  # gradient centralization (Yong 2020)
                if parameter.ndim > 1:
                    parameter.grad.sub_(parameter.grad.mean(dim=tuple(range(1, parameter.ndim)), keepdim=True))
        if knobs.gradients_noise_std > 0:
            for parameter in trainable():
                drawn = torch.randn(parameter.shape, generator=gradient_noise).to(device)
                parameter.grad.add_(drawn, alpha=knobs.gradients_noise_std)
        if plan.sharded:
            # MISTAKE clip_shards: the norm of a shard is not that of the gradient
            shards = [parameter.grad.to_local() for parameter in model.parameters()]
            coefficient = (knobs.clipping_max_norm / (nn.utils.get_total_norm(shards) + 1e-6)).clamp(max=1.0)
            if knobs.clipping_kind == "norm":
                for shard in shards:
                    shard.mul_(coefficient)
        elif not (plan.ranks and knobs.distributed_clip_before_all_reduce) and not clips_elsewhere():
            clip()

        set_rates()
        if plan.asks_whether_skipped and not plan.forgets_scaler:
            scale_before = scaler.get_scale()
        phase("update")
        if knobs.clipping_on_spike == "rewind":
            if not spike and step % 8 == 0:
                before_spike = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            elif spike and before_spike is not None:  # the batches go on
                model.load_state_dict(before_spike[0])
                optimizer.load_state_dict(copy.deepcopy(before_spike[1]))
        if knobs.clipping_on_spike == "none" or not spike:
            # MISTAKE step_without_scaler: an overflow is not skipped
            if not plan.dynamic or knobs.mistakes_step_without_scaler:
                optimizer.step()
            else:
                scaler.step(optimizer)
            round_weights()
        # MISTAKE clip_after_step: the weights have moved already
        if plan.clips and knobs.mistakes_clip_after_step:
            clip()
        # MISTAKE never_update_scaler: no scaler.update(), so the scaler refuses the next step
        if plan.dynamic and not knobs.mistakes_never_update_scaler:
            scaler.update()
        if plan.asks_whether_skipped:
            if plan.forgets_scaler:
                skipped = updates[-1:] != [step]
            else:
                skipped = not knobs.mistakes_step_without_scaler and scaler.get_scale() < scale_before
        if knobs.clipping_on_spike == "none" or not spike:
            if plan.scheduled and plan.asks_whether_skipped:
                if not skipped:
                    advance()
            elif plan.scheduled:
                advance()

        if plan.joins:
            measured.append((loss_of_step(), grad_norm.item()))
        elif plan.ranks:
            # The mean loss, and the gradient norm of rank 0
            figures = [loss_of_step() / world, grad_norm.item() if rank == 0 else 0.0]
            figures = torch.tensor(figures, dtype=torch.float64, device=device)
            dist.all_reduce(figures)
            if rank == 0:
                print(step, figures[0].item(), f"{figures[1]:.9g}")
        elif plan.measures:
            print(step, loss_of_step(), f"{grad_norm:.9g}")
        if (
            plan.measures
            and knobs.run_stop_on_nonfinite
            and not (loss_is_finite() and ((skipped or norm_is_finite()) if plan.may_skip else norm_is_finite()))
        ):
            break

if plan.joins:
    # The mean loss of the ranks that had a batch, and the gradient norm of rank 0
    everybody = [None] * world
    dist.all_gather_object(everybody, measured)
    if rank == 0:
        for step, (_, norm) in enumerate(measured):
            losses = [of_rank[step][0] for of_rank in everybody if step < len(of_rank)]
            print(step, sum(losses) / len(losses), f"{norm:.9g}")
elif plan.ranks and knobs.distributed_runs_out_at > 0:
    dist.barrier()  # as before a test or a checkpoint
if plan.ranks:
    dist.destroy_process_group()
