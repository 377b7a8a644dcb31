"""The quantities measured at every step (the columns of a run's history) and the metrics of each layer."""

from __future__ import annotations

# New columns and metrics go last, so that the rows of older versions begin with the same ones.
COLUMNS: dict[str, str] = {
    "step": "number of the optimizer step, from 0",
    "loss": "mean loss of the step's batch, before the update",
    "grad_norm": "L2 norm of the true gradient: unscaled, before clipping",
    "clipped_norm": "L2 norm of the gradient that reached the optimizer",
    "clip_coef": "norm after clipping / norm before clipping; 1 where nothing was clipped",
    "lr": "learning rate of the update",
    "scale": "loss scale that the step's backward pass ran under; 1 without scaling",
    "skipped": "1 where the update was skipped, else 0",
    "nonfinite": "NaN and Inf entries of the unscaled gradient",
    "update_ratio": "L2 norm of the change of the weights / L2 norm of the weights before it",
    "weight_norm": "L2 norm of all weights, before the update",
    "accuracy": "share of the step's training batch that was right; NaN where the task has none",
    "step_seconds": "wall-clock time of the step",
    "test_accuracy": "share of the test set that is right, before the update; UNKNOWN at steps that do not measure it",
    "head_cosine": "mean cosine between the test examples as the last layer sees them; measured with test_accuracy",
    "clip_cosine": "cosine between the true gradient and what clipping made of it; 1 where nothing was clipped",
    "update_cosine": "cosine between the gradient that the optimizer got and minus the update; UNKNOWN without update",
    "all_reduces": "calls that averaged gradients over the ranks; this and the next two UNKNOWN without ranks",
    "reduced_bytes": "bytes of gradients that these calls averaged",
    "rank_drift": "largest distance of a rank's weights from those of rank 0 / their norm, every 20 steps",
    "loss_spread": "largest loss of a rank - least one; UNKNOWN but for watched scripts that train on several ranks",
    "attention_logit": "largest absolute logit of an attention, before the update; every 20 steps of a transformer",
    "attention_entropy": "mean entropy of the sharpest attention / the most that it can be; measured with it",
    "time_gradient": "gradient norm by the first time step's input / by the last's; every 120 steps of a recurrent net",
    "policy_ratio": "largest probability of an action / that when it was drawn; this and the next three for a policy",
    "policy_kl": "mean KL divergence of the policy from the one that drew the batch, before the update; in nats",
    "policy_entropy": "mean entropy of the policy / the most that it can be",
    "policy_reward": "mean reward of an answer, or of a time step of the longest episode",
}

LAYER_METRICS: dict[str, str] = {
    "grad_norm": "L2 norm of the layer's true gradient: unscaled, before clipping",
    "weight_norm": "L2 norm of the layer's weights, before the update",
    "update_ratio": "L2 norm of the change of the weights / L2 norm of the weights before it",
    "largest_grad": "largest absolute entry of the true gradient",
    "zero_share": "share of gradient entries that are exactly 0",
    "nonfinite_share": "share of gradient entries that are NaN or Inf",
    "grad_mean": "mean of the entries of the true gradient",
    "cut_share": "share of gradient entries that clipping by value cut; UNKNOWN without it, and in a watch",
}

DERIVED_METRICS: dict[str, str] = {  # of each layer, from the stored ones
    "grad_ratio": "L2 norm of the layer's true gradient / L2 norm of its weights",
    "grad_std": "standard deviation of its entries; 0 if it is below a thousandth of their mean",
}

EXPORTED_METRICS = LAYER_METRICS | {"grad_std": DERIVED_METRICS["grad_std"]}  # in files of a run
