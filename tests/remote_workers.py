"""One worker for all tests: to start one takes seconds."""

from __future__ import annotations

from gradstudio.session.remote.remote_backend import RemoteBackend

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 60, "run.device": "cpu"}


class Shared(RemoteBackend):
    """Workers that outlive a simulator."""

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()
