"""A real sshd on the loopback, with keys of its own, for as long as somebody uses it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

from waiting import until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
MISSING = SSHD is None or shutil.which("ssh") is None
_ROOT = Path(__file__).parent.parent


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yield the command that leads to this Python through ssh."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "own.pub", folder / "authorized")
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
    )
    (folder / "config").write_text(
        f"Host lab\nHostName 127.0.0.1\nPort {port}\nUser {getuser()}\nIdentityFile {folder}/own\nBatchMode yes\n"
        f"UserKnownHostsFile {folder}/known\nStrictHostKeyChecking accept-new\nLogLevel ERROR\nControlMaster no\n"
    )
    server = subprocess.Popen([str(SSHD), "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(port))
        yield (
            f"ssh -F {folder}/config lab env PYTHONPATH={_ROOT} XDG_DATA_HOME={folder} GRADSTUDIO_THREADS=1 "
            f"OMP_NUM_THREADS=1 {sys.executable}"
        )
    finally:
        server.kill()
        server.wait()


def port_of(command: str) -> int:
    """Return the port to which such a command leads."""
    folder = re.findall("XDG_DATA_HOME=(\\S+)", command)[0]
    return int(re.findall(r"Port (\d+)", Path(folder, "config").read_text())[0])


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
