"""Trainings of several processes, each watched. What is known of them by hand is written by rank 0, as JSON. The other
ranks are forked off rank 0, as it takes longer to import torch than to train."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from functools import partial

import torch
import torch._dynamo  # which the first optimizer of a process imports
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import gradstudio
from gradstudio.session.library.requests import Request
from gradstudio.watching.ranks import joined_run
from gradstudio.watching.steps import late_reduction

try:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
except ImportError:  # before torch 2.6
    from torch.distributed._composable.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

LIBRARY, OUT, WHAT = sys.argv[1:]
LR, NEVER = 0.1, 1e6
known: dict[str, list[list[float]]] = {}
late_reduction.ENOUGH = 2
joined_run.COMES_WITHIN = joined_run.SILENT = joined_run.AT_THE_END = NEVER  # seconds; a rank may be slow
rank, ranks = 0, 3
given, port = os.pipe()
for other in range(1, ranks):
    if os.fork() == 0:
        rank = other
        break
os.environ["LOCAL_RANK"] = str(rank)
if rank == 0:
    store = dist.TCPStore("127.0.0.1", 0, ranks, True, wait_for_workers=False)
    os.write(port, b"%5d" % store.port * (ranks - 1))
else:
    store = dist.TCPStore("127.0.0.1", int(os.read(given, 5)), ranks, False)
dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)


class Net(nn.Module):
    def __init__(self, middle: type[nn.Module] = nn.Tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(6, 12), middle(), nn.Linear(12, 4)
        nn.init.zeros_(self.last.bias)
        self.breaks = False

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.middle(self.first(inputs))
        return self.last(torch.log(-hidden.abs()) if self.breaks else hidden)


class Norm(nn.BatchNorm1d):
    def __init__(self) -> None:
        super().__init__(12)


class Reducing(torch.optim.SGD):
    """Takes the mean over the ranks itself."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for each in self.param_groups[0]["params"]:
            dist.all_reduce(each.grad)
            each.grad /= ranks
        super().step()


class Aside(torch.optim.SGD):
    """Takes the mean of a copy, so that nobody sees it."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for each in self.param_groups[0]["params"]:
            mean = each.grad.clone()
            dist.all_reduce(mean)
            each -= LR * mean / ranks


def sum_of_means(model: nn.Module) -> None:
    for each in model.parameters():
        each.grad /= ranks
        dist.all_reduce(each.grad)  # after which torch sees no other version


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def norm_of(tensors) -> float:
    return torch.cat([whole(each).detach().flatten().double() for each in tensors if each is not None]).norm().item()


def norm_of_pieces(tensors) -> float:
    square = sum(each.detach().double().square().sum() for each in tensors if each is not None)
    dist.all_reduce(square := torch.as_tensor(square, dtype=torch.float64))
    return square.sqrt().item()


def mean_and_spread(value: float) -> tuple[float, float]:
    every = torch.zeros(ranks, dtype=torch.float64)
    every[rank] = value
    dist.all_reduce(every)
    return every.mean().item(), (every.max() - every.min()).item()


def train(
    name, model, optimizer=None, *, clip=0.0, parts=1, alike=False, breaks=-1, nan=-1, sync=None, several=None,
    on_nonfinite="explain", asked=None, reduce=None, norm_of=norm_of,
) -> None:  # fmt: skip
    if several is None:
        optimizers = [optimizer or torch.optim.SGD(model.parameters(), lr=LR)]
    else:
        optimizers = [several([model.first.weight], lr=LR), several([*model.parameters()][1:], lr=LR)]
    watched = gradstudio.watch(
        model, optimizers[0] if several is None else None, name=name, library=LIBRARY, on_nonfinite=on_nonfinite
    )
    draw, rows = torch.Generator().manual_seed(0 if alike else rank), []
    inner = getattr(model, "module", model)
    for step in range(4):
        inner.breaks = step == breaks and rank == 1
        if step == 2 and rank == 0 and asked is not None:
            watched.watched_runs[0].on_request(asked)
        for each in optimizers:
            each.zero_grad()
        loss = 0.0
        for part in range(parts):
            inputs = torch.randn(16, 6, generator=draw)
            if step == nan and rank == 1:
                inputs[2, 3] = float("nan")
            if sync is not None:
                sync(part == parts - 1)
            with model.no_sync() if part < parts - 1 and hasattr(model, "no_sync") else nullcontext():
                value = model(inputs).float().square().mean() / parts
                value.backward()
            loss += value.item()
        if reduce is not None:
            reduce(model)
        before = norm_of(each.grad for each in model.parameters())
        if clip:
            getattr(model, "clip_grad_norm_", partial(nn.utils.clip_grad_norm_, model.parameters()))(clip)
        clipped = norm_of(each.grad for each in model.parameters())
        old = [whole(each.detach()).clone() for each in model.parameters()]
        for each in optimizers:
            each.step()
        if type(optimizers[0]) is Reducing:
            before = clipped = norm_of(each.grad for each in model.parameters())
        moved = norm_of(whole(new) - was for new, was in zip(model.parameters(), old, strict=True))
        rows.append([*mean_and_spread(loss), before, clipped, norm_of(old), moved / norm_of(old)])
    watched.close()
    known[name] = rows


def parallel(middle: type[nn.Module] = nn.Tanh, **named) -> DistributedDataParallel:
    return DistributedDataParallel(Net(middle), **named)


mesh = init_device_mesh("cpu", (ranks,))
if "replicated" in WHAT:
    train("replicated", parallel(), clip=0.05)
    train("accumulated", parallel(), parts=3)
    model = parallel()
    model.register_comm_hook(
        None,
        lambda _, bucket: (
            dist.all_reduce(bucket.buffer().div_(ranks), async_op=True)
            .get_future()
            .then(lambda given: given.value()[0])
        ),
    )
    train("hooked", model)
    model = parallel()
    train("zero", model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=LR))
    model = Net()
    train("reducing", model, Reducing(model.parameters(), lr=LR))
    model = Net()
    train("reducing, nan", model, Reducing(model.parameters(), lr=LR), nan=2)
    train("two reducing", Net(), several=Reducing)
    train("averaged by the script", Net(), reduce=sum_of_means)
    train("averaged by the script, clipped", Net(), reduce=sum_of_means, clip=0.05)
    train("averaged by the script, nan", Net(), reduce=sum_of_means, clip=0.05, nan=2)
    model = Net()
    train("aside", model, Aside(model.parameters(), lr=LR))
    train("nan", parallel(), nan=2)
    train("skip", parallel(), nan=2, on_nonfinite="skip")
    train("rate", parallel(), asked=Request("rate", 0.5))
    train("log", parallel(Norm), breaks=2)
if "parted" in WHAT:
    model = fully_shard(Net(), mesh=mesh)
    train("parted", model, torch.optim.AdamW(model.parameters(), lr=LR), clip=0.05)
    model = fully_shard(Net(), mesh=mesh)
    train("parted, accumulated", model, parts=3, sync=model.set_requires_gradient_sync)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    train("parted, mixed", fully_shard(Net(), mesh=mesh, mp_policy=policy))
    train("two parted", fully_shard(Net(), mesh=mesh), several=torch.optim.SGD)
    model = Net()
    for part in (model.first, model.last, model):  # the memory of a part's weights is gone after its pass
        fully_shard(part, mesh=mesh)
    train("parted, log", model, breaks=2)
    train("parted, nan", fully_shard(Net(), mesh=mesh), nan=2)
    model = Net()
    model.last.weight.data *= 2.2e11  # squares of some gradients are beyond float32
    model = fully_shard(model, mesh=mesh)
    train("parted, spoiled", model, torch.optim.AdamW(model.parameters(), lr=LR))
    model = fully_shard(Net(), mesh=init_device_mesh("cpu", (1, ranks), mesh_dim_names=("copies", "parts")))
    train("parted and copied", model, clip=0.05)
    model = fully_shard(Net(), mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    train("parted, offloaded", model, clip=0.05)
    model = parallelize_module(Net(), mesh, {"first": ColwiseParallel(), "last": RowwiseParallel()})
    train("tensor parallel", model, alike=True)
if "flat" in WHAT:
    around = partial(FullyShardedDataParallel, device_id=torch.device("cpu"))
    flat = partial(train, norm_of=norm_of_pieces)
    flat("flat", around(Net(), use_orig_params=True), clip=0.05)
    flat("flat, in one", around(Net()), clip=0.05)
    flat("flat, accumulated", around(Net(), use_orig_params=True), parts=3)
    model = Net()
    model.first, model.last = around(model.first, use_orig_params=True), around(model.last, use_orig_params=True)
    model = around(model, use_orig_params=True)
    flat("flat, nested", model, torch.optim.AdamW(model.parameters(), lr=LR))
    kept = ShardingStrategy.SHARD_GRAD_OP
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    flat("flat, mixed", around(Net(), use_orig_params=True, sharding_strategy=kept, mixed_precision=policy))
    train("flat, whole", around(Net(), use_orig_params=True, sharding_strategy=ShardingStrategy.NO_SHARD))
    hybrid = partial(around, use_orig_params=True, sharding_strategy=ShardingStrategy.HYBRID_SHARD)
    flat(
        "flat, in one group",
        hybrid(Net(), device_mesh=init_device_mesh("cpu", (1, ranks), mesh_dim_names=("of", "in"))),
    )
    flat("flat, nan", around(Net(), use_orig_params=True), nan=2)
if rank == 0:
    with open(OUT, "w") as file:
        json.dump(known, file)
if "one ends" in WHAT:
    joined_run.AT_THE_END = 0.5
    model = parallel()
    watched = gradstudio.watch(model, name="one ends", library=LIBRARY)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(20):
        if step == 10 and rank == 1:
            os._exit(7)
        optimizer.zero_grad()
        model(torch.randn(16, 6)).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
