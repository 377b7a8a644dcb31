"""`make test-torch VERSION=2.8.0`: another torch in an environment of its own, in which the watch is tested.

The environment is `.venv-torch-VERSION`. It has that torch alone, and takes all else from `.venv`. PyTorch's own index
has builds for the CPU. Where it cannot be reached, PyPI's build for CUDA is taken without CUDA's libraries of some GB:
stand-ins answer that there is no GPU, so that torch trains on the CPU. They need a C compiler."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.request
import venv
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
REACHED = 10.0  # seconds within which an index answers
NO_DEVICE = 100  # cudaErrorNoDevice
SMOKE = (["doctor"], ["run", "rnn-explosion", "--quiet"])
TESTS = ["tests/watching", "tests/crash"]


def main(version: str, *arguments: str) -> int:
    home = ROOT / f".venv-torch-{version}"
    python = home / "bin/python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=False, clear=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
        (packages / "rest.pth").write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")
        install(version, home)
        stand_in(packages / "torch/lib")
        (home / "ready").touch()
    around = os.environ | {"PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    found = subprocess.check_output([python, "-c", "import torch; print(torch.__version__)"], text=True, env=around)
    assert found.split("+")[0].strip() == version, found
    print(f"torch {found.strip()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        own = around | {"GRADSTUDIO_LIBRARY": f"{folder}/runs.sqlite3"}
        for words in SMOKE:
            done = subprocess.run([python, "-m", "gradstudio", *words], env=own, check=False)
            if done.returncode not in (0, 3):  # 3: the training diverged, as that one does
                print(f"gradstudio {' '.join(words)} ended with {done.returncode}", file=sys.stderr)
    return subprocess.call([python, "-m", "pytest", "-q", *(arguments or TESTS)], cwd=ROOT, env=around)


def install(version: str, home: Path) -> None:
    """Install a torch and nothing that it asks for: of its requirements, `.venv` has those of the CPU."""
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "--quiet", "--no-deps"]
    index = []
    try:
        urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=REACHED).close()
        index = ["--index-url", CPU_BUILDS]
    except (urllib.error.URLError, TimeoutError):
        print(f"{CPU_BUILDS} cannot be reached: PyPI's build is taken")
    subprocess.check_call([*pip, *index, f"torch=={version}"])


def stand_in(libraries: Path) -> None:
    """Make the libraries that torch's own ask for and that are not there, with every function that is asked of them."""
    known = {file.name for file in libraries.iterdir()}
    dynamic = subprocess.check_output(["readelf", "-d", *libraries.glob("*.so*")], text=True)
    wanted = set(re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl|cap)\S+)\]", dynamic)) - known
    if not wanted:
        return
    told = subprocess.check_output(["readelf", "-V", "-W", *libraries.glob("*.so*")], text=True)
    of_file = re.findall(r"File: (\S+)\s+Cnt: \d+\n((?:.*Name: .*\n)+)", told)
    home = {version: library for library, names in of_file for version in re.findall(r"Name: (\S+)", names)}
    symbols = subprocess.check_output(["nm", "-D", "--with-symbol-versions", *libraries.glob("*.so*")], text=True)
    defined = set(re.findall(r" [A-TV-Z] (\w+)", symbols))
    functions: dict[str, dict[str, set[str]]] = {library: defaultdict(set) for library in sorted(wanted)}
    for name, version in re.findall(r" U (\w+)(?:@(\S+))?", symbols):
        if home.get(version) in wanted:
            functions[home[version]][version].add(name)
        elif not version and name not in defined:  # any library may have it
            functions[min(wanted)]["ANY"].add(name)
    for library, of_versions in functions.items():
        with tempfile.TemporaryDirectory() as folder:
            source, versions = Path(folder, "stand_in.c"), Path(folder, "versions")
            source.write_text("".join(answer(name) for names in of_versions.values() for name in sorted(names)))
            nodes = (f"{version} {{ global: {'; '.join(names)}; }};" for version, names in of_versions.items())
            versions.write_text("\n".join(nodes) or "ANY { global: *; };")
            command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library}"]
            version = f"-Wl,--version-script,{versions}"
            subprocess.check_call([*command, version, "-o", str(libraries / library), str(source)])


def answer(name: str) -> str:
    """Return the function of this name in C: it says that there is no GPU."""
    text = "String" in name or name.endswith("Name")
    return (
        f'const char *{name}(void) {{ return "no GPU"; }}\n'
        if text
        else f"long {name}(void) {{ return {NO_DEVICE}; }}\n"
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
