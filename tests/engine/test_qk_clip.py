"""QK-clip against an attention written out: logit by logit, with loops in place of masks."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.engine.snapshot import Snapshot

HEADS, STEPS = 4, 6
TEXTS = [
    "model.kind=transformer", "problem.task=characters", f"problem.seq_len={STEPS}", "model.init=xavier",
    "model.init_gain=3",
]  # fmt: skip
DIGITS = ["model.kind=transformer", "problem.task=sequential_digits", "problem.seq_len=4", "model.init=xavier"]


def largest_logits(trainer, batches) -> torch.Tensor:
    """(blocks, heads): query . key / sqrt(width of a head), over all steps that a step may look at."""
    inputs = []
    hooks = [
        block.attention.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        for block in trainer.model.blocks
    ]
    trainer.model.eval()
    with torch.no_grad():
        for batch in batches:
            trainer.model(batch.inputs)
    trainer.model.train()
    for hook in hooks:
        hook.remove()
    largest = torch.zeros(len(trainer.model.blocks), HEADS)
    for number, state in enumerate(inputs):
        attention = trainer.model.blocks[number % len(trainer.model.blocks)].attention
        query, key = (part(state).chunk(HEADS, -1) for part in (attention.query, attention.key))
        for head in range(HEADS):
            for at in range(state.shape[1]):
                upto = at + 1 if attention.causal else state.shape[1]
                logits = torch.einsum("bd,bkd->bk", query[head][:, at], key[head][:, :upto])
                logit = logits.max().item() / math.sqrt(query[head].shape[-1])
                row = largest[number % len(trainer.model.blocks)]
                row[head] = max(row[head].item(), logit)
    return largest


def of_heads(trainer) -> list[torch.Tensor]:
    """Weights and biases of queries and keys, (heads, width of a head, ...), block by block."""
    parts = (part for block in trainer.model.blocks for part in (block.attention.query, block.attention.key))
    return [each.detach().clone().unflatten(0, (HEADS, -1)) for part in parts for each in (part.weight, part.bias)]


@pytest.mark.parametrize("texts", [TEXTS, DIGITS, [*TEXTS, "model.parametrization=mup", "model.base_width=64"]])
@pytest.mark.parametrize("count", [1, 3])
def test_queries_and_keys_of_a_head_shrink_by_the_root_of_what_its_logit_is_too_large_by(build, texts, count):
    texts = [*texts, f"accumulation.steps={count}", "optimizer.lr=0", "model.initial_bias=0.5"]
    twin = build(*texts)
    batches = twin.next_batches()
    scaled = twin.model.blocks[0].attention.shrunk
    largest = scaled * largest_logits(twin, batches)
    limit = largest.median().item()  # so that half of the heads are above it
    assert largest.max() > 1.2 * limit
    trainer = build(*texts, f"clipping.qk_clip={limit}")
    next(trainer.steps())
    factors = (limit / largest.clamp(min=limit)).sqrt()
    for number, (old, new) in enumerate(zip(of_heads(twin), of_heads(trainer), strict=True)):
        for head in range(HEADS):
            torch.testing.assert_close(new[head], old[head] * factors[number // 4, head])
    first = (scaled * largest_logits(trainer, batches))[0]  # later blocks have other inputs now
    torch.testing.assert_close(first, largest[0].clamp(max=limit))


def test_what_a_mask_hides_does_not_count(build):
    trainer = build(*TEXTS)
    batches = trainer.next_batches()
    seen = largest_logits(trainer, batches)[0]
    trainer.model.blocks[0].attention.causal = False
    hidden = largest_logits(trainer, batches)[0]
    assert (hidden > 1.1 * seen).any()
    limit = seen.max().item() * 1.01
    assert hidden.max() > limit
    one = build(*TEXTS, "optimizer.lr=0", f"clipping.qk_clip={limit}")
    next(one.steps())
    assert all(map(torch.equal, of_heads(trainer)[:4], of_heads(one)[:4]))


def test_a_skipped_update_clips_nothing(build):
    trainer = build(*TEXTS, "clipping.qk_clip=0.01", "precision.dtype=fp16", "precision.init_scale=1e30")
    before, steps = of_heads(trainer), trainer.steps()
    assert next(steps).skipped and all(map(torch.equal, before, of_heads(trainer)))
    while next(steps).skipped:
        pass
    assert not any(map(torch.equal, before, of_heads(trainer)))


def test_recorded_passes_note_the_same_logits(build):
    """Also where the knob is changed, and where a snapshot brings its former value back."""
    weights = []
    for watched in (False, True):
        trainer = build(*TEXTS, "accumulation.steps=2", "optimizer.kind=adamw", "optimizer.lr=0.03")
        trainer.passes.watched = watched
        steps = trainer.steps()
        list(islice(steps, 4))
        before = Snapshot.take(trainer)
        trainer.change("clipping.qk_clip", 0.5)
        list(islice(steps, 4))
        clipped = Snapshot.take(trainer)
        before.restore(trainer)
        list(islice(steps, 4))
        plain = trainer.flat.weights.data.clone()
        clipped.restore(trainer)
        list(islice(steps, 4))
        weights.append([clipped.weights, plain, trainer.flat.weights.data.clone()])
    assert all(map(torch.equal, *weights))
    assert not torch.equal(weights[0][0], weights[0][1])


@pytest.mark.parametrize("text", ["distributed.ranks=2", "optimizer.kind=schedule_free"])
def test_is_refused_where_it_would_do_nothing(text):
    """Each rank sees the logits of its own examples, and Schedule-Free computes the weights from two means."""
    with pytest.raises(KnobError, match=f"clipping.qk_clip = 30.0 is not allowed with {text.replace('=', ' = ')}"):
        Experiment().with_texts([*TEXTS, "clipping.qk_clip=30", text])


@pytest.mark.parametrize("text", ["model.qk_norm=true", "model.kind=mlp"])
def test_has_no_effect_where_nothing_is_left_to_limit(train, text):
    texts = [*TEXTS, "optimizer.lr=0.1", text]
    assert not Experiment().with_texts(texts).applies("clipping.qk_clip")
    one, other = (train(6, *texts, f"clipping.qk_clip={limit}") for limit in (0, 0.001))
    assert [row.loss for row in one] == [row.loss for row in other]
