"""The program of a studio file: its text as it is, then the loop, in a function of its own so that no name of the loop
meets one of the file."""

from __future__ import annotations

import ast
import builtins
import re

from gradstudio.core.studio_file import MODULE, StudioFile
from gradstudio.session.script.plan import Lines, Plan, literal

_TREES = '''def with_tensors(batch, change):
    """A batch with every tensor changed, in order."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, dict):
        kind = dict if hasattr(batch, "default_factory") else type(batch)
        return kind((name, with_tensors(part, change)) for name, part in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(with_tensors(part, change) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(with_tensors(part, change) for part in batch)
    return batch
'''
_FIRST = '''def with_first(batch, change):
    """A batch with its first tensor changed."""
    waiting = [change]
    return with_tensors(batch, lambda tensor: waiting.pop()(tensor) if waiting else tensor)
'''


def program(
    file: StudioFile, docstring: str, imports: list[str], settings: str, local_imports: list[str], loop: str
) -> str:
    """Return the whole program. The settings come before the file, which may compute something at its top level."""
    futures, text = _future_imports(file)
    name = "train"
    while re.search(rf"\b{name}\b", file.text):
        name += "_here"
    lines = Lines()
    lines.add(docstring)
    lines.add("\n".join([*futures, ""] if futures else []))
    aside = _as_a_module(file) if "__main__" in file.text else ""
    lines.add("\n".join([*imports, *(["import sys"] if aside else []), "", "import torch", ""]).lstrip("\n"))
    lines.add(settings)
    if aside:
        lines.add(aside)
    lines.add(f"\n# {file.name}, SHA-256 {file.sha256}\n")
    lines.lines += text.strip("\n").split("\n")  # as it is: its own lines may be part of a text
    lines.add("\n\n# The training\n\n")
    lines.add(f"def {name}():")
    if needed := _local_imports(file, local_imports, loop):
        lines.add("\n".join([*needed, ""]), 1)
    lines.add(loop, 1)
    lines.add(f"\n\n{name}()\n")
    return str(lines)


def _local_imports(file: StudioFile, imports: list[str], loop: str) -> list[str]:
    """Return what the function of the loop has to import itself: of `imports` and of Python's own functions what the
    file does not bring, or may call otherwise. A name counts as bound wherever the file binds it."""
    tree = ast.parse(file.text)
    bound = _bindings(tree)
    brought = {line for node in tree.body for line in _imported(node).values()} | {"import torch"}
    doubtful = [name for name in _loaded(loop) if hasattr(builtins, name) and ({name, "*"} & bound.keys())]
    needed = [f"from builtins import {', '.join(sorted(doubtful))}"] if doubtful else []
    for line in [*imports, "import torch"]:
        name = line.rpartition(" ")[2]
        if line not in brought or "*" in bound or bound.get(name, {line}) != {line}:
            needed.append(line)
    return needed


def _bindings(tree: ast.AST) -> dict[str, set[str]]:
    """Return the names that a file binds, at any depth, each with what binds it: an import as it is written, or else
    a line."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        names = _imported(node)
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names = {name: str(node.lineno)}
            case (
                ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name))
            ):  # fmt: skip
                names = {name: str(node.lineno)}
            case ast.MatchMapping(rest=str(name)):
                names = {name: str(node.lineno)}
        for name, how in names.items():
            found.setdefault(name, set()).add(how)
    return found


def _imported(node: ast.AST) -> dict[str, str]:
    """Return the names that an import binds, each as one would write its import alone."""
    if isinstance(node, ast.Import):
        plain = {each.name.partition(".")[0] for each in node.names if not each.asname}
        renamed = {each.asname: f"import {each.name} as {each.asname}" for each in node.names if each.asname}
        return {name: f"import {name}" for name in plain} | renamed
    if isinstance(node, ast.ImportFrom):
        start = f"from {'.' * node.level}{node.module or ''} import"
        renamed = {each.asname: f"{start} {each.name} as {each.asname}" for each in node.names if each.asname}
        return {each.name: f"{start} {each.name}" for each in node.names if not each.asname} | renamed
    return {}


def _loaded(loop: str) -> set[str]:
    """Return the names that the loop reads."""
    return {node.id for node in ast.walk(ast.parse(loop)) if isinstance(node, ast.Name)}


def _as_a_module(file: StudioFile) -> str:
    return f"""__name__ = "{MODULE}"  # what {file.name} does where it is run by itself is left out
sys.modules[__name__] = sys.modules["__main__"]"""


def _future_imports(file: StudioFile) -> tuple[list[str], str]:
    """Return the imports from __future__, which must come first in a program, and the text without them."""
    lines, found = re.split("\r\n?|\n", file.text), []  # as Python counts them
    for node in ast.parse(file.text).body:
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        found += [alias.name for alias in node.names]
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        lines[first : last + 1] = [f"{before}pass{after}" if after.strip().startswith(";") or before else after.strip()]
        lines[first + 1 : first + 1] = [""] * (last - first)  # the lines of the rest stay where they were
    return [f"from __future__ import {', '.join(dict.fromkeys(found))}"] if found else [], "\n".join(lines)


def data(plan: Plan, lines: Lines) -> None:
    """Add `batches`, which yields micro-batches without end."""
    noise = float(plan["problem.noise"])
    spoils = plan.above("problem.outlier_every", 0) or plan.above("problem.nan_every", 0)
    moves = plan["run.device"] != "cpu"
    lines.add("source = torch.Generator().manual_seed(seed)")
    if noise > 0:
        lines.add("noise = torch.Generator().manual_seed(seed + 1_000_003)")
    if noise > 0 or spoils or moves:
        lines.add(_TREES)
    if noise > 0 or spoils:
        lines.add(_FIRST)
    lines.add("def batches():")
    lines.add("while True:", 1)
    lines.add(f"batch = get_batch({plan['problem.batch_size']}, source{arguments(plan, 'get_batch')})", 2)
    if moves:
        lines.add("batch = with_tensors(batch, lambda tensor: tensor.to(device))", 2)
    if noise > 0:
        drawn = f"torch.randn(x.shape, generator=noise).to(device) * {noise!r}"
        lines.add(f"batch = with_first(batch, lambda x: x + {drawn})", 2)
    lines.add("yield batch", 2)
    lines.add("batches = batches()")


def build(plan: Plan) -> str:
    return f"build_model({arguments(plan, 'build_model').removeprefix(', ')})"


def loss(plan: Plan) -> str:
    return f"compute_loss(model, batch{arguments(plan, 'compute_loss')})"


def outlier(plan: Plan) -> str:
    """Return the line that makes a batch one of noise."""
    drawn = f"torch.randn(x.shape, generator=outliers).to(device) * {plan.text('problem.outlier_scale')}"
    return f"batch = with_first(batch, lambda x: ({drawn}).requires_grad_(x.requires_grad))"


def nan() -> str:
    """Return the line that puts a NaN into a batch."""
    return f"batch = with_first(batch, lambda x: {spoilt('x')})"


def spoilt(inputs: str) -> str:
    """Return an expression for a tensor with a NaN as its first number."""
    return f'torch.cat([{inputs}.new_full((1,), float("nan")), {inputs}.flatten()[1:]]).view_as({inputs})'


def arguments(plan: Plan, function: str) -> str:
    """Return the keyword arguments that differ from their defaults, each behind a comma."""
    file = plan.experiment.studio_file
    names = file.reading.arguments[function] if file else ()
    given = {name: plan.experiment.model_file[name] for name in names if name in plan.experiment.model_file}
    return "".join(f", {name}={literal(value)}" for name, value in given.items())


def parameters(lines: Lines) -> None:
    """Add the parameters that are trained, each with a gradient from the start: one that the loss does not use has a
    gradient of 0, as in the run."""
    lines.add("named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]")
    lines.add("parameters = [parameter for _, parameter in named]")
    lines.add("for parameter in parameters:")
    lines.add("parameter.grad = torch.zeros_like(parameter)", 1)


def draw(plan: Plan, lines: Lines) -> None:
    """Add the lines that draw the weights of Linear, Conv and recurrent layers anew."""
    scheme, gain, bias = str(plan["model.init"]), float(plan["model.init_gain"]), float(plan["model.initial_bias"])
    if (scheme, gain, bias) == ("default", 1.0, 0.0):
        return
    lines.add("kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)")
    lines.add("layers = [module for module in model.modules() if isinstance(module, kinds)]")
    lines.add(f"with torch.no_grad():  # model.init = {scheme}")
    lines.add("for layer in layers:", 1)
    lines.add("for name, parameter in layer.named_parameters(recurse=False):", 2)
    weight, recurrent = (_scheme(scheme, gain, relu=relu) for relu in (True, False))
    if scheme != "default" or bias:
        lines.add('if name.startswith("bias"):', 3)
        if scheme != "default":
            lines.add("parameter.zero_()", 4)
        if bias:
            lines.add('if layer is not layers[-1] and not name.startswith("bias_hh"):', 4)
            lines.add(f"parameter.add_({bias!r})", 5)
    if weight:
        if weight == recurrent:
            lines.add('if name == "weight" or name.startswith(("weight_ih", "weight_hh")):', 3)
            lines.add(weight, 4)
        else:
            lines.add('if name == "weight":', 3)
            lines.add(weight, 4)
            lines.add('if name.startswith(("weight_ih", "weight_hh")):', 3)
            lines.add(recurrent, 4)


def _scheme(scheme: str, gain: float, *, relu: bool) -> str:
    """Return the lines that draw a weight called `parameter`; "" where it stays."""
    scaled = "" if gain == 1 else f"\nparameter.mul_({gain!r})"
    match scheme:
        case "default":
            return scaled.strip("\n")
        case "xavier":
            return f"nn.init.xavier_uniform_(parameter, {gain!r})"
        case "he":
            return f"nn.init.kaiming_normal_(parameter, nonlinearity={literal('relu' if relu else 'linear')}){scaled}"
        case "orthogonal":
            return f"nn.init.orthogonal_(parameter, {f'math.sqrt(2) * {gain!r}' if relu else repr(gain)})"
        case "zeros":
            return "parameter.zero_()"
        case _:
            return f"nn.init.normal_(parameter, std={0.02 * gain!r})"
