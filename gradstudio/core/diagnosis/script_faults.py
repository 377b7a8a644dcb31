"""Findings of a watch that do not come from rows: it reads them off the loop, the modules and autograd's graph. Their
remedies are lines of code."""

from __future__ import annotations

from typing import NamedTuple

from gradstudio.core.diagnosis.finding import Finding, Severity


class _Fault(NamedTuple):
    severity: Severity
    title: str
    meaning: str
    remedies: tuple[str, ...] = ()


# By rule. `{}` in a remedy is what the watch knows: the name of the optimizer or of a module, or a number.
_FAULTS: dict[str, _Fault] = {
    "activation_twice": _Fault(
        "warning", "The loss has an activation of its own",
        "The loss takes scores and squeezes them itself. What it gets was squeezed into 0 to 1 before, so it cannot "
        "fall to 0, and its gradients are small.",
        ("the scores themselves in the loss, without `{}` before it; take it only where the model predicts",),
    ),
    "probabilities_for_logs": _Fault(
        "warning", "The loss gets no logarithms of probabilities",
        "`nll_loss`, `kl_div` and `ctc_loss` take no logarithm of what they are given: they take it for one as it is.",
        ("{}",),
    ),
    "shapes_broadcast": _Fault(
        "warning", "Outputs and targets of two shapes",
        "Each output meets every target or factor of the batch, so the model learns from their means alone.",
        ("`{}`, so that both have one shape before they meet",),
    ),
    "targets_beyond": _Fault(
        "warning", "Targets beyond 0 to 1",
        "This loss takes the probability of class 1 as its target. For any other number it has no least value: it "
        "falls below 0 without an end, and the scores grow with it.",
        ("{}",),
    ),
    "out_of_reach": _Fault(
        "warning", "Targets that the output cannot reach",
        "The loss drives the output to the end of its range, where its slope is 0, and cannot fall to 0.",
        ("{}",),
    ),
    "norm_of_one": _Fault(
        "warning", "A norm over one number",
        "A number less its own mean is 0, so the norm gives its bias whatever comes in, and nothing before it is "
        "trained.",
        ("a norm over several numbers, such as one before the last layer, or none at that place",),
    ),
    "labels_not_signed": _Fault(
        "warning", "Labels of 0 where the loss takes -1",
        "The loss knows 1 and -1. A label of 0 has no gradient, so only one of the two kinds is learned from.",
        ("`2 * label - 1` in place of a label of 0 or 1",),
    ),
    "constant_term": _Fault(
        "warning", "A term of the loss without a gradient",
        "It is a constant for the training: only the other terms fall by what is learned.",
        ("{}",),
    ),
    "dropout_high": _Fault(
        "info", "A dropout that drops most of its inputs",
        "In torch the number is the share that is dropped, elsewhere that which is left.",
        ("`nn.Dropout({})`, if that is the share to drop",),
    ),
    "endless_dropout": _Fault(
        "info", "A dropout that drops in evaluation too",
        "By itself `F.dropout` does not know the mode of the model, and drops always. If that is meant, as for samples "
        "of an uncertainty, nothing is wrong.",
        ("`training=self.training` in this call of `F.dropout`",),
    ),
    "seed_each_step": _Fault(
        "warning", "The same seed in each step",
        "What is drawn after it is the same in each step: the batch, the noise, the units that drop out. The model "
        "learns these alone.",
        ("`torch.manual_seed(...)` once, before the loop",),
    ),
    "term_of_zero": _Fault(
        "info", "A term of the loss that is always 0",
        "An output that equals its target in all digits is the target: both come from one model, or from one tensor.",
        ("`copy.deepcopy(model)` for the model that gives the target",),
    ),
    "one_label": _Fault(
        "info", "Most labels are of one class",
        "The loss is small where the model says this class alone. If it stands for padding, the loss should not count "
        "it; if classes are that rare, nothing is wrong.",
        ("`ignore_index={}` in the loss, if this class is the padding",),
    ),
    "plain_tensor": _Fault(
        "warning", "A tensor made of a parameter, and not itself one",
        "A module has the parameters that it is given as they are. What is computed of one, as by a factor or `.to()`, "
        "is a plain tensor: `parameters()` does not have it, and it is never trained.",
        ("`nn.Parameter(...)` as the last call where `{}` is assigned",),
    ),
    "divisor_passes_0": _Fault(
        "info", "A weight that is divided by passes 0",
        "Near 0 the quotient and its gradient are without bounds, and behind it the sign is another: no small step "
        "leads across.",
        ("`F.softplus({})` in place of `{}` as the divisor, or its `exp`, so that it stays above 0",),
    ),
    "large_scores": _Fault(
        "info", "The first loss is far above that of a guess",
        "The first scores are as far apart as if the model were sure, and are wrong. The first steps only make them "
        "smaller.",
        ("`nn.init.normal_(layer.weight, std=0.02)` for the layer that gives the scores, or the embedding that shares "
         "its weights",),
    ),
    "held_twice": _Fault(
        "info", "Parameters that two optimizers train",
        "Each steps on what the other has learned, and by the gradient of its own loss. In a game the one player then "
        "trains the other for its own ends. If both are meant to train them, nothing is wrong.",
        ("{}",),
    ),
    "loss_without_floor": _Fault(
        "critical", "A loss without a least value",
        "No output is the best one: the larger that term, the lower the loss, so it falls faster and faster until "
        "numbers overflow. Such a term has the wrong sign, or lacks a bound.",
        ("the other sign (`-` for `+`, or `+` for `-`) before the whole term of the loss that holds this `{}`",),
    ),
    "not_frozen": _Fault(
        "warning", "Parameters that were meant to be frozen",
        "Python takes any name for an attribute, and autograd reads `requires_grad` of a parameter alone: these are "
        "trained.",
        ("{}",),
    ),
    "clips_nothing": _Fault(
        "warning", "Clipping gets no parameters",
        "`filter(...)`, `model.parameters()` and other generators can be used once: who has gone through one, such as "
        "an optimizer, leaves nothing for the next.",
        ("`list(...)` around them where they are first assigned, or `{}` in the call that clips",),
    ),
    "norm_momentum": _Fault(
        "warning", "Batch norms that keep the latest batch alone",
        "In torch the momentum is the share of the new batch, elsewhere that of the old ones. In evaluation these "
        "norms take the statistics of one batch or two.",
        ("`momentum={}` in these norms",),
    ),
    "label_is_blank": _Fault(
        "warning", "Labels that are the blank of CTC",
        "The blank stands for no label. A label of that class is never decoded, and its frames are taught to be empty.",
        ("`{}",),
    ),
    "labels_alike": _Fault(
        "warning", "One label for all queries of a batch",
        "Each query is drawn to the same key, and pushed away from its own. Where all outputs are alike, the loss is "
        "the logarithm of their number.",
        ("`torch.arange(len(scores), device=scores.device)` as the labels, where key i belongs to query i",),
    ),
    "nothing_moves": _Fault(
        "warning", "The steps of this optimizer move nothing",
        "Its parameters are frozen, cut off from the loss, or no longer those of the model.",
        ("{}",),
    ),
    "rounded_updates": _Fault(
        "warning", "Updates that are rounded away",
        "bfloat16 has 8 binary digits: from one number to the next it is about 0.4 to 0.8 % of it. An update below "
        "half of that leaves the weight as it was, at every step.",
        ("float32 weights (no `.bfloat16()`), with `torch.autocast(device, dtype=torch.bfloat16)` around the passes",),
    ),
    "gradient_of_zero": _Fault(
        "warning", "The gradient ends on its way back",
        "Nothing is trained: what stands before that operation has no influence on the loss, as far as its slope says.",
        ("{}",),
    ),
    "saturating_loss": _Fault(
        "info", "A loss that is flat where it is worst",
        "The slope of log(1 - D) is 0 where the discriminator is sure of what was made, so the generator learns least "
        "while it is worst. log D has the same aim, and a slope there (Goodfellow 2014).",
        ("`{}` in place of it",),
    ),
    "without_optimizer": _Fault(
        "info", "Gradients for parameters that no optimizer holds",
        "No optimizer trains them. If they should be trained, the optimizer has to get them; if not, nothing is wrong, "
        "but their gradients cost time and memory.",
        ("{}", "`requires_grad_(False)` where they are not trained"),
    ),
    "frozen_parameters": _Fault(
        "info", "Frozen parameters in the optimizer",
        "If they should have been thawed, the code that thaws them did not reach them; if not, nothing is wrong.",
        ("`for p in module.parameters(): p.requires_grad_(True)` without a condition, where they are to be trained",),
    ),
    "evaluation_mode": _Fault(
        "warning", "Parts in evaluation mode while they are trained",
        "There a dropout drops nothing, and a batch norm takes its running statistics and no longer updates them. "
        "`eval()` was called on these parts, as for a validation, and `train()` was not called on them after it.",
        ("`{}.train()` after each validation, before the next training pass",),
    ),
    "undivided_sum": _Fault(
        "info", "Gradients of several passes are added up, and not divided",
        "The gradient is as many times as large as that of the mean of these losses. SGD makes a step as many times as "
        "large of it, Adam does not. If they are losses of several tasks, nothing is wrong.",
        ("`(loss / {}).backward()`",),
    ),
    "harmless_loss": _Fault(
        "warning", "A loss that is not finite, with a finite gradient",
        "Its gradient was finite, so the update did not carry it into the weights. A mean of losses is not "
        "finite for it.",
        ("{}",),
    ),
    "outputs_alike": _Fault(
        "warning", "The outputs of all examples are alike",
        "Equal outputs are the best answer to a loss that only wants two outputs to be close, so the model has learned "
        "to ignore its input, and its loss looks perfect (Chen and He 2021).",
        ("`z.detach()` for one of the two outputs that the loss compares, with a predictor behind the other alone",),
    ),
    "loss_at_rest": _Fault(
        "warning", "The loss rests where a guess leaves it",
        "So far the predictions hold nothing of the inputs, or next to nothing.",
        ("{}",),
    ),
    "large_inputs": _Fault(
        "info", "Inputs that nobody has scaled",
        "Usual initializations are made for inputs of mean 0 and a spread of 1. Of larger ones the first outputs are "
        "as much larger: units die or saturate, and only small rates are stable.",
        ("`(x - mean) / std` before the model, with the mean and the standard deviation of the training data",),
    ),
    "large_targets": _Fault(
        "info", "Targets that nobody has scaled",
        "Usual initializations and rates are made for targets with a spread of about 1. The gradient of a squared "
        "error grows with them; that of a huber loss does not, so the way to them takes as many more steps.",
        ("`(target - mean) / std` as the target, with the mean and the standard deviation of the training targets",),
    ),
    "statistics_of_validation": _Fault(
        "warning", "Batches that nothing is trained with change the batch norms",
        "In training mode a batch norm takes each batch into its running statistics, and a dropout drops. A validation "
        "in this mode leaks into the model, and its numbers depend on how it is cut into batches.",
        ("`{}.eval()` before the passes under `torch.no_grad()`, and `{}.train()` after them",),
    ),
    "schedule_off_beat": _Fault(
        "warning", "A schedule on another beat than it was made for",
        "A schedule counts the calls of its own `step()`, whatever they are, and takes each number that it is given "
        "for what it waits for.",
        ("{}",),
    ),
    "singular_matrix": _Fault(
        "critical", "A matrix that has no factors",
        "A kernel of repeated points, or a covariance of more features than examples, has eigenvalues of 0, and "
        "rounding leaves some below it: such a matrix has no Cholesky factor and no inverse.",
        ("`matrix + 1e-4 * torch.eye(len(matrix))` in place of `matrix`: each eigenvalue is that much larger",),
    ),
    "spoiled_buffer": _Fault(
        "critical", "A buffer of the model is not finite",
        "A running mean or variance never loses a NaN or Inf, and in evaluation what goes through there becomes NaN, "
        "Inf or 0. In training it takes the statistics of each batch, so later losses show none of it.",
        ("`{}.reset_running_stats()` once no batch holds what is not finite or overflows there",),
    ),
    "spoiled_state": _Fault(
        "warning", "The state of the optimizer is not finite",
        "A running mean of squares at Inf stays there, and what is divided by it is 0: no gradient moves these weights "
        "any more, though they are finite. A mean at NaN makes the next update NaN.",
        ("`{}.state.clear()` once the gradients are finite, and no step with a gradient that is not",),
    ),
}  # fmt: skip
GRADIENT_ENDS = "gradient_of_zero"  # also a rule of rows, which defers if all gradients are 0
HEARD = frozenset(_FAULTS) - {GRADIENT_ENDS}
_HEARD_TITLES = frozenset(fault.title for fault in _FAULTS.values())


def is_observed(finding: Finding) -> bool:
    """Return whether a watch found it by itself, with lines of code as remedies."""
    return finding.title in _HEARD_TITLES


def script_fault(
    rule: str, evidence: str, first: int, last: int, *, known: str = "", layers: tuple[str, ...] = (),
    severity: Severity | None = None,
) -> Finding:  # fmt: skip
    """Return the finding of a rule. `known` fills its remedies; `severity` overrides the usual one."""
    fault = _FAULTS[rule]
    remedies = tuple(line.replace("{}", known or "...") for line in fault.remedies if known or line != "{}")
    return Finding(
        rule, severity or fault.severity, fault.title, first, last, layers, evidence, fault.meaning, remedies
    )
