"""What the rules could not see in a log, and how to make a script log it."""

from __future__ import annotations

from collections.abc import Iterable

from gradstudio.core.diagnosis.rule_names import NAMES, OF_THE_STUDIO

# By quantity of a log: the rules that are blind without it, and the line that logs it.
NEEDED: dict[str, tuple[tuple[str, ...], str]] = {
    "loss": (("nonfinite_loss", "loss_not_decreasing", "loss_oscillating", "loss_spike"), "`loss.item()`"),
    "grad_norm": (
        ("nonfinite_gradient", "exploding_gradient"),
        "`torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)` returns it, also with `max_norm=inf`",
    ),
    "lr": (("rate_raised",), "`scheduler.get_last_lr()[0]`, or `optimizer.param_groups[0]['lr']`"),
    "scale": (("scale_collapse",), "`scaler.get_scale()`"),
    "update_ratio": (
        ("update_ratio_high", "update_ratio_low", "updates_after_spike"),
        "the norm of the change of all weights / the norm of all weights",
    ),
    "accuracy": ((), "the share of the training batch that is right"),
    "test_accuracy": (("test_gap", "accuracy_lost", "nothing_learned"), "the accuracy on a test set"),
    "val_loss": (("test_loss_rises",), "the loss on a validation set"),
    "reward": (("reward_lost",), "the mean reward, where there is one"),
}  # fmt: skip
_BY_LOGS = {rule for rules, _ in NEEDED.values() for rule in rules}
# No log has the inputs of these: each layer by itself, the optimizer, the calls of the loop.
OF_A_WATCH = tuple(rule for rule in NAMES if rule not in _BY_LOGS and rule not in OF_THE_STUDIO)


def missing_quantities(columns: Iterable[str]) -> list[tuple[str, tuple[str, ...], str]]:
    """Return each quantity that is missing from these columns, the rules that are blind without it, and how to log
    it."""
    there = set(columns)
    return [(quantity, *needed) for quantity, needed in NEEDED.items() if quantity not in there and needed[0]]
