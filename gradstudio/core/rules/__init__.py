"""The rules, one file each. A rule reads a History step by step and reports what it found.
What rules share is in core/diagnosis/; nothing else is here.
May use core/diagnosis, core/history.py, core/loop_calls.py, core/row.py, core/text.py and core/unknown.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gradstudio.core.diagnosis.rule import Rule
from gradstudio.core.rules.accumulation_mismatch import AccumulationMismatch
from gradstudio.core.rules.accuracy_lost import AccuracyLost
from gradstudio.core.rules.attention_collapse import AttentionCollapse
from gradstudio.core.rules.batch_norm_of_two import BatchNormOfTwo
from gradstudio.core.rules.betas_crossed import BetasCrossed
from gradstudio.core.rules.clip_before_reduction import ClipBeforeReduction
from gradstudio.core.rules.clip_on_scaled_gradients import ClipOnScaledGradients
from gradstudio.core.rules.clip_overflow import ClipOverflow
from gradstudio.core.rules.clip_without_effect import ClipWithoutEffect
from gradstudio.core.rules.clipping_always import ClippingAlways
from gradstudio.core.rules.clipping_never import ClippingNever
from gradstudio.core.rules.dead_units import DeadUnits
from gradstudio.core.rules.entropy_collapse import EntropyCollapse
from gradstudio.core.rules.exploding_gradient import ExplodingGradient
from gradstudio.core.rules.fp16_overflow import Fp16Overflow
from gradstudio.core.rules.fp16_underflow import Fp16Underflow
from gradstudio.core.rules.gradient_noise import GradientNoise
from gradstudio.core.rules.gradient_of_zero import GradientOfZero
from gradstudio.core.rules.loop_order import LoopOrder
from gradstudio.core.rules.loss_not_decreasing import LossNotDecreasing
from gradstudio.core.rules.loss_oscillating import LossOscillating
from gradstudio.core.rules.loss_spike import LossSpike
from gradstudio.core.rules.momentum_high import MomentumHigh
from gradstudio.core.rules.nan_on_a_rank import NanOnARank
from gradstudio.core.rules.nonfinite import NonfiniteGradient, NonfiniteLoss, NonfiniteWeights
from gradstudio.core.rules.nothing_learned import NothingLearned
from gradstudio.core.rules.perturbation_large import PerturbationLarge
from gradstudio.core.rules.policy_far_off import PolicyFarOff
from gradstudio.core.rules.poor_initialization import PoorInitialization
from gradstudio.core.rules.rank_ran_out import RankRanOut
from gradstudio.core.rules.ranks_alike import RanksAlike
from gradstudio.core.rules.ranks_apart import RanksApart
from gradstudio.core.rules.rate_raised import RateRaised
from gradstudio.core.rules.reduced_too_often import ReducedTooOften
from gradstudio.core.rules.reward_hacked import RewardHacked
from gradstudio.core.rules.reward_lost import RewardLost
from gradstudio.core.rules.saturated_activation import SaturatedActivation
from gradstudio.core.rules.scale_collapse import ScaleCollapse
from gradstudio.core.rules.signal_lost import SignalLost
from gradstudio.core.rules.test_gap import TestGap
from gradstudio.core.rules.test_loss_rises import TestLossRises
from gradstudio.core.rules.uneven_shares import UnevenShares
from gradstudio.core.rules.unused_layers import UnusedLayers
from gradstudio.core.rules.update_ratio_high import UpdateRatioHigh
from gradstudio.core.rules.update_ratio_low import UpdateRatioLow
from gradstudio.core.rules.updates_after_spike import UpdatesAfterSpike
from gradstudio.core.rules.vanishing_gradient import VanishingGradient
from gradstudio.core.rules.vanishing_in_time import VanishingInTime
from gradstudio.core.rules.weight_decay_high import WeightDecayHigh


@lru_cache(maxsize=1)
def makers() -> dict[str, Callable[..., Rule]]:
    """Return every rule by name, in the order of diagnosis.finding.NAMES."""
    made = (
        NonfiniteLoss, NonfiniteGradient, NonfiniteWeights, ExplodingGradient, VanishingGradient, VanishingInTime,
        LossNotDecreasing, LossOscillating, LossSpike, DeadUnits,
        SaturatedActivation, AttentionCollapse,
        PolicyFarOff, EntropyCollapse, RewardHacked, WeightDecayHigh, MomentumHigh, BetasCrossed, PerturbationLarge,
        RateRaised, UpdateRatioHigh, UpdateRatioLow,
        UpdatesAfterSpike, PoorInitialization, BatchNormOfTwo, GradientNoise, ClippingAlways, ClippingNever,
        ClipOverflow,
        Fp16Underflow, Fp16Overflow,
        ScaleCollapse, AccumulationMismatch, ClipWithoutEffect, ClipOnScaledGradients, LoopOrder,
        SignalLost, TestGap, AccuracyLost, NothingLearned, TestLossRises, RewardLost,
        ReducedTooOften, RanksApart, NanOnARank, ClipBeforeReduction, RanksAlike, UnevenShares, RankRanOut,
        UnusedLayers, GradientOfZero,
    )  # fmt: skip
    return {maker.rule: maker for maker in made}  # type: ignore[return-value]
