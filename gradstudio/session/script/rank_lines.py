"""The ranks of a script: a program for torchrun, whose processes train together in DistributedDataParallel."""

from __future__ import annotations

from gradstudio.core.experiment import Experiment
from gradstudio.core.ranks_allowed import several
from gradstudio.session.script import clipping_lines
from gradstudio.session.script.mistake_lines import MARK, always, switch
from gradstudio.session.script.plan import Lines, Plan

FUNCTION = '''def average(tensors):
    """Return the means of tensors over the ranks, which are taken in one call."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]).mul_(1 / world)
    dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors)]

'''

SPARE = '''class WithSpare(nn.Module):
    """A model beside a parameter that no forward pass uses."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.spare = nn.Parameter(torch.zeros(1, device=device))

    def forward(self, inputs):
        return self.model(inputs)

'''
_TELL_ALL = """# The mean loss of the ranks that had a batch, and the gradient norm of rank 0
everybody = [None] * world
dist.all_gather_object(everybody, measured)
if rank == 0:
    for step, (_, norm) in enumerate(measured):
        losses = [of_rank[step][0] for of_rank in everybody if step < len(of_rank)]
        print(step, sum(losses) / len(losses), f"{norm:.9g}")"""
SYNCED = '''def synced(norm):
    """Return the forward pass of a batch norm over the examples of all ranks; torch's SyncBatchNorm needs GPUs."""

    def forward(inputs):
        dtype, inputs = inputs.dtype, inputs.float()
        over, shape = [0, *range(2, inputs.ndim)], (1, -1, *[1] * (inputs.ndim - 2))
        mean = all_reduce(inputs.mean(over)) / world
        centered = inputs - mean.view(shape)
        variance = all_reduce(centered.square().mean(over)) / world
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return (centered * scale.view(shape) + norm.bias.view(shape)).to(dtype)

    return forward

'''


def ever(plan: Plan) -> bool:
    """Return whether the script is one for several ranks."""
    return several(plan.experiment)


def made(plan: Plan, name: str) -> bool:
    """Return whether this knob of the ranks is on."""
    return ever(plan) and bool(plan[f"distributed.{name}"])


def mark(lines: Lines, name: str, why: str, depth: int) -> None:
    """Add the comment above a mistake."""
    lines.add(f"{MARK} {name}: {why}", depth)


def meet(experiment: Experiment) -> list[str]:
    """Return the lines in which the ranks find each other, each with its device."""
    choice, numbers = experiment.run.device, "rank, world = dist.get_rank(), dist.get_world_size()"
    if choice == "cpu":
        return ['dist.init_process_group("gloo")', numbers, 'device = torch.device("cpu")']
    local_rank = 'local_rank = int(os.environ["LOCAL_RANK"])'
    if choice == "auto":
        return [
            local_rank,
            "# A GPU for each rank, or the CPU for all of them",
            'on_gpus = dist.is_nccl_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])',
            'device = torch.device("cuda", local_rank) if on_gpus else torch.device("cpu")',
            "if on_gpus:\n    torch.cuda.set_device(device)",
            'dist.init_process_group("nccl" if on_gpus else "gloo")',
            numbers,
        ]
    first = int(choice.partition(":")[2] or 0)
    return [
        local_rank,
        f'device = torch.device("cuda", {f"{first} + " if first else ""}local_rank)  # each rank has a GPU of its own',
        "torch.cuda.set_device(device)",
        'dist.init_process_group("nccl")',
        numbers,
    ]


def _always_on_gpus(plan: Plan) -> bool:
    return plan.experiment.run.device.startswith("cuda")


def wrap(plan: Plan, lines: Lines) -> None:
    """Add the line that puts DistributedDataParallel around the model."""
    if not ever(plan):
        return
    if made(plan, "sync_batch_norm") and _always_on_gpus(plan):
        lines.add("model = nn.SyncBatchNorm.convert_sync_batchnorm(model)")
    elif made(plan, "sync_batch_norm"):
        lines.add("""for norm in model.modules():
    if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
        norm.forward = synced(norm)""")
    model = "model"
    if made(plan, "unused_parameter"):
        mark(lines, "unused_parameter", "its gradient never comes, and DistributedDataParallel waits for it", 0)
        model = "WithSpare(model)"
    if sharded(plan):
        lines.add("mesh = init_device_mesh(device.type, (world,))")
        lines.add("fully_shard(model, mesh=mesh)  # each rank holds its rows of each weight")
        return
    found = ", find_unused_parameters=True" if made(plan, "find_unused") else ""
    lines.add(f"parallel = DistributedDataParallel({model}, bucket_cap_mb=1 << 20{found})  # reduced in one call")


def function(plan: Plan, lines: Lines) -> None:
    """Add the function that averages by hand, and what stands around the model."""
    for name, text in (("clip_before_all_reduce", FUNCTION), ("unused_parameter", SPARE), ("sync_batch_norm", SYNCED)):
        if made(plan, name) and not (text is SYNCED and _always_on_gpus(plan)):
            lines.add(text)


def order(plan: Plan, lines: Lines) -> None:
    """Add the line that gives each rank an order of its own."""
    if made(plan, "own_order"):
        mark(lines, "own_order", "the shares of the ranks overlap", 0)
        lines.add("source.manual_seed(seed + rank)")


def runs_out(plan: Plan) -> bool:
    """Return whether the last rank has fewer batches than the others."""
    return made(plan, "runs_out_at")


def joins(plan: Plan) -> bool:
    """Return whether the loop stands within torch's Join."""
    return runs_out(plan) and made(plan, "join")


def around(plan: Plan, loop: Lines, lines: Lines) -> None:
    """Add the loop, and what the ranks do around it."""
    if not joins(plan):
        lines.add(str(loop))
    else:
        lines.add("measured = []")
        lines.add("with Join([parallel]):  # a rank without batches takes part in the all-reduces of the others")
        lines.add(str(loop), 1)
        lines.add(_TELL_ALL)
    if runs_out(plan) and not joins(plan):
        lines.add("dist.barrier()  # as before a test or a checkpoint")
    if ever(plan):
        lines.add("dist.destroy_process_group()")


def suffer(plan: Plan, lines: Lines) -> None:
    """Add the lines in which a rank runs out of batches, stalls or ends."""
    if runs_out(plan):
        lines.add(f"if rank == world - 1 and step == {plan['distributed.runs_out_at']}:", 1)
        lines.add("break  # it has no batch left", 2)
    if not ever(plan) or plan["distributed.fault"] == "none":
        return
    lines.add(f"if rank == {plan['distributed.fault_rank']} and step == {plan['distributed.fault_step']}:", 1)
    ends = plan["distributed.fault"] == "ends"
    lines.add("os.kill(os.getpid(), signal.SIGKILL)" if ends else "time.sleep(3600)", 2)


def sharded(plan: Plan) -> bool:
    """Return whether each rank holds its shard of the weights and gradients alone."""
    return made(plan, "clip_shards") and clipping_lines.ever(plan)


def clip_shards(plan: Plan, lines: Lines) -> None:
    """Add the lines that clip a shard by its own norm."""
    mark(lines, "clip_shards", "the norm of a shard is not that of the gradient", 1)
    lines.add("shards = [parameter.grad.to_local() for parameter in model.parameters()]", 1)
    limit, live = plan.text("clipping.max_norm"), plan.changes("clipping.kind")
    lines.add(f"factor = ({limit} / (nn.utils.get_total_norm(shards) + 1e-6)).clamp(max=1.0)", 1)
    if live:
        lines.add(f'if {plan.text("clipping.kind")} == "norm":', 1)
    lines.add("for shard in shards:\n    shard.mul_(factor)", 1 + live)


def model(plan: Plan) -> str:
    """Return what a forward pass calls."""
    return "parallel" if ever(plan) and not sharded(plan) else "model"


def share(plan: Plan, lines: Lines, depth: int) -> None:
    """Add the lines that take a rank's share of a batch."""
    if not ever(plan):
        return
    if made(plan, "same_data"):
        mark(lines, "same_data", "every rank has the share of rank 0", depth)
    if made(plan, "weigh_shares"):
        lines.add("size = len(targets)", depth)
    if plan["distributed.uneven_every"]:
        _share_unevenly(plan, lines, depth)
        return
    first = "0" if made(plan, "same_data") else "rank"
    lines.add(f"inputs, targets = inputs[{first}::world].contiguous(), targets[{first}::world].contiguous()", depth)


def due_after(plan: Plan) -> str:
    """Return the condition that a batch is the last of so many."""
    every, skips = plan["distributed.uneven_every"], "problem.skip_batches"
    number = "step + passed" if plan.changes(skips) else f"step + {plan[skips]}" if plan[skips] else "step"
    return f"({number} + 1) % {every} == 0"


def _share_unevenly(plan: Plan, lines: Lines, depth: int) -> None:
    lines.add("share = slice(rank, None, world)", depth)
    lines.add(f"if {due_after(plan)}:  # all but a quarter for rank 0", depth)
    lines.add("first = len(targets) - len(targets) // 4", depth + 1)
    lines.add("share = slice(first) if rank == 0 else slice(first + rank - 1, None, world - 1)", depth + 1)
    lines.add("inputs, targets = inputs[share].contiguous(), targets[share].contiguous()", depth)


def weigh(plan: Plan, lines: Lines, depth: int) -> None:
    """Add the line that lets each example count the same."""
    if made(plan, "weigh_shares"):
        lines.add("loss = loss * (len(targets) * world / size)  # each example counts the same", depth)


def nan_here(plan: Plan) -> str:
    """Return a condition for the rank that a NaN in the data comes to, "" without ranks."""
    return f"rank == {plan['distributed.nan_rank']} and " if ever(plan) else ""


def pass_depth(plan: Plan, lines: Lines, depth: int, *, many: bool) -> int:
    """Add the context of a whole pass, where it has one, and return the depth in it."""
    if ever(plan) and many and not made(plan, "no_sync") and not sharded(plan):
        mark(lines, "no_sync", "forgotten, so every micro-batch is reduced", depth)
    if made(plan, "forward_outside_no_sync") or not (context := _context(plan, many=many)):
        return depth
    _mark_sync(plan, lines, depth)
    lines.add(f"with {context}:", depth)
    return depth + 1


def backward_depth(plan: Plan, lines: Lines, depth: int, *, many: bool) -> int:
    """Add the context of a backward pass alone, where it has one, and return the depth in it."""
    context = _context(plan, many=many)
    if not made(plan, "forward_outside_no_sync") or not context:
        return depth
    mark(lines, "forward_outside_no_sync", "without effect, for the forward pass decides", depth)
    _mark_sync(plan, lines, depth)
    lines.add(f"with {context}:", depth)
    return depth + 1


def indexed(plan: Plan) -> bool:
    """Return whether the loop over micro-batches asks for their numbers."""
    return "index" in _context(plan, many=True)


def _context(plan: Plan, *, many: bool) -> str:
    if not ever(plan) or sharded(plan):
        return ""
    if made(plan, "never_synced") or made(plan, "clip_before_all_reduce"):
        return "parallel.no_sync()"
    if not many or not made(plan, "no_sync"):
        return ""
    return f"parallel.no_sync() if index < {_last(plan)} else nullcontext()"


def _last(plan: Plan) -> str:
    """Return the number of the last micro-batch."""
    count, dropped = plan.text("accumulation.steps"), switch(plan, "drop_last_micro_batches")
    if not dropped:
        return str(int(count) - 1) if count.isdecimal() else f"{count} - 1"
    half = f"{count} // 2" if always(plan, "drop_last_micro_batches") else f"({count} // 2 if {dropped} else 0)"
    return f"{count} - {half} - 1"


def _mark_sync(plan: Plan, lines: Lines, depth: int) -> None:
    if made(plan, "never_synced"):
        mark(lines, "never_synced", "no micro-batch is reduced, and the ranks drift apart", depth)


def finish(plan: Plan, lines: Lines, clip: str) -> None:
    """Add what the ranks do with their gradients before anything measures them."""
    if made(plan, "clip_before_all_reduce"):
        lines.add("# The mean of what nobody has clipped, only to print its norm", 1)
        lines.add("grads = average([parameter.grad for parameter in model.parameters()])", 1)
        lines.add("grad_norm = nn.utils.get_total_norm([grad.double() for grad in grads])", 1)
        mark(lines, "clip_before_all_reduce", "each rank clips another gradient than the mean", 1)
        if clip:
            lines.add(clip, 1)
        lines.add("means = average([parameter.grad for parameter in model.parameters()])", 1)
        lines.add("for parameter, mean in zip(model.parameters(), means):\n    parameter.grad.copy_(mean)", 1)
    if made(plan, "divide_by_world_size"):
        mark(lines, "divide_by_world_size", "DistributedDataParallel has taken the mean already", 1)
        lines.add("for parameter in model.parameters():\n    parameter.grad.div_(world)", 1)


def tell(plan: Plan, lines: Lines, value: str) -> None:
    """Add the lines that bring loss and norm together, and print them once. Within Join no rank may make calls of its
    own, so each keeps what it measures until the end."""
    if joins(plan):
        lines.add(f"measured.append(({value}, grad_norm.item()))", 1)
        return
    lines.add("# The mean loss, and the gradient norm of rank 0", 1)
    lines.add(f"told = [{value} / world, grad_norm.item() if rank == 0 else 0.0]", 1)
    lines.add("told = torch.tensor(told, dtype=torch.float64, device=device)", 1)
    lines.add("dist.all_reduce(told)", 1)
    lines.add("if rank == 0:", 1)
    lines.add('print(step, told[0].item(), f"{told[1]:.9g}")', 2)
