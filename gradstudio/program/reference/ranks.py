"""What several ranks need beside the loop: their mean gradient, batch norms over all of them, a parameter to spare."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

from gradstudio.program.reference.clipping import *

model: Any


def average(tensors):
    """Return the means of these tensors over the ranks, computed in a single all-reduce."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]).mul_(1 / world)
    dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors)]


class WithSpare(nn.Module):
    """A model together with a parameter that no forward pass uses."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.spare = nn.Parameter(torch.zeros(1, device=device))

    def forward(self, inputs):
        return self.model(inputs)


def forward_of_all(norm):
    """Return a batch norm's forward pass over the examples of all ranks; torch's SyncBatchNorm needs GPUs."""

    def forward(inputs):
        dtype, inputs = inputs.dtype, inputs.float()
        over, shape = [0, *range(2, inputs.ndim)], (1, -1, *[1] * (inputs.ndim - 2))
        mean = all_reduce(inputs.mean(over)) / world
        centered = inputs - mean.view(shape)
        variance = all_reduce(centered.square().mean(over)) / world
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return (centered * scale.view(shape) + norm.bias.view(shape)).to(dtype)

    return forward


@inline
def replica():
    """Return the module that every rank has a copy of."""
    return WithSpare(model) if knobs.distributed_unused_parameter else model


if plan.ranks:
    if knobs.distributed_sync_batch_norm:
        if knobs.run_device.startswith("cuda"):
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # noqa: F821
        else:
            for norm in model.modules():
                if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
                    norm.forward = forward_of_all(norm)  # pyright: ignore[reportAttributeAccessIssue]
    if knobs.distributed_unused_parameter:
        # MISTAKE unused_parameter: its gradient never comes, and DistributedDataParallel waits for it
        pass
    if plan.sharded:
        mesh = init_device_mesh(device.type, (world,))
        fully_shard(model, mesh=mesh)  # each rank holds its rows of each weight
    elif knobs.distributed_find_unused:
        parallel = DistributedDataParallel(replica(), bucket_cap_mb=1 << 20, find_unused_parameters=True)
    else:
        parallel = DistributedDataParallel(replica(), bucket_cap_mb=1 << 20)  # reduced in one call
