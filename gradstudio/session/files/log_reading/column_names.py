"""The mapping of a log's columns to our quantities: guessed by name, or given by the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

# By quantity, the names that logs use for it, the likeliest first: in lower case, with _ for all punctuation.
NAMES: dict[str, tuple[str, ...]] = {
    "loss": ("loss", "train_loss", "training_loss", "train_loss_step", "loss_train", "batch_loss", "total_loss",
             "train_total_loss", "loss_total", "lm_loss", "policy_loss", "train_loss_epoch", "epoch_loss", "objective"),
    "grad_norm": ("grad_norm", "train_grad_norm", "gradient_norm", "train_gradient_norm", "global_grad_norm", "gnorm",
                  "total_norm", "grad_norm_total", "grad_2_0_norm_total", "total_grad_norm", "gradnorm", "grad_l2"),
    "clipped_norm": ("clipped_norm", "grad_norm_clipped", "clipped_grad_norm", "grad_norm_after_clip"),
    "lr": ("lr", "learning_rate", "train_learning_rate", "train_lr", "lrate"),
    "scale": ("loss_scale", "scale", "grad_scale", "scaler_scale", "amp_scale", "train_loss_scale"),
    "weight_norm": ("weight_norm", "param_norm", "params_norm", "parameter_norm", "weights_norm"),
    "update_ratio": ("update_ratio", "update_to_weight_ratio"),
    "accuracy": ("accuracy", "train_accuracy", "train_acc", "acc", "train_acc_step", "mean_token_accuracy"),
    "test_accuracy": ("test_accuracy", "eval_accuracy", "val_accuracy", "val_acc", "valid_acc", "valid_accuracy",
                      "test_acc", "eval_acc", "validation_accuracy"),
    "step_seconds": ("step_seconds", "step_time", "iter_time", "seconds_per_step", "time_per_step", "dt"),
    "val_loss": ("val_loss", "eval_loss", "valid_loss", "validation_loss", "test_loss", "loss_val"),
    "reward": ("reward", "rewards", "mean_reward", "reward_mean", "episode_reward", "rollout_ep_rew_mean",
               "ep_rew_mean", "eval_mean_reward", "objective_scores", "train_reward", "rewards_mean", "return"),
    "kl": ("kl", "approx_kl", "train_approx_kl", "kl_divergence", "objective_kl", "train_kl", "mean_kl"),
}  # fmt: skip
_BESIDE = re.compile(r"__(min|max)$", re.IGNORECASE)  # as in W&B's own tables, beside each curve


def guess_columns(there: Iterable[str], said: Mapping[str, str]) -> dict[str, str]:
    """Return the column of a log for each quantity, by quantity. `there`: the columns of the log; `said`: those that
    the user named."""
    known = _of_one_run([name for name in there if not _BESIDE.search(name)], said)
    by_name: dict[str, str] = {}
    for name in known:
        for form in _forms(name):
            by_name.setdefault(form, name)
    columns = dict(said)
    for quantity, names in NAMES.items():
        name = next((by_name[name] for name in names if name in by_name), None)
        if quantity == "lr" and name is None:  # 'lr-AdamW/pg1' of Lightning
            name = next((name for name in known if re.match(r"lr[-_]", name)), None)
        if quantity not in columns and name is not None and name not in columns.values():
            columns[quantity] = name
    return columns


def _of_one_run(names: Sequence[str], said: Mapping[str, str]) -> list[str]:
    """Leave out the other runs of a folder, each of which has its own subfolder with the same loss column as the
    first."""
    losses = [name for name in names if not set(NAMES["loss"]).isdisjoint(_forms(name))]
    chosen = said.get("loss", losses[0] if losses else "")
    others = set()
    for parts in (name.split("/") for name in losses if name != chosen):
        pairs = zip(parts[::-1], chosen.split("/")[::-1], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        others.add("/".join(parts[:-same]) + "/" if same else "//")
    return [name for name in names if name in said.values() or not name.startswith(tuple(others))]


def _forms(name: str) -> Iterable[str]:
    """Yield the forms in which a name is matched: whole, then without a prefix, such as the run in 'my run - loss'."""
    for part in (name, name.rpartition(" - ")[2], *_after_slashes(name)):
        yield re.sub(r"\W+|_+", "_", part.strip().lower()).strip("_")


def _after_slashes(name: str) -> Iterable[str]:
    """Yield 'train/loss' and 'loss' of 'run/train/loss', but nothing that belongs to a test set."""
    parts = name.split("/")
    for place in range(1, len(parts)):
        if not re.search(r"val|eval|test", "/".join(parts[:place]), re.IGNORECASE):
            yield "/".join(parts[place:])
