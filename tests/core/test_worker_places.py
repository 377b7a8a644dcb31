"""Places: the command line of each, and the file that keeps them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradstudio.core import worker_places
from gradstudio.core.worker_places import Place, PlaceError


@pytest.fixture(autouse=True)
def own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ssh lab", ["ssh", "lab", "gradstudio"]),
        ("ssh lab gradstudio", ["ssh", "lab", "gradstudio"]),
        ("docker exec -i box", ["docker", "exec", "-i", "box", "gradstudio"]),
        ("srun --gres=gpu:1", ["srun", "--gres=gpu:1", "gradstudio"]),
        ("~/a/bin/python", [os.path.expanduser("~/a/bin/python"), "-P", "-m", "gradstudio"]),
        ("env X=1 /a/python3.12", ["env", "X=1", "/a/python3.12", "-P", "-m", "gradstudio"]),
        ("'/a b/python' -m gradstudio worker", ["/a b/python", "-m", "gradstudio"]),
        ("ssh lab 'rm; echo $HOME'", ["ssh", "lab", "rm; echo $HOME", "gradstudio"]),
    ],
)
def test_the_command_line(command: str, words: list[str]) -> None:
    assert Place("a", command).words("worker", "1") == [*words, "worker", "1"]


def test_places_are_kept() -> None:
    assert worker_places.read() == {}
    worker_places.add("lab", "ssh lab")
    worker_places.add("box", "docker exec -i box")
    worker_places.add("lab", "ssh lab2")
    assert worker_places.read() == {"lab": Place("lab", "ssh lab2"), "box": Place("box", "docker exec -i box")}
    worker_places.remove("lab")
    assert list(worker_places.read()) == ["box"] and worker_places.find("box").command == "docker exec -i box"
    with pytest.raises(PlaceError, match="no place lab; there are: box"):
        worker_places.remove("lab")


@pytest.mark.parametrize(
    ("name", "command"),
    [("here", "ssh lab"), ("a b", "ssh lab"), ("", "ssh lab"), ("lab", ""), ("lab", "ssh 'lab"), ("lab", "a\nb")],
)
def test_what_is_no_place(name: str, command: str) -> None:
    with pytest.raises(PlaceError):
        worker_places.add(name, command)
    assert not worker_places.places_file().exists()


@pytest.mark.parametrize("text", ["x", "places = 1", "[places]\nlab = 1", "[places]\nlab = ''", "\0"])
def test_a_file_that_is_none_stays_as_it_is(text: str) -> None:
    path = worker_places.places_file()
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(PlaceError, match=r"places\.toml"):
        worker_places.add("box", "docker exec -i box")
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ssh://lab", ["ssh", "lab", "gradstudio", "worker"]),
        ("ssh://me@lab.example:2222/", ["ssh", "-p", "2222", "me@lab.example", "gradstudio", "worker"]),
    ],
)
def test_an_address_leads_through_ssh(address: str, words: list[str]) -> None:
    assert worker_places.find_address(address).words("worker") == words


@pytest.mark.parametrize("address", ["ssh://-v", "ssh://-F@lab", "ssh://lab;reboot", "ssh://", "nowhere"])
def test_what_is_no_address_is_a_name_that_is_not_there(address: str) -> None:
    with pytest.raises(PlaceError, match="there is no place"):
        worker_places.find_address(address)
