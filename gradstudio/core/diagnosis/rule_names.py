"""The name of every rule, from causes to effects. Presets read it, so nothing here imports numpy or the rules."""

from __future__ import annotations

from gradstudio.core.diagnosis.script_faults import HEARD

# From causes to effects: how the loop is written, what the number format can represent, how the weights were
# initialized, what happened to the units, how large a step is, and only then how the loss behaves. A non-finite loss or
# gradient is the end of most of these; if it is born in the loss itself, none of the others has fired.
ORDER = (
    "activation_twice", "probabilities_for_logs", "shapes_broadcast", "targets_beyond", "out_of_reach",
    "label_is_blank", "labels_alike", "norm_of_one", "labels_not_signed", "constant_term",
    "loss_without_floor", "clips_nothing", "not_frozen", "held_twice", "divisor_passes_0",
    "seed_each_step", "plain_tensor", "dropout_high", "endless_dropout", "term_of_zero", "one_label",
    "norm_momentum", "evaluation_mode", "outputs_alike",
    "singular_matrix", "harmless_loss", "nothing_moves", "schedule_off_beat", "statistics_of_validation",
    "large_inputs", "large_targets", "large_scores", "saturating_loss", "rounded_updates",
    "without_optimizer", "frozen_parameters", "undivided_sum",
    "ranks_alike", "uneven_shares", "reduced_too_often", "rank_ran_out", "nan_on_a_rank", "ranks_apart",
    "clip_before_reduction",
    "accumulation_mismatch", "clip_on_scaled_gradients", "clip_without_effect", "loop_order",
    "fp16_overflow", "scale_collapse", "fp16_underflow", "gradient_of_zero",
    "gradient_noise", "poor_initialization", "batch_norm_of_two",
    "weight_decay_high", "momentum_high", "betas_crossed", "perturbation_large", "rate_raised",
    "saturated_activation", "dead_units", "attention_collapse", "vanishing_in_time", "reward_hacked", "policy_far_off",
    "clipping_always", "vanishing_gradient", "signal_lost",
    "update_ratio_high", "exploding_gradient", "entropy_collapse", "clip_overflow",
    "clipping_never", "nonfinite_weights", "nonfinite_loss", "nonfinite_gradient",
    "spoiled_buffer", "spoiled_state",
    "updates_after_spike", "update_ratio_low", "loss_spike", "loss_oscillating", "loss_at_rest", "loss_not_decreasing",
    "test_gap", "accuracy_lost", "nothing_learned", "test_loss_rises", "reward_lost", "unused_layers",
)  # fmt: skip
NAMES = tuple(rule for rule in ORDER if rule not in HEARD)  # the rules in core/rules
OF_FIGURES = ("test_loss_rises", "reward_lost")  # rules that read the values that a script logs
# Rules whose inputs only runs of the studio have: ranks, samples of activations, gradients of micro-batches, the task.
OF_THE_STUDIO = (
    "vanishing_in_time", "saturated_activation", "attention_collapse",
    "batch_norm_of_two", "accumulation_mismatch", "reduced_too_often",
    "ranks_apart", "nan_on_a_rank", "clip_before_reduction", "ranks_alike", "perturbation_large", "uneven_shares",
    "rank_ran_out", "policy_far_off", "entropy_collapse", "reward_hacked",
)  # fmt: skip
