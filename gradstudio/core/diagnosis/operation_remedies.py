"""What to write in place of an operation of loss or model code that is undefined for finite inputs."""

from __future__ import annotations

from gradstudio.core.provenance import operation_of

_LOG = (
    "`torch.log(x.clamp_min(1e-8))` in place of `torch.log(x)`, or, where `x` is a softmax or sigmoid, "
    "`F.log_softmax` or `F.logsigmoid` of the scores"
)
_NORM = "`torch.sqrt((x ** 2).sum() + 1e-8)` in place of `x.norm()`: its derivative at 0 is not defined"
# By the name of an operation.
_DEFINED: dict[str, str] = {
    "logit": "`torch.logit(x, eps=1e-6)` in place of `torch.logit(x)`",
    **dict.fromkeys(("log", "log2", "log10"), _LOG),
    "log1p": "`torch.log1p(x.clamp_min(-1 + 1e-6))` in place of `torch.log1p(x)`, or `F.softplus(x)` of an output",
    "lgamma": "`torch.lgamma(x.clamp_min(1e-6))` in place of `torch.lgamma(x)`, or `F.softplus(x)` of an output",
    "div": "`a / (b + 1e-8)` in place of `a / b`, or no division where `b` is 0",
    "reciprocal": "`1 / (x + 1e-8)` in place of `1 / x`",
    "rsqrt": "`torch.rsqrt(x + 1e-8)` in place of `torch.rsqrt(x)`: at 0 it is Inf",
    "sqrt": "`torch.sqrt(x + 1e-8)` in place of `torch.sqrt(x)`: its derivative at 0 is Inf",
    "pow": "`(x + 1e-8) ** p` in place of `x ** p`: at 0 it or its derivative is not finite",
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), _NORM),
    **dict.fromkeys(
        ("cdist", "cdist_forward", "euclidean_dist"),
        "`torch.sqrt(squares + 1e-8)` in place of `torch.cdist`: its derivative at 0 is not defined",
    ),
    "linalg_slogdet": "`torch.logdet(x + 1e-3 * torch.eye(len(x)))` in place of `torch.logdet(x)`: the determinant of "
    "a singular matrix is 0, and rounding may leave it below that",
    "acos": "`torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
    "acosh": "`torch.acosh(x.clamp_min(1 + 1e-6))` in place of `torch.acosh(x)`: its derivative at 1 is Inf",
    "asin": "`torch.asin(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
    "atanh": "`torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
    "erfinv": "`torch.erfinv(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
}
# The same for operations that are undefined for non-finite values, by a part of their name.
_ALWAYS = {
    "ctc_loss": "`zero_infinity=True` in `ctc_loss`: a target is longer than what the model gave for it",
    "weight_norm": "`torch.nn.init.xavier_normal_(layer.weight)` before `weight_norm(layer)`: the direction of weights "
    "that are all 0 is 0 / 0",
    "nll_loss": "no step for a batch of which every label is `ignore_index`, or has a class weight of 0: the mean over "
    "none of them is 0 / 0",
}


def remedy_of_name(name: str) -> str:
    return remedy_of_part(name) or _DEFINED.get(plain_name(name), "")


def remedy_of_part(name: str) -> str:
    return next((line for part, line in _ALWAYS.items() if part in plain_name(name)), "")


def plain_name(name: str) -> str:
    """Return the name of an operation without the number that autograd appends; "" for a custom Function of the script,
    whose name has none."""
    return "" if name.endswith("Backward") else operation_of(name).strip("_")
