"""torch's global random generators are left as they were."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from gradstudio.engine import chance


def test_a_thread_that_was_left_behind_takes_nothing_from_the_next_one() -> None:
    """The system gives the number of a thread that has ended to the next one."""

    def in_a_thread(work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    def draw() -> None:
        with chance.preserve("cpu"):
            torch.rand(1)

    before = torch.get_rng_state()
    in_a_thread(lambda: chance.leave(threading.current_thread()))
    in_a_thread(draw)
    assert torch.equal(torch.get_rng_state(), before)
