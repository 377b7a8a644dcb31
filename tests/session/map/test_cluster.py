"""A map on a Dask scheduler with a worker, where Dask is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from session.map.test_map import plan_of
from waiting import PATIENCE, until

from gradstudio.session.map.cluster import Cluster
from gradstudio.session.map.mapper import Mapper
from gradstudio.session.map.workers import CrewError

pytest.importorskip("distributed")


@pytest.fixture
def scheduler_file(tmp_path: Path) -> Iterator[str]:
    file = str(tmp_path / "scheduler.json")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    common = ["--scheduler-file", file, "--no-dashboard"]
    started = [
        subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{what}", *common, *more], env=environment)
        for what, more in (("scheduler", ["--port", "0", "--host", "127.0.0.1"]), ("worker", ["--nthreads", "1"]))
    ]
    yield file
    for each in reversed(started):
        each.kill()
        each.wait()


def test_a_map_on_a_cluster_is_that_of_this_machine(scheduler_file: str, tmp_path: Path) -> None:
    until(Path(scheduler_file).exists)
    plan, found = plan_of(4, full=True), []
    for cluster in (scheduler_file, ""):
        mapper = Mapper(plan, tmp_path / f"{len(found)}.map", size=1, cluster=cluster)
        mapper.start()
        mapper.join(PATIENCE)
        assert mapper.status == "finished", mapper.message
        found.append({job: (trained.outcome, trained.step, repr(trained.loss)) for job, trained in mapper.results})
    assert found[0] == found[1] and len(found[0]) == 16


def test_a_scheduler_that_is_not_there_is_named() -> None:
    with pytest.raises(CrewError, match="allowed: tcp://HOST:PORT, or a scheduler file"):
        Cluster("nowhere.json")
