"""Pages of the documentation that are made from the program itself, so that none of them goes stale: lessons, knobs,
rules with thresholds, columns, commands with exit codes, and what Python can call. MkDocs calls `on_files` and
`on_page_markdown`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ICON = "gradstudio.svg"
WITH_WIDE_PICTURES = ("index.md", "start.md", "first_watch.md", "map.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {
        "lessons.md": lessons, "knobs.md": knobs, "thresholds.md": thresholds, "columns.md": columns,
        "commands.md": commands, "api.md": api,
        "contributing.md": lambda: beside("CONTRIBUTING.md"), "changes.md": lambda: beside("CHANGELOG.md"),
    }  # fmt: skip
    for name, make in pages.items():
        files.append(File.generated(config, name, content=make()))
    files.append(File.generated(config, ICON, abs_src_path=str(ROOT / "resources" / "icons" / ICON)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give the pictures of a whole window the room of the table of contents, else nothing in them can be read."""
    if page.file.src_uri in WITH_WIDE_PICTURES:
        page.meta["hide"] = ["toc"]
    return markdown


def beside(name: str) -> str:
    """Return a page that lies beside the folder docs, with its links turned."""
    return (ROOT / name).read_text(encoding="utf-8").replace("(docs/", "(")


def lessons() -> str:
    from gradstudio.core import files, gallery, presets

    found = [presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))]
    lines = [
        "# All lessons", "",
        "In the order in which they are best taken. `gradstudio --preset ID` opens one, `gradstudio course handbook` "
        "prints all of them with the curves of real runs.", "",
    ]  # fmt: skip
    for preset in gallery.in_order(found):
        lines += [f"## {plain(preset.title)}", "", f"`{preset.id}` · {preset.group} · {preset.level} · about "
                  f"{gallery.minutes(preset)} min", "", plain(preset.summary), ""]  # fmt: skip
        for place, step in enumerate(preset.lesson, 1):
            lines.append(f"{place}. {plain(step.text)}")
            lines += [f"    - {plain(choice.text)}" for choice in step.predict]
            if step.paper:
                lines.append(f"    - [{plain(step.paper.text)}]({step.paper.url})")
        lines.append("")
        if preset.promise and preset.promise.fix:
            lines += [f"Heals it: `{' '.join(preset.promise.fix)}`.", ""]
        if preset.promise and preset.promise.wrong_fixes:
            wrong = ", ".join(f"`{' '.join(each)}`" for each in preset.promise.wrong_fixes)
            lines += [f"Does not help: {wrong}.", ""]
    return "\n".join(lines)


def knobs() -> str:
    from gradstudio.core.experiment import KNOBS, TITLES
    from gradstudio.core.knobs import format_value

    lines = [
        "# Knobs", "",
        "Every value of an experiment that a person can set. *Live* knobs act at the next optimizer step, the others "
        "when a run is started again.", "",
    ]  # fmt: skip
    for section, title in TITLES.items():
        lines += [f"## {title}", "", "| knob | what it does | allowed | default | acts |", "|---|---|---|---|---|"]
        for knob in KNOBS.values():
            if knob.section == section:
                default = format_value(knob.default)
                acts = "live" if knob.live else "on restart"
                lines.append(f"| `{knob.name}` | {cell(knob.help)} | {cell(knob.accepted)} | `{default}` | {acts} |")
        lines.append("")
    return "\n".join(lines)


def thresholds() -> str:
    from gradstudio.core import rule_thresholds
    from gradstudio.core.diagnosis import script_faults
    from gradstudio.core.history import LOOK_EVERY
    from gradstudio.core.row import ALIKE
    from gradstudio.core.rules import makers

    lines = [
        "# Rules and thresholds", "",
        "When each rule fires, where its numbers come from, and which of them you can set in the file `rules.toml` of "
        "the configuration folder (on Linux `~/.config/gradstudio/`), with a section for each rule:", "",
        "    [exploding_gradient]", "    norm = 300.0", "",
    ]  # fmt: skip
    alike = ", ".join(f"{most:g} in {dtype}" for dtype, most in ALIKE.items())
    for name, maker in makers().items():
        about = inspect.cleandoc(inspect.getdoc(maker) or "")
        about = about.replace("LOOK_EVERY", f"{LOOK_EVERY:g}").replace("history.ALIKE", alike)
        lines += [f"## {name}", "", re.sub(r"\s*\n(?!\n)", " ", about).replace("<", "&lt;"), ""]
        found = rule_thresholds.thresholds(name)
        if found:
            lines += ["| threshold | default |", "|---|---:|"]
            lines += [f"| `{threshold}` | {value:g} |" for threshold, value in found.items()] + [""]
    lines += [
        "## Read off a script",
        "",
        "A watch reads these off the loop, the modules and autograd's graph. They have no thresholds.",
        "",
    ]
    lines += ["| rule | title | what it means |", "|---|---|---|"]
    for name in sorted(script_faults.HEARD):
        fault = script_faults.script_fault(name, "", 0, 0)
        lines.append(f"| `{name}` | {cell(fault.title)} | {cell(fault.meaning)} |")
    return "\n".join(lines)


def columns() -> str:
    from gradstudio.core.columns import COLUMNS, EXPORTED_METRICS

    lines = [
        "# Columns", "",
        "What is measured, under the names that `metrics.csv`, `layers.npz`, TensorBoard logs and lessons use. A cell "
        "is empty if nobody measured it; NaN and Inf stand there as such.", "",
    ]  # fmt: skip
    for title, rows in (("Of each step", COLUMNS), ("Of each layer at each step", EXPORTED_METRICS)):
        lines += [f"## {title}", "", "| column | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {cell(about)} |" for name, about in rows.items()] + [""]
    return "\n".join(lines)


def commands() -> str:
    from gradstudio.cli import app
    from gradstudio.commands.exit_codes import MEANINGS

    lines = ["# Commands and exit codes", "", "What `--help` says of each command.", "", "## Exit codes", ""]
    lines += [
        "| code | meaning |",
        "|---:|---|",
        *(f"| {code} | {cell(about)} |" for code, about in MEANINGS.items()),
        "",
    ]
    for words, command in _leaves(typer.main.get_command(app), ("gradstudio",)):
        context = click.Context(command, info_name=" ".join(words))
        lines += [f"## {' '.join(words)}", "", plain(command.help or command.short_help or ""), "", "```text"]
        lines += [command.get_usage(context), "```", ""]
        found = (each.get_help_record(context) for each in command.params if each.name != "help")
        rows = [record for record in found if record is not None]
        if rows:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| `{' '.join(option.split())}` | {cell(meaning)} |" for option, meaning in rows] + [""]
    return "\n".join(lines)


def _leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the command and those below it."""
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _leaves(each, (*words, name))


def api() -> str:
    """Return what a script can call. Only its source is read: torch need not be there to make the pages."""
    lines = ["# From Python", "", "    import gradstudio", ""]
    for path, names in (
        ("gradstudio/watching/training_watch.py", ("watch", "Watched")),
        ("gradstudio/watching/frameworks.py", None),
    ):
        module = ".".join(Path(path).with_suffix("").parts)
        lines += [f"## {module if names is None else 'gradstudio.watch'}", ""]
        for signature, about in _documented((ROOT / path).read_text(encoding="utf-8"), names):
            lines += ["```python", signature, "```", "", plain(about), ""]
    return "\n".join(lines)


def _documented(source: str, names: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    """Yield the signature and the docstring of each public function, class and property in a source."""
    import ast

    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if names is not None and node.name not in names:
            continue
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for each in (node, *(part for part in inner if isinstance(part, ast.FunctionDef))):
            about = ast.get_docstring(each)
            if about and not each.name.startswith("_"):
                head = ast.unparse(each).split('"""')[0].split("\n    '''")[0]
                told = re.split(r":\n", head, maxsplit=1)[0].replace("@property\n", "")
                yield told if each is node else f"{node.name}.{told.removeprefix('def ')}", " ".join(about.split())


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return plain(" ".join(text.split())).replace("|", "\\|")


def plain(text: str) -> str:
    """Return a text in which nothing is taken for Markdown or HTML."""
    return re.sub(r"([\\*_<>\[\]])", r"\\\1", text)
