"""The device, and with several ranks how they find each other."""

import os

import torch
import torch.distributed as dist

from gradstudio.program.reference.settings import *

if plan.ranks:
    if knobs.run_device == "cpu":
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        device = torch.device("cpu")
    else:
        local_rank = int(os.environ["LOCAL_RANK"])
        if knobs.run_device == "auto":
            # A GPU for each rank, or the CPU for all of them
            on_gpus = dist.is_nccl_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
            device = torch.device("cuda", local_rank) if on_gpus else torch.device("cpu")
            if on_gpus:
                torch.cuda.set_device(device)
            dist.init_process_group("nccl" if on_gpus else "gloo")
        else:
            device = torch.device("cuda", plan.first_gpu + local_rank)  # each rank has a GPU of its own
            torch.cuda.set_device(device)
            dist.init_process_group("nccl")
        rank, world = dist.get_rank(), dist.get_world_size()
elif knobs.run_device == "auto":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
else:
    device = torch.device(knobs.run_device)
seed = knobs.run_seed
