"""A single rank, over a group of its own for what is on its device, in a process of its own: `python one_rank.py DEVICE
BACKEND KNOB=VALUE ...`. Prints what its steps measured and where its first NaN or Inf was born, as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradstudio.core.experiment import Experiment
from gradstudio.core.provenance import Provenance


def one_rank(device: str, backend: str, *assignments: str) -> dict[str, Any]:
    """Return what the program prints."""
    command = [sys.executable, __file__, device, backend, *assignments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main(device: str, backend: str, *assignments: str) -> None:
    from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]

    from gradstudio.engine.ranks import collectives, rank_replay
    from gradstudio.engine.ranks.rank_trainer import RankTrainer

    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    experiment = Experiment().with_texts(list(assignments))
    calls: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        collectives.open_device(device)
        collectives.meet(FileStore(str(Path(folder) / "store"), 1), 0, 1)
        together = collectives.Collectives(1, device, collectives.group_of_devices(backend, device), calls.append)
        trainer = RankTrainer(experiment, 0, together, lambda: None)
        rows = [row for _ in range(experiment.run.steps) for row in trainer.advance()]
        figures = trainer.figures(rows[-1])
        found = rank_replay.search(trainer)
    waited = calls == [True, False] * (len(calls) // 2)
    told = {
        "losses": [row.loss for row in rows], "norms": [row.grad_norm for row in rows], "own": figures.norm,
        "reductions": figures.reductions, "seconds": figures.seconds, "computing": figures.computing,
        "found": found.phase if isinstance(found, Provenance) else found, "waited": waited and len(calls),
        "device": trainer.flat.weights.device.type,
    }  # fmt: skip
    print(json.dumps(told), flush=True)
    os._exit(0)  # as a rank ends


if __name__ == "__main__":
    main(*sys.argv[1:])
