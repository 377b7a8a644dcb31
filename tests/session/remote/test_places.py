"""A run at a place is as every run, and a connection that breaks ends in one line."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import slow_connection
import ssh_server
from remote_workers import SMALL
from waiting import ENDLESS, PATIENCE, hold, join, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.core.worker_places import TO_INSTALL, Place
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.store import Library
from gradstudio.session.map.map_plan import read_plan
from gradstudio.session.map.mapper import Mapper
from gradstudio.session.map.place_cells import PlaceCells
from gradstudio.session.map.train_cell import Bench, Order
from gradstudio.session.remote import remote_backend
from gradstudio.session.remote.place_library import PlaceLibrary, import_run
from gradstudio.session.remote.remote_backend import RemoteBackend
from gradstudio.session.running.backend import LocalBackend
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.run_state import describe
from gradstudio.worker import worker_process

ROOT = Path(__file__).parents[3]
OLDER = (
    f'env PYTHONPATH={ROOT} {sys.executable} -c \'import sys, gradstudio; gradstudio.__version__ = "0.0.1"; '
    "from gradstudio.session.remote import serving; serving.main(sys.argv[-1])'"
)


def small(**values: object) -> Preset:
    knobs = SMALL | {"run.steps": ENDLESS} | {name.replace("__", "."): value for name, value in values.items()}
    return Preset(id="small", title="Small", experiment=Experiment().with_values(knobs))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place behind ssh."""
    if ssh_server.MISSING:
        pytest.skip("there is no sshd")
    with ssh_server.serving(tmp_path_factory.mktemp("ssh")) as command:
        yield Place("lab", command)


@pytest.fixture(scope="module")
def there(lab: Place) -> Iterator[RemoteBackend]:
    class Shared(RemoteBackend):
        def close(self) -> None:
            pass

    one = Shared(lambda: remote_backend.start_at(lab), ahead=False)
    yield one
    RemoteBackend.close(one)


@pytest.fixture
def one(there: RemoteBackend, tmp_path: Path) -> Iterator[Simulator]:
    made = Simulator(small(), tmp_path / "runs.sqlite3", backend=there)
    yield made
    assert made.close(PATIENCE)


def test_live_knobs_rewind_and_twins_there(one: Simulator, tmp_path: Path) -> None:
    here = Simulator(small(run__steps=30), backend=LocalBackend())
    here.play()
    until(lambda: here.run.over)
    hold(one, 5)
    one.set("optimizer.lr", 0.25)
    until(lambda: one.run.in_force.optimizer.lr == 0.25)
    one.step()
    until(lambda: len(one.run.history) == 6)
    assert one.run.history.value("lr", 5) == 0.25
    one.rewind(3)
    until(lambda: one.run.status == "paused" and one.run.replayed is None and len(one.run.history) == 3)
    one.undo()
    assert one.run.differs_at is None
    one.load(small(run__steps=30))
    one.start_twins("optimizer.lr", 0.4)
    until(lambda: one.run.over and one.twins is not None and one.twins.other.over)
    assert [one.run.history.value("loss", step) for step in range(30)] == [
        here.run.history.value("loss", step) for step in range(30)
    ]
    look = one.trained_by.layers(one.run, 12)
    look.start()
    join(look)
    assert look.problem == "" == look.failure
    assert here.close(PATIENCE)


def test_a_connection_that_breaks(one: Simulator, there: RemoteBackend) -> None:
    one.play()
    until(lambda: len(one.run.history) > 50 and len(one.snapshots))
    process, run = there.warm(), one.run
    assert process.hello is not None and process.pid is not None
    trainer = process.hello["pid"]
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: run.over)
    count = len(run.history)
    assert run.status == "failed" and run.message.startswith("The worker on lab is gone, as its command was ended. ")
    assert "\n" not in run.message and count > 50
    until(lambda: not one.leaves(run.id) and not Path(f"/proc/{trainer}").exists())
    one.rewind(30)
    until(lambda: one.run.status == "paused" and one.run.replayed is None)
    assert one.run.differs_at is None and there.warm() is not process


def test_the_worker_there_is_killed(one: Simulator, there: RemoteBackend) -> None:
    one.play()
    until(lambda: len(one.run.history) > 50)
    hello = there.warm().hello
    assert hello is not None
    os.kill(hello["pid"], signal.SIGKILL)
    until(lambda: one.run.over)
    assert one.run.message.startswith("The worker on lab is gone, as its command ended with exit code ")


def test_the_next_family_trains_at_the_place_that_is_chosen(tmp_path: Path) -> None:
    one = Simulator(small(run__steps=5), tmp_path / "runs.sqlite3")
    hold(one, 2)
    one.train_at(Place("nowhere", "/nowhere/python"), "cpu")
    one.play()  # where it has begun
    until(lambda: one.run.over)
    assert one.run.status == "finished"
    one.restart()
    until(lambda: one.run.over)
    assert one.run.message == "The worker cannot be started on nowhere: No such file or directory."
    assert one.undo() == {"run.device": "cpu"} and one.next_place is None  # the place was requested with the device
    one.restart()
    until(lambda: one.run.over)
    assert one.run.status == "finished" and one.close(PATIENCE)
    with closing(Library(tmp_path / "runs.sqlite3")) as library:  # what never began is not kept
        assert [entry.outcome for entry in library.entries()] == ["finished", "finished"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sh -c 'exit 127'", f"ended with exit code 127: {TO_INSTALL}."),
        ("sh -c 'echo Lost the way. >&2; exit 9'", "ended with exit code 9: Lost the way."),
        (
            "sh -c 'echo Fatal Python error: Segmentation fault >&2; echo Extension modules: torch >&2; exit 139'",
            "ended with exit code 139: Segmentation fault.",
        ),
        (OLDER, f"was ended: it has GradStudio 0.0.1: {TO_INSTALL}."),
        (
            f"{sys.executable} -c 'print(1)'",
            "ended with exit code 0: it did not greet as a worker of this program does.",
        ),
    ],
)
def test_a_command_that_leads_nowhere(command: str, told: str) -> None:
    backend = remote_backend.at(Place("lab", command))
    one = Simulator(small(), backend=backend)
    one.play()
    until(lambda: one.run.over)
    assert one.run.message == f"The worker on lab is gone, as its command {told}"
    assert one.close(PATIENCE)


def test_stop_ends_a_command_that_says_nothing() -> None:
    one = Simulator(small(), backend=remote_backend.at(Place("lab", "sleep 600 #")))
    one.play()
    one.stop()
    until(lambda: one.abandon_stuck() or one.run.over)
    assert one.run.status == "stopped" and one.close(PATIENCE)


def test_the_library_of_a_place(lab: Place, there: RemoteBackend, tmp_path: Path) -> None:
    """The runs there are listed, one is followed as it grows and asked to stop, and copied home."""
    library = PlaceLibrary(lab, there)
    with pytest.raises(LibraryError, match=r"^lab: there is no run library"):
        library.entries()
    folder = Path(re.findall("XDG_DATA_HOME=(\\S+)", lab.command)[0])
    trains = Simulator(small(), folder / "gradstudio" / "library.sqlite3")
    hold(trains, 40)
    trains.rename_run(trains.run, "Long one")
    until(
        lambda: [(each.title, each.steps, each.outcome) for each in library.entries()] == [("Long one", 40, "paused")]
    )
    assert [entry.title for entry in library.entries("long")] == ["Long one"] and library.entries("short") == []
    followed = library.follow(trains.run.id[:-2])
    run = followed.wait()
    assert (run.id, run.title, len(run.history)) == (trains.run.id, "Long one", 40) and run.status == "paused"
    trains.play()
    until(lambda: len(run.history) > 60)
    other = library.follow(run.id)
    other.wait()
    other.lose("on lab is gone", "")
    assert describe(other.wait()).headline == "Followed no more" and other.problem == "The worker on lab is gone."
    library.request(run.id, "stop", 1.0)
    until(lambda: run.over and followed.over)
    assert run.status == "stopped" and len(run.history) == len(trains.run.history) and followed.problem == ""
    assert run.history.table(0, 50).tobytes() == trains.run.history.table(0, 50).tobytes()
    with closing(Library(tmp_path / "runs.sqlite3")) as home:
        assert import_run(home, library.fetch("last")) == run.id
        assert len(home.load(run.id).history) == len(run.history)
    with pytest.raises(LibraryError, match=r"^lab: no run nothing in"):
        library.follow("nothing").wait()
    assert trains.close(PATIENCE)


def test_cells_of_a_map_train_there(lab: Place, there: RemoteBackend, tmp_path: Path) -> None:
    preset = small(run__steps=3)
    plan = read_plan(
        preset, "optimizer.lr=0.1:10:log", "clipping.max_norm=0.1:1:log", 2, "clipping.kind=norm", 1, full=True
    )
    mapper = Mapper(plan, tmp_path / "there.map", there=PlaceCells(lab, there))
    mapper.run()
    assert (mapper.status, len(mapper.results)) == ("finished", 4), mapper.message
    job, trained = mapper.results[-1]
    here = Bench().train(Order(plan.experiment_of(job), plan.timeline), lambda: False)
    assert here is not None and (here.outcome, here.loss) == (trained.outcome, trained.loss)


def test_a_run_is_kept_there_and_picked_up_again(
    lab: Place, there: RemoteBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a slow connection that stalls: the run ends here in one line, and goes on into the library there."""
    with slow_connection.slow(ssh_server.port_of(lab.command), delay=0.05) as connection:
        far = Place("far", lab.command.replace("lab env", f"-p {connection.port} lab env"), keep=True)
        home = tmp_path / "runs.sqlite3"
        one = Simulator(small(), home, backend=remote_backend.at(far))
        one.play()
        until(lambda: len(one.run.history) > 50)
        connection.stall()
        monkeypatch.setattr(worker_process, "GONE", 2.0)
        until(lambda: one.run.over)
        monkeypatch.undo()
        run, count = one.run, len(one.run.history)
        assert run.status == "failed" and count > 50 and run.message.endswith(
            "nothing came from it for 2 s. If it lives, it goes on into the library there: gradstudio open far follows it."
        )  # fmt: skip
        assert run.message.startswith("The worker on far is gone") and one.close(PATIENCE)
    library = PlaceLibrary(lab, there)
    until(lambda: is_listed(library, run.id))
    followed = library.follow(run.id)
    until(lambda: len(followed.wait().history) > count + 50)
    library.request(run.id, "stop", 1.0)
    until(lambda: followed.over)
    again = followed.wait()
    assert (
        again.status == "stopped" and again.history.table(0, count).tobytes() == run.history.table(0, count).tobytes()
    )
    with closing(Library(home)) as kept:
        assert len(kept.load(run.id).history) == count
        assert import_run(kept, library.fetch(run.id)) == run.id
        assert len(kept.load(run.id).history) == len(again.history)
        with pytest.raises(LibraryError, match="already"):
            import_run(kept, library.fetch(run.id))


def is_listed(library: PlaceLibrary, run: str) -> bool:
    with suppress(LibraryError):
        return run in [entry.id for entry in library.entries()]
    return False
