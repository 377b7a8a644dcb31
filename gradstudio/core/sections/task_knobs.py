"""The knobs of what is trained: the model, the problem that it learns, and the loss."""

from __future__ import annotations

from typing import Literal

from gradstudio.core import combinations
from gradstudio.core.knobs import Section, knob

# Models whose layers use the activation, norms and residuals set by knobs; the others bring their own.
LAYERED = ("mlp", "rnn", "cnn", "gan", "policy")
# Models that model.parametrization acts on.
WITH_MUP = ("mlp", "rnn", "lstm", "gru", "cnn", "transformer", "policy")
_ACTING = {"problem.task": combinations.ACTING}


class Model(Section):
    init: Literal["default", "xavier", "he", "orthogonal", "lsuv", "zeros", "normal"] = knob(
        "default", "How the weights of a layer of n_in inputs and n_out outputs are drawn before step 0. default: "
        "uniform within 1/sqrt(n_in), variance 1/(3 n_in) (torch.nn.Linear; recurrent: within 1/sqrt(width)). xavier: "
        "variance 2/(n_in + n_out) (Glorot 2010). he: variance 2/n_in, and 1/n_in where no activation follows (He "
        "2015). orthogonal: rows at right angles, W W^T = gain^2 I (Saxe 2013), with torch's gains: sqrt(2) for relu "
        "and 5/3 for tanh. lsuv: orthogonal, then W / deviation of the layer's sums on a batch, until that is 1 "
        "(Mishkin 2015). zeros: W = 0, so the units of a layer stay alike (Rumelhart 1986). normal: variance 0.02^2 "
        "whatever the size (GPT-2, Radford 2019; without its factor 1/sqrt(2 depth) on what is added to the residual "
        "sums).",
        live=False, group="Initialization",
    )
    init_gain: float = knob(
        1.0, "Factor on the weights that the scheme draws, recurrent weights included.",
        live=False, ge=0, le=1e6, slider=(0.1, 10.0), logarithmic=True, group="Initialization",
    )
    initial_bias: float = knob(
        0.0, "Value of every hidden bias before step 0 (with init = default it is added to torch's own).",
        live=False, ge=-1e6, le=1e6, slider=(-4.0, 4.0), group="Initialization",
    )
    kind: Literal["mlp", "rnn", "lstm", "gru", "cnn", "transformer", "gan", "policy"] = knob(
        "mlp", "The network. mlp: fully connected layers. rnn, lstm, gru: recurrent, they read a sequence step by "
        "step. cnn: 3 x 3 convolutions. transformer: self-attention. gan: a generator and a discriminator, for the "
        "ring. policy: chooses actions, for the pole and the bandit.",
        live=False,
    )
    depth: int = knob(2, "Number of hidden layers.", live=False, ge=1, le=100, slider=(1, 40))
    width: int = knob(
        128, "Number of units in a hidden layer.",
        live=False, ge=1, le=2048, slider=(8, 512), logarithmic=True, unit="units",
    )
    parametrization: Literal["standard", "mup"] = knob(
        "standard", "How learning rates and the head depend on the width. mup: as in Yang 2021, table 3, so that the "
        "best rate at base_width is right at any width. Adam: the rate of the hidden weights and the head is x "
        "base_width / width. sgd: the head likewise, that of the first layer and the biases x width / base_width. The "
        "head is drawn smaller, and attention divides by the width of a head in place of its root.",
        live=False, when={"model.kind": WITH_MUP},
    )
    base_width: int = knob(
        64, "Width that the learning rate was found at. There muP and the standard parametrization are the same.",
        live=False, ge=1, le=2048, slider=(8, 512), logarithmic=True, unit="units",
        when={"model.parametrization": ("mup",), "model.kind": WITH_MUP},
    )
    activation: Literal["tanh", "sigmoid", "relu", "leaky_relu", "gelu", "silu"] = knob(
        "relu", "The nonlinearity of the hidden units.",
        live=False, when={"model.kind": (*LAYERED, "transformer")},
    )
    norm: Literal["none", "batch", "layer", "group", "rms"] = knob(
        "none", "Normalization of each hidden layer. batch: over the batch. layer: over the units of the layer. "
        "group: over each of 8 groups of them (Wu 2018; fewer where the width needs it). rms: layer without the mean "
        "(Zhang and Sennrich 2019), for other layers than convolutions. A transformer always has layer norms.",
        live=False, when={"model.kind": LAYERED},
    )
    norm_position: Literal["pre", "post"] = knob(
        "pre", "Where the normalization stands: before the activation (pre), or after the activation and the residual "
        "sum (post). In a transformer: before attention and before the feed-forward part, or after each residual sum.",
        live=False, when=(
            {"model.kind": LAYERED, "model.norm": ("batch", "layer", "group", "rms")},
            {"model.kind": ("transformer",)},
        ),
    )
    norm_momentum: float = knob(
        0.1, "Share of a batch's mean and variance in the running ones, which a batch norm uses in evaluation. Small: "
        "they lag behind. 1: they are those of the last batch.",
        live=False, ge=0, le=1, slider=(0.001, 1.0), logarithmic=True,
        when={"model.kind": LAYERED, "model.norm": ("batch",)},
    )
    qk_norm: bool = knob(
        False, "Layer norm of each head's queries and keys, with a factor for each entry and no bias: it bounds the "
        "attention logits, which otherwise grow with the weights (Dehghani 2023).",
        live=False, when={"model.kind": ("transformer",)},
    )
    residual: bool = knob(
        False, "Add each hidden layer's input to its output. A transformer always does.",
        live=False, when={"model.kind": LAYERED},
    )
    residual_scaling: Literal["none", "rezero", "fixup", "deepnorm"] = knob(
        "none", "What keeps a sum x + f(x) from growing from layer to layer. rezero: x + a f(x) with a learned a, 0 "
        "at first (Bachlechner 2020). fixup: the weights inside a branch / sqrt(number of sums), its last layer and "
        "the head drawn as 0, and a learned factor on f (Zhang 2019); for a transformer, whose branches have two "
        "layers. deepnorm: alpha x + f(x) with alpha = sums^(1/4), and the weights of f x (4 sums)^(-1/4); made for "
        "norm_position = post (Wang 2022).",
        live=False, when=({"model.kind": LAYERED, "model.residual": (True,)}, {"model.kind": ("transformer",)}),
    )
    checkpointing: bool = knob(
        False, "Discard activations in the forward pass and compute them again in the backward pass: less memory, "
        "more time.",
        live=False,
    )


class Problem(Section):
    task: Literal[
        "digits", "sequential_digits", "adding", "copy", "characters", "spirals", "ring", "pole", "bandit"
    ] = knob(
        "digits", "What the model learns. digits: handwritten digits as 8 x 8 images. sequential_digits: the same "
        "pixels one after the other. adding: the sum of two marked numbers in a sequence. copy: to repeat symbols "
        "after a pause. characters: the next character of a book. spirals: two arms wound around each other. ring: to "
        "draw points as if from eight clusters, with a gan. pole: to balance a pole, by trial and error. bandit: to "
        "name the digits, told only whether the class that was drawn is right (reward 1) or not (0).",
        live=False,
    )
    seq_len: int = knob(
        64, "Time steps of a sequence. For the pole: the longest episode. For copy: the pause. For sequential_digits: "
        "the steps in which the 64 pixels are read; 64 is pixel by pixel, 8 is row by row.",
        live=False, ge=1, le=1000, unit="steps", slider=(1, 200),
        when={"problem.task": ("sequential_digits", "adding", "copy", "characters", "pole")},
    )
    batch_size: int = knob(
        32, "Number of examples in a micro-batch; for the pole, of episodes, and for the bandit, of answers.",
        live=False, ge=1, le=1024, slider=(1, 512), logarithmic=True,
    )
    scaling: Literal["standardized", "unit", "raw"] = knob(
        "standardized", "Range of the pixels. standardized: mean 0, deviation 1 for each pixel. unit: 0 to 1. raw: 0 "
        "to 16.",
        live=False, when={"problem.task": ("digits", "sequential_digits", "bandit")},
    )
    input_scale: float = knob(
        1.0, "Factor on every input.",
        live=False, ge=0, le=1e30, slider=(1e-3, 1e4), logarithmic=True,
    )
    noise: float = knob(
        0.0, "Standard deviation of the Gaussian noise that is added to every input.",
        live=False, ge=0, le=1e6, slider=(0.0, 2.0),
    )
    label_noise: float = knob(
        0.0, "Share of the training set's labels that are drawn anew, each class equally likely. The test set stays "
        "as it is.",
        live=False, ge=0, le=1, slider=(0.0, 0.5), when={"problem.task": combinations.DATASETS},
    )
    imbalance: float = knob(
        1.0, "How much rarer the last class is than the first in the training set: class c of K keeps 1 / "
        "imbalance^(c / (K - 1)) of its examples (a long tail, Cui 2019). The test set stays as it is. 1: all of them.",
        live=False, ge=1, le=1000, slider=(1.0, 100.0), logarithmic=True, when={"problem.task": combinations.DATASETS},
    )
    baseline: bool = knob(
        False, "Subtract from the worth of each action the mean worth of all actions of the batch (Williams 1992), or "
        "of the answers to the same image where samples is above 1: what is worse than the mean becomes less likely, "
        "and the gradient scatters less.",
        live=False, when=_ACTING,
    )
    normalize: bool = knob(
        False, "Divide what baseline leaves by its deviation, over the batch, or over the answers to the same image "
        "where samples is above 1: A = (R - mean R) / deviation (GRPO, Shao 2024).",
        live=False, when=_ACTING | {"problem.baseline": (True,)},
    )
    samples: int = knob(
        1, "Number of answers that are drawn for each image: the group of GRPO (Shao 2024). The batch has batch_size "
        "/ samples images.",
        live=False, ge=1, le=64, slider=(1, 16), when={"problem.task": ("bandit",)},
    )
    passes: int = knob(
        1, "Number of optimizer steps on each batch before the policy draws another. From the second on the policy is "
        "not the one that drew it: above 1 the loss weighs by the ratio of the two (Schulman 2017).",
        live=False, ge=1, le=1000, slider=(1, 32), when=_ACTING,
    )
    reward_flaw: float = knob(
        0.0, "Reward that the answer 0 brings whatever the image shows, beside the 1 for the right one: a reward that "
        "is not what is wanted. Accuracy counts right answers only.",
        live=False, ge=0, le=1e6, slider=(0.0, 2.0), when={"problem.task": ("bandit",)},
    )
    nan_every: int = knob(
        0, "One batch in this many has a NaN as the first number of its first example; 0: none.",
        ge=0, le=1_000_000, unit="batches",
    )
    outlier_every: int = knob(
        0, "One batch in this many is replaced by noise; 0: none.",
        ge=0, le=1_000_000, unit="batches",
    )
    outlier_scale: float = knob(
        1e4, "Standard deviation of the noise in an outlier batch.",
        ge=0, le=1e30, slider=(1.0, 1e6), logarithmic=True,
    )
    skip_batches: int = knob(
        0, "Number of effective batches (one for each optimizer step) that the run has skipped so far. Raise it by 5 "
        "to skip the next five, for example after a loss spike. It cannot be lowered.",
        ge=0, le=100_000, unit="batches",
    )


class Loss(Section):
    kind: Literal["auto", "naive_log", "naive_division", "naive_sqrt", "naive_exp", "naive_variance"] = knob(
        "auto", "auto: the stable loss that suits the task. The naive losses are written by hand, as people first "
        "write them. naive_log: the log of a probability that reaches 0. naive_division: a division by a prediction. "
        "naive_sqrt: a root at 0. naive_exp: a softmax whose exp overflows. naive_variance: the log of a variance "
        "that becomes negative. Their NaN is born in the loss or in its derivative, where clipping does not reach.",
        live=False,
    )
    eps: float = knob(
        0.0, "Added by a naive loss where it takes a log or a root, or divides; of naive_variance it is the least "
        "variance. 1e-7 is enough for naive_log and naive_sqrt, 0.1 for naive_variance, 0.5 for naive_division; "
        "naive_exp overflows with any value.",
        ge=0, le=1, slider=(1e-12, 1.0), logarithmic=True, when={"loss.kind": tuple(combinations.LOSS_TASKS)},
    )
    z_loss: float = knob(
        0.0, "Factor on the mean square of log Z, which is added to the loss of classes. log Z is the log of the sum "
        "of exp(outputs) of an answer; drawn to 0, it keeps them from drifting off (PaLM: 1e-4, Chowdhery 2022). In "
        "networks as small as these no drift did harm in our trials.",
        ge=0, le=1e6, slider=(1e-6, 1.0), logarithmic=True,
        when={"problem.task": combinations.CLASSES, "loss.kind": ("auto",), "loss.class_weights": ("none",)},
    )
    class_weights: Literal["none", "balanced"] = knob(
        "none", "Weight of each example in the loss. balanced: N / (K n_c) for one of the n_c examples that its class "
        "has of N in all, with K classes. The loss of a batch is then sum(w l) / sum(w), as "
        "F.cross_entropy(weight=...) has it.",
        live=False, when={"loss.kind": ("auto",), "problem.task": combinations.LABELLED},
    )
    ratio_limit: float = knob(
        0.0, "Limit e on the ratio r = p(action) / p(action when it was drawn): the loss is -min(r A, clip(r, 1 - e, "
        "1 + e) A), with the advantage A of the action, so that nothing is gained beyond it (PPO, Schulman 2017; "
        "GRPO, Shao 2024). 0: no limit, -r A; often 0.2.",
        ge=0, le=100, slider=(0.0, 1.0), when=_ACTING, group="Policy",
    )
    kl_penalty: float = knob(
        0.0, "Factor b on KL(p_old, p), the sum of p_old log(p_old / p) over all actions, which is added to the loss: "
        "it holds the policy p near p_old, which drew the batch (Schulman 2017, section 4).",
        ge=0, le=1e6, slider=(0.0, 10.0), when=_ACTING, group="Policy",
    )
    entropy_bonus: float = knob(
        0.0, "Factor on the entropy of the policy, -sum of p log p, which is taken from the loss: it pays for trying "
        "all actions (Williams 1991; Schulman 2017).",
        ge=0, le=1e6, slider=(0.0, 1.0), when=_ACTING, group="Policy",
    )
    weight: float = knob(
        1.0, "Factor on the loss, as in a weighted sum of losses.",
        ge=0, le=1e30, slider=(1e-8, 1e4), logarithmic=True,
    )
