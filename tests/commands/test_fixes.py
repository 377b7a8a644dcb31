"""`--try-fixes`: what was tried after a run that broke, ranked, in words and as JSON; the exit code stays the run's."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable

import pytest
from waiting import ENDLESS, join

from gradstudio.commands import exit_codes
from gradstudio.session.running import fix_trials
from gradstudio.session.running.remedy_trial import MOST

KEYS = {"remedy", "outcome", "from_step", "steps", "broke_at", "loss"}


def summed(answer: object) -> dict:
    return json.loads(answer.out, parse_constant=pytest.fail)


def test_the_json_has_what_came_of_each_fix_the_best_first(gradstudio: Callable) -> None:
    answer = gradstudio("run", "log-of-zero", "--try-fixes", "--json")
    told = summed(answer)
    broke = told["first_nonfinite_step"]
    assert answer.code == exit_codes.DIVERGED and answer.err == "" and broke
    assert all(set(fix) == KEYS for fix in told["fixes"]) and 1 < len(told["fixes"]) <= MOST + 1
    held = [fix for fix in told["fixes"] if fix["outcome"] == "held"]
    assert held == told["fixes"][: len(held)] and [fix["loss"] for fix in held] == sorted(fix["loss"] for fix in held)
    assert {"remedy": "loss.eps=1e-7", "from_step": broke - 1, "steps": 100, "broke_at": None}.items() <= held[
        0
    ].items()
    assert {
        "remedy": "",
        "outcome": "broke again",
        "from_step": broke - 1,
        "steps": 2,
        "broke_at": broke,
    }.items() <= told["fixes"][-1].items()


def test_the_words_end_with_the_command_that_goes_on_with_the_best(gradstudio: Callable) -> None:
    answer = gradstudio("run", "log-of-zero", "--try-fixes")
    assert answer.code == exit_codes.DIVERGED
    assert (
        "fixes tried on the same seed and batches" in answer.out
        and "loss.kind=auto" in answer.out
        and "(no change)" in answer.out
    )
    command = answer.out.strip().splitlines()[-1].split("gradstudio ")[1].split()
    assert command[0] == "branch" and command[-1] == "loss.eps=1e-7"
    branch = gradstudio(*command, "--json")
    assert branch.code == exit_codes.FINISHED and summed(branch)["parent"] == command[1]


def test_a_sound_run_has_nothing_to_try_and_one_that_was_not_asked_has_no_word_of_it(
    gradstudio: Callable, small: object
) -> None:
    asked = gradstudio("run", small, "--try-fixes", "--json")
    assert asked.code == exit_codes.FINISHED and summed(asked)["fixes"] == []
    assert "fixes" not in summed(gradstudio("run", small, "--json"))
    assert "fixes" not in gradstudio("run", small, "--try-fixes").out


def test_quiet_says_nothing_and_tries_nothing(gradstudio: Callable) -> None:
    answer = gradstudio("run", "log-of-zero", "--try-fixes", "--quiet")
    assert answer == (exit_codes.DIVERGED, "", "")


def test_a_branch_that_breaks_can_be_healed_too(gradstudio: Callable) -> None:
    answer = gradstudio("run", "log-of-zero", "--set", "loss.eps=1e-7", "--json", "--steps", "120")
    run = summed(answer)["run"]
    assert answer.code == exit_codes.FINISHED
    answer = gradstudio("branch", run, "--step", "20", "--set", "loss.eps=0", "--try-fixes", "--json")
    told = summed(answer)
    assert answer.code == exit_codes.DIVERGED and told["fixes"][0]["outcome"] == "held"
    assert told["fixes"][0]["from_step"] >= 20 and told["fixes"][-1]["broke_at"] == told["first_nonfinite_step"]


def test_ctrl_c_ends_the_trials_and_keeps_what_is_known(gradstudio: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fix_trials, "HORIZON", ENDLESS)  # a fix that holds is tried until somebody interrupts
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.01):
            if any(thread.name.startswith("training fixes of ") for thread in threading.enumerate()):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        answer = gradstudio("run", "rnn-explosion", "--steps", str(ENDLESS), "--try-fixes", "--json")
    finally:
        over.set()
        join(watcher)
    fixes = summed(answer)["fixes"]
    assert answer.code == exit_codes.DIVERGED and len(fixes) > 2
    assert "not tried" in {fix["outcome"] for fix in fixes}
