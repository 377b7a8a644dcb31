"""Run plain programs one after the other in one rank, as torchrun would start each: `python ranks_by_torchrun.py RANK
WORLD PORT PROGRAM PORT PROGRAM ...`. Rank 0 writes what each prints beside it. At each port somebody else keeps a store
(meeting_places.py), one for each program, as both would find what the one before has left there."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

import torch.distributed as dist

rank, world, *rest = sys.argv[1:]
os.environ |= {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
for port, program in zip(rest[::2], map(Path, rest[1::2]), strict=True):
    os.environ["MASTER_PORT"] = port
    printed = io.StringIO()
    sys.argv = [str(program)]
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(program.read_text(encoding="utf-8"), program, "exec"), {"__name__": "__main__"})
        except RuntimeError as fault:
            if not dist.is_initialized():  # the ranks have not met
                raise
            print(str(fault).partition(".")[0])
            dist.destroy_process_group()
    if rank == "0":
        program.with_suffix(".txt").write_text(printed.getvalue(), encoding="utf-8")
os._exit(0)  # threads of torch's may abort a process that takes its time to end
