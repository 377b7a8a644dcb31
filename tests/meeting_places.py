"""Where the ranks of a program find each other, as torchrun makes it: each a store that listens until it is let go of.
A port that was merely free a moment ago may belong to another program by the time the ranks come to it."""

from __future__ import annotations

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]


def meeting_places(count: int) -> list[TCPStore]:
    """Return so many stores; `port` of each is what MASTER_PORT has to be. Keep them until the ranks have met."""
    return [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(count)]
