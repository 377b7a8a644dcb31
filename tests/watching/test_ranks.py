"""Trainings of several processes are one run, with the figures of all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from waiting import PATIENCE

from gradstudio.core.unknown import is_known
from gradstudio.crash import crash_fixes, recorded_training
from gradstudio.session.files import crash_file, crash_reading
from gradstudio.session.files.crash_answers import contents
from gradstudio.session.library.store import Library
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.watching.hooks.rank_place import Place
from gradstudio.watching.ranks.joined_run import Sender
from gradstudio.watching.ranks.mail import Mail
from gradstudio.watching.ranks.rank_letters import Letter

SCRIPT, ROOT = Path(__file__).parent / "script_of_ranks.py", str(Path(__file__).parents[2])
has_no_parts = torch.__version__.startswith(("2.4.", "2.5."))
of_parts = pytest.mark.skipif(has_no_parts, reason="fully_shard of this torch needs a GPU")
COLUMNS = ("loss", "loss_spread", "grad_norm", "clipped_norm", "weight_norm", "update_ratio")


class Trained(NamedTuple):
    """What the library has of the trainings, by title, what rank 0 knows of them by hand, and what was said."""

    runs: dict[str, Run]
    known: dict[str, Any]
    said: str
    crashes: list[Path]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("ranks")
    what = "replicated, flat, one ends" if has_no_parts else "replicated, parted, flat, one ends"
    command = [sys.executable, SCRIPT, folder / "runs.db", folder / "known.json", what]
    environment = os.environ | {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    library = Library(folder / "runs.db")
    runs = {entry.title: library.load(entry.id) for entry in library.entries()}
    assert len(runs) == len(library.entries()), done.stderr
    library.close()
    known = folder / "known.json"
    return Trained(
        runs, json.loads(known.read_text()) if known.exists() else {}, done.stderr, [*folder.glob("crashes/*")]
    )


def agrees(found: Trained, title: str) -> None:
    run = found.runs[title]
    assert len(run.history) == 4
    for place, name in enumerate(COLUMNS):
        wanted = [row[place] for row in found.known[title]]
        assert run.history.column(name).tolist() == pytest.approx(wanted, rel=1e-6, nan_ok=True), (title, name)


def notices(run: Run) -> list[str]:
    return [event.text for event in run.events if event.kind == "notice"]


@pytest.mark.parametrize(
    "title",
    [
        "replicated",
        "accumulated",
        "hooked",
        "zero",
        "reducing",
        "two reducing",
        "averaged by the script",
        "averaged by the script, clipped",
        "averaged by the script, nan",
        "nan",
    ],
)
def test_several_ranks_are_one_run_with_the_mean_loss_and_the_norm_of_all(trained: Trained, title: str) -> None:
    agrees(trained, title)
    run = trained.runs[title]
    assert run.watched is not None and "0 of 3" in dict(run.watched.facts)["rank"]
    assert [text for text in notices(run) if text.startswith("rank 1 trains on ")]


@of_parts
@pytest.mark.parametrize(
    "title",
    [
        "parted",
        "parted, accumulated",
        "parted, mixed",
        "two parted",
        "parted and copied",
        "parted, offloaded",
        "tensor parallel",
    ],
)
def test_parts_of_a_gradient_are_added_up(trained: Trained, title: str) -> None:
    agrees(trained, title)
    names = ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert [layer.name for layer in trained.runs[title].history.layers] == names


@pytest.mark.parametrize(
    "title",
    [
        "flat", "flat, in one", "flat, accumulated", "flat, nested", "flat, mixed", "flat, whole", "flat, in one group",
        "flat, nan",
    ],
)  # fmt: skip
def test_pieces_of_flat_parameters_are_added_up(trained: Trained, title: str) -> None:
    agrees(trained, title)
    layers = trained.runs[title].history.layers
    assert sum(layer.size for layer in layers) == 6 * 12 + 12 + 12 * 4 + 4
    if title != "flat, in one":
        assert [layer.role for layer in layers] == ["weight", "bias"] * 2
    assert "unused_layers" not in trained.runs[title].findings


def test_a_norm_that_no_rank_sees_is_unknown_and_its_local_ones_are_told(trained: Trained) -> None:
    run = trained.runs["aside"]
    for name in ("grad_norm", "clipped_norm"):
        assert not any(map(is_known, run.history.column(name)))
    assert np.isfinite(run.history.column("loss")).all()
    assert [text for text in notices(run) if "with local norms" in text and "of the update is not known" in text]


@pytest.mark.parametrize(
    ("title", "born"), [("nan", "input 0 of the model holds 1 NaN"), ("log", "the logarithm of a negative")]
)
def test_the_rank_that_brought_a_nan_is_named_with_its_birth(trained: Trained, title: str, born: str) -> None:
    run = trained.runs[title]
    assert run.first_nonfinite_step == 2 and run.provenance is not None
    assert run.provenance.rank == 1 and run.provenance.cause.startswith(born)
    first = ranked_findings(run)[0]
    assert first.title == "NaN or Inf on rank 1" and "nonfinite_loss" in run.findings
    assert "At step 2 the loss of rank 1 was NaN, and that of rank 0 was" in first.evidence and born in first.evidence


def test_the_rank_whose_batch_broke_writes_a_crash_file_of_that_step(trained: Trained) -> None:
    of_runs = {path.stem.rpartition("-")[0]: path for path in trained.crashes if ".rank" not in path.name}
    assert set(of_runs) <= {run.id for run in trained.runs.values()}
    path = of_runs[trained.runs["nan"].id]
    assert "the batch of another rank gave it" in crash_reading.read(path).structure.unknown
    made = crash_reading.read(path.with_name(f"{path.stem}.rank1.crash")).structure
    assert not made.unknown and len(made.steps) == 1 and made.born is not None and made.born.step == 2


@pytest.mark.parametrize(
    ("title", "ranks"),
    [("nan", ["", ".rank1"]), ("averaged by the script, nan", ["", ".rank1"]), ("reducing, nan", [""])],
)
def test_files_of_all_ranks_bear_the_number_of_the_step_that_broke(
    trained: Trained, title: str, ranks: list[str]
) -> None:
    """Where gradients are reduced after the backward pass, rank 0 sees it by the gradient it gets, or by its weights."""
    run = trained.runs[title].id
    assert trained.runs[title].first_nonfinite_step == 2
    assert sorted(each.name for each in trained.crashes if run in each.name) == [
        f"{run}-2{rank}.crash" for rank in ranks
    ]


@pytest.mark.parametrize("title", ["nan", "averaged by the script, nan"])
def test_without_a_bad_batch_the_fix_is_tried_on_that_of_another_rank(trained: Trained, title: str) -> None:
    run = trained.runs[title].id
    crash = crash_reading.read(next(each for each in trained.crashes if each.name == f"{run}-2.rank1.crash"))
    own, *others = map(recorded_training.load, (crash, *crash_reading.of_other_ranks(crash)))
    held = {each.change.name: each for each in crash_fixes.try_fixes(own, others=others).trials if each.holds}
    assert set(held) == {"leave out examples that are not finite", "skip the step on every rank"}
    assert "12 updates over the batch of rank 0" in held["skip the step on every rank"].words
    assert not [each for each in crash_fixes.try_fixes(own).trials if each.holds and each.change.skipped]


@of_parts
def test_each_rank_writes_its_part_of_the_weights_beside_that_of_rank_0(trained: Trained) -> None:
    run = trained.runs["parted, log"].id
    files = sorted(path for path in trained.crashes if path.stem.startswith(run))
    assert [path.stem.removeprefix(run) for path in files] == ["-2", "-2.rank1", "-2.rank2"]
    of_ranks = [crash_reading.read(path) for path in files]
    stored = [each.tensors["weight first.weight"] for each in of_ranks]
    assert sum(each.shape[0] for each in stored) == 12 and of_ranks[1].structure.whole["first.weight"] == [12, 6]
    assert ("rank", "1 of 3, its part of 4 weights; beside it: 0 and 2") in contents(of_ranks[1])
    assert "takes all ranks" in of_ranks[1].structure.unknown
    assert crash_file.latest_of(files[0].parents[1] / "runs.db", run) == files[0]
    assert "no crash file can be written" not in trained.said


@of_parts
def test_a_pass_that_takes_all_ranks_is_not_made_again_by_one(trained: Trained) -> None:
    run = trained.runs["parted, log"]
    assert run.first_nonfinite_step == 2 and len(run.history) == 4
    assert run.provenance is not None and (run.provenance.rank, run.provenance.operation) == (1, "LogBackward0")
    given = trained.runs["parted, nan"].provenance
    assert given is not None and given.rank == 1 and "holds 1 NaN before the pass" in given.cause


@of_parts
def test_the_state_of_a_part_is_looked_at(trained: Trained) -> None:
    assert "spoiled_state" in trained.runs["parted, spoiled"].findings


def test_what_the_other_ranks_would_not_know_of_is_refused(trained: Trained) -> None:
    """A step that is skipped, and another learning rate."""
    for title in ("skip", "rate"):
        agrees(trained, title)
    assert trained.runs["skip"].first_nonfinite_step == 2
    assert "an update is not skipped where several ranks train, as the others may make it" in trained.said
    assert "the learning rate stays, as the other ranks would not know of another" in notices(trained.runs["rate"])


def test_a_rank_that_ends_leaves_the_rows_before_it(trained: Trained) -> None:
    """The others fail in the step that they cannot make without it."""
    run = trained.runs["one ends"]
    assert run.status in ("failed", "interrupted") and len(run.history) <= 10
    assert "watching ended" not in trained.said


def test_no_letter_is_lost_where_the_script_and_the_postman_send_at_once() -> None:
    class Store(dist.HashStore):
        """One in which another letter is sent while the first is on its way."""

        def set(self, key: str, value: Any) -> None:
            super().set(key, value)
            if key == "letter/1/0" and not others:
                others.append(threading.Thread(target=sender.go_round))
                others[0].start()
                others[0].join(0.1)

    others: list[threading.Thread] = []
    mail = Mail.__new__(Mail)
    mail._store, mail._sent, mail._read = Store(), 0, {}
    card = {"layers": "of both", "run": "of rank 0"}
    mail.show(0, card)
    sender = Sender(mail, Place(1, 2, "", "here", ""), card, cast("Any", None), lambda: None)
    sender.skip("a batch was skipped")
    sender.close()
    others[0].join()
    sender.go_round()  # once more
    letters = [Letter.from_bytes(text) for text in iter(lambda: mail.receive(1), None)]
    assert [(each.skipped, each.over) for each in letters] == [(["a batch was skipped"], True)]


def test_a_launcher_is_not_watched_itself(gradstudio: Callable[..., Any]) -> None:
    answer = gradstudio("watch", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py", "--lr", "1")
    assert answer.code == 2
    assert "torchrun --nproc-per-node 2 --no-python gradstudio watch train.py --lr 1" in answer.err


def test_under_a_launcher_every_rank_is_watched_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--no-python"]
    watch = ["-m", "gradstudio", "watch", "--json", "--out", "out.json", "--library", "runs.db", "train.py"]
    command = [sys.executable, *launcher, sys.executable, *watch]
    environment = os.environ | {"PYTHONPATH": ROOT}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    (told,) = json.loads((tmp_path / "out.json").read_text())
    losses = [json.loads((tmp_path / f"losses-{rank}.json").read_text()) for rank in range(2)]
    means = np.mean(losses, axis=0)
    library = Library(tmp_path / "runs.db")
    (entry,) = library.entries()
    run = library.load(entry.id)
    library.close()
    assert told["steps"] == 5 and run.history.column("loss").tolist() == pytest.approx(means.tolist(), rel=1e-9)
    assert done.stderr.count("5 rows, finished") == 1


PLAIN = """
import json, torch, torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from gradstudio.watching.ranks import joined_run
joined_run.SILENT = joined_run.AT_THE_END = 1e6  # seconds; a rank may be slow
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
draw, losses = torch.Generator().manual_seed(dist.get_rank()), []
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 6, generator=draw)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with open(f"losses-{dist.get_rank()}.json", "w") as file:
    json.dump(losses, file)
dist.destroy_process_group()
"""
