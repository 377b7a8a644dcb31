"""The training loop of a script: one step that reads top to bottom."""

from __future__ import annotations

from gradstudio.core.experiment import KNOBS
from gradstudio.session.script import (
    class_weight_lines,
    clipping_lines,
    loss_lines,
    loss_scale_lines,
    optimizer_lines,
    own_model_lines,
    parametrization_lines,
    rank_lines,
    schedule_lines,
    sharpness_aware_lines,
    weight_format_lines,
)
from gradstudio.session.script.mistake_lines import always, ever, mark, right, switch, wrong
from gradstudio.session.script.plan import Lines, Plan, literal, variable

_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
_SKIP = "problem.skip_batches"
_CLIP_ELSEWHERE = ("clip_each_micro_batch", "clip_before_backward", "clip_before_unscale", "clip_after_step")
_UNDIVIDED = ("unscaled_accumulation", "divide_each_micro_batch")


def timeline(plan: Plan, lines: Lines) -> None:
    """Add the table of live changes, and the values that it changes."""
    names = [name for name in KNOBS if plan.changes(name)]
    if not names:
        return
    lines.add("TIMELINE = [  # from this step on, this knob has this value")
    for change in plan.timeline:
        if change.knob in names:
            lines.add(f"({change.step}, {literal(variable(change.knob))}, {literal(change.value)}),", 1)
    lines.add("]")
    # batches() reads the size of a step before the loop makes the changes of step 0
    values = {name: plan.first(name) if name == "accumulation.steps" else plan[name] for name in names}
    lines.add(f"knobs = SimpleNamespace({', '.join(f'{variable(name)}={literal(values[name])}' for name in names)})\n")


def before(plan: Plan, lines: Lines) -> None:
    """Add what the loop needs: optimizer, schedule, loss scale, generators of noise."""
    weight_format_lines.draw(plan, lines)
    rank_lines.wrap(plan, lines)
    optimizer_lines.build(plan, lines)
    schedule_lines.build(plan, lines)
    loss_scale_lines.build(plan, lines)
    if _asks_whether_skipped(plan) and ever(plan, "never_update_scaler"):
        lines.add("updates = []  # the steps whose update was made: without scaler.update() the scale does not tell")
        lines.add("optimizer.register_step_post_hook(lambda *_: updates.append(step))")
    if plan.above("gradients.noise_std", 0):
        lines.add("gradient_noise = torch.Generator().manual_seed(seed + 3_000_017)")
    if plan.above("problem.outlier_every", 0):
        lines.add("outliers = torch.Generator().manual_seed(seed + 2_000_003)")
    if plan.keeps_gradients and not plan.own:
        lines.add("for parameter in model.parameters():  # for what clips before the first backward pass")
        lines.add("parameter.grad = torch.zeros_like(parameter)", 1)
    if _keeps_unclipped(plan):
        lines.add("# The gradient without the clipping in between, only to print its norm")
        lines.add(f"unclipped = {{parameter: torch.zeros_like(parameter) for parameter in {plan.parameters}}}")
        lines.add("""for parameter, total in unclipped.items():
    parameter.register_hook(adds_to(total))""")
    if plan.changes(_SKIP):
        lines.add("passed = 0  # batches that were skipped")
    elif plan.above(_SKIP, 0):
        count = plan.first("accumulation.steps")
        lines.add(f"for _ in range({plan[_SKIP]}{'' if count == 1 else f' * {count}'}):  # batches that are skipped")
        lines.add("next(batches)", 1)


def functions(plan: Plan, lines: Lines) -> None:
    """Add the functions that the loop calls."""
    if not plan.own:
        loss_lines.function(plan, lines)
        class_weight_lines.function(plan, lines, climbs=sharpness_aware_lines.ever(plan))
    schedule_lines.function(plan, lines)
    weight_format_lines.function(plan, lines)
    parametrization_lines.function(plan, lines)
    loss_scale_lines.function(plan, lines)
    clipping_lines.functions(plan, lines)
    rank_lines.function(plan, lines)
    if _keeps_unclipped(plan):
        lines.add("""def adds_to(total):
    def hook(grad):
        total.add_(grad)

    return hook""")


def loop(plan: Plan, lines: Lines) -> None:
    many = plan.above("accumulation.steps", 1)
    lines.add(f"for step in range({plan['run.steps']}):")
    _apply_changes(plan, lines)
    rank_lines.suffer(plan, lines)
    _pass_over(plan, lines)
    if sharpness_aware_lines.ever(plan):
        _climb(plan, lines, many=many)
    _zero_grad(plan, lines)
    if clipping_lines.ever(plan):
        wrong(plan, lines, "clip_before_backward", clipping_lines.call(plan), "there is nothing to clip yet", 1)
    depth = 1 + many
    if many:
        _micro_batches(plan, lines)
    if not sharpness_aware_lines.ever(plan):
        drawn = class_weight_lines.shared(plan, climbs=False)
        _draw(plan, lines, depth, "inputs, targets = micro_batches[index]" if drawn else plan.next_batch)
    _mistakes_of_micro_batches(plan, lines, depth, many=many)
    _forward_and_backward(plan, lines, depth, many=many)
    if sharpness_aware_lines.ever(plan):
        sharpness_aware_lines.come_back(plan, lines)
    _finish_gradient(plan, lines)
    _update(plan, lines)
    _tell(plan, lines, many=many)


def _draw(plan: Plan, lines: Lines, depth: int, drawn: str) -> None:
    """Add the lines that draw a micro-batch, the first of which is `drawn`."""
    lines.add(drawn, depth)
    _outliers(plan, lines, depth)
    rank_lines.share(plan, lines, depth)
    _nans(plan, lines, depth)


def _climb(plan: Plan, lines: Lines, *, many: bool) -> None:
    """Add the first passes of sharpness-aware minimization, in which there is no mistake."""

    def passes(lines: Lines, depth: int) -> None:
        _forward(plan, lines, depth)
        class_weight_lines.weigh(plan, lines, depth, climbs=True, first=True)
        share = f"loss / {plan.text('accumulation.steps')}" if many else "loss"
        lines.add(loss_scale_lines.backward(plan, share), depth)

    def draw(lines: Lines, depth: int) -> None:
        _draw(plan, lines, depth, plan.next_batch)

    sharpness_aware_lines.draw(plan, lines, draw, many=many)
    class_weight_lines.draw(plan, lines, climbs=True)
    indexed = class_weight_lines.shared(plan, climbs=True)
    sharpness_aware_lines.climb(plan, lines, passes, many=many, indexed=indexed)


def _apply_changes(plan: Plan, lines: Lines) -> None:
    if not any(plan.changes(name) for name in KNOBS):
        return
    lines.add("for at, name, value in TIMELINE:", 1)
    lines.add("if at == step:", 2)
    lines.add("setattr(knobs, name, value)", 3)
    loss_scale_lines.apply_change(plan, lines)
    optimizer_lines.apply_changes(plan, lines)


def _pass_over(plan: Plan, lines: Lines) -> None:
    if not plan.changes(_SKIP):
        return
    count = plan.text("accumulation.steps")
    lines.add(f"while passed < {plan.text(_SKIP)}:", 1)
    if count != "1":
        lines.add(f"for _ in range({count}):", 2)
    lines.add("next(batches)", 2 + (count != "1"))
    lines.add("passed += 1", 2)


def _zero_grad(plan: Plan, lines: Lines) -> None:
    if ever(plan, "never_zero_grad"):
        mark(plan, lines, "never_zero_grad", "without zero_grad() every gradient adds to those before", 1)
    right(plan, lines, ("never_zero_grad",), plan.zero_grad, 1)
    if _keeps_unclipped(plan):
        _reset_unclipped(plan, lines, 1)


def _micro_batches(plan: Plan, lines: Lines) -> None:
    count = plan.text("accumulation.steps")
    indexed = ever(plan, "drop_last_micro_batches") or (
        ever(plan, "scheduler_each_micro_batch") and schedule_lines.scheduled(plan)
    )
    indexed = indexed or rank_lines.indexed(plan)
    indexed = indexed or class_weight_lines.shared(plan, climbs=False)
    if sharpness_aware_lines.ever(plan):
        sharpness_aware_lines.loop(plan, lines, 1, indexed=indexed)
        return
    class_weight_lines.draw(plan, lines, climbs=False)
    lines.add("losses = []", 1)
    lines.add(f"for {'index' if indexed else '_'} in range({count}):", 1)


def _outliers(plan: Plan, lines: Lines, depth: int) -> None:
    if not plan.above("problem.outlier_every", 0):
        return
    lines.add(f"if {_is_due(plan, 'problem.outlier_every')}:  # an outlier batch", depth)
    if plan.own:
        lines.add(own_model_lines.outlier(plan), depth + 1)
        return
    lines.add(
        f"inputs = torch.randn(inputs.shape, generator=outliers).to(device) * {plan.text('problem.outlier_scale')}",
        depth + 1,
    )


def _nans(plan: Plan, lines: Lines, depth: int) -> None:
    if not plan.above("problem.nan_every", 0):
        return
    lines.add(f"if {rank_lines.nan_here(plan)}{_is_due(plan, 'problem.nan_every')}:  # a batch with a NaN in it", depth)
    lines.add(own_model_lines.nan() if plan.own else f"inputs = {own_model_lines.spoilt('inputs')}", depth + 1)


def _is_due(plan: Plan, knob: str) -> str:
    """Return the condition that the batch is one of those that a knob asks for, one in so many."""
    every = plan.text(knob)
    condition = f"step > 0 and step % {every} == 0"
    if plan.changes(_SKIP):
        condition = f"step + passed > 0 and (step + passed) % {every} == 0"
    elif plan.above(_SKIP, 0):
        condition = f"(step + {plan[_SKIP]}) % {every} == 0"
    return f"{every} > 0 and {condition}" if plan.ever(knob, 0) else condition


def _mistakes_of_micro_batches(plan: Plan, lines: Lines, depth: int, *, many: bool) -> None:
    count = plan.text("accumulation.steps")
    if many:
        kept = (
            f"index >= {count} - {count} // 2"
            if plan.changes("accumulation.steps")
            else f"index >= {int(count) - int(count) // 2}"
        )
        wrong(plan, lines, "drop_last_micro_batches", "continue", "the divisor below still counts these", depth, kept)
    if ever(plan, "zero_grad_each_micro_batch"):
        wrong(
            plan,
            lines,
            "zero_grad_each_micro_batch",
            plan.zero_grad,
            "all but the last micro-batch are lost",
            depth,
        )
        if _keeps_unclipped(plan):
            switched = switch(plan, "zero_grad_each_micro_batch")
            if switched != "True":
                lines.add(f"if {switched}:", depth)
            _reset_unclipped(plan, lines, depth + (switched != "True"), cleared=True)
    if many and schedule_lines.scheduled(plan):
        wrong(
            plan,
            lines,
            "scheduler_each_micro_batch",
            schedule_lines.advance(plan),
            "the learning rate changes as many times too fast",
            depth,
            "index > 0",
        )


def _forward(plan: Plan, lines: Lines, depth: int) -> None:
    """Add the lines that compute the loss."""
    dtypes = plan.values("precision.dtype")
    called = f"outputs = {rank_lines.model(plan)}(inputs)"
    forward = f"loss = {own_model_lines.loss(plan)}" if plan.own else called
    if dtypes == ["fp32"]:
        lines.add(forward, depth)
    else:
        if len(dtypes) == 1:
            context = f"torch.autocast(device.type, {_DTYPES[str(dtypes[0])]})"
        else:
            others = ", ".join(f"{literal(dtype)}: {_DTYPES[str(dtype)]}" for dtype in dtypes if dtype != "fp32")
            live = plan.text("precision.dtype")
            context = f'torch.autocast(device.type, {{{others}}}.get({live}), enabled={live} != "fp32")'
        lines.add(f"with {context}:", depth)
        lines.add(forward, depth + 1)
    weight = "" if plan.values("loss.weight") == [1.0] else f" * {plan.text('loss.weight')}"
    outputs = "outputs" if dtypes == ["fp32"] else "outputs.float()"
    if outputs != "outputs" and not plan.own and loss_lines.reads_outputs_twice(plan):
        lines.add("outputs = outputs.float()", depth)  # one cast, so that its gradients are added up in fp32
        outputs = "outputs"
    lines.add(f"loss = {'loss.float()' if plan.own else loss_lines.call(plan, outputs)}{weight}", depth)


def _forward_and_backward(plan: Plan, lines: Lines, depth: int, *, many: bool) -> None:
    outside, depth = depth, rank_lines.pass_depth(plan, lines, depth, many=many)
    _forward(plan, lines, depth)
    rank_lines.weigh(plan, lines, depth)
    class_weight_lines.weigh(plan, lines, depth, climbs=sharpness_aware_lines.ever(plan))
    share, undivided = f"loss / {plan.text('accumulation.steps')}", switch(plan, *_UNDIVIDED)
    if not many or undivided == "True":
        share = "loss"
    elif undivided:
        share = f"loss / (1 if {undivided} else {plan.text('accumulation.steps')})"
    if many and ever(plan, "unscaled_accumulation"):
        mark(plan, lines, "unscaled_accumulation", "not divided by the number of micro-batches", depth)
    depth = rank_lines.backward_depth(plan, lines, depth, many=many)
    lines.add(loss_scale_lines.backward(plan, share), depth)
    depth = outside
    if many:
        _divide_gradients(plan, lines, depth)
    if clipping_lines.ever(plan):
        wrong(plan, lines, "clip_each_micro_batch", clipping_lines.call(plan), "it acts on parts of the sum", depth)
    if sharpness_aware_lines.ever(plan):
        sharpness_aware_lines.note_loss(plan, lines, depth, many=many)
    elif many:
        lines.add("losses.append(loss.detach())", depth)


def _divide_gradients(plan: Plan, lines: Lines, depth: int) -> None:
    count = plan.text("accumulation.steps")
    divided = f"for parameter in {plan.parameters}:\n    parameter.grad.div_({count})"
    if _keeps_unclipped(plan):
        divided += f"\n    unclipped[parameter].div_({count})"
    wrong(plan, lines, "divide_each_micro_batch", divided, "what came before is divided again each time", depth)


def _finish_gradient(plan: Plan, lines: Lines) -> None:
    """Add the lines between backward pass and optimizer: measure, unscale, centralize, add noise, clip."""
    early = clipping_lines.ever(plan) and ever(plan, "clip_before_unscale")
    clips_first = rank_lines.made(plan, "clip_before_all_reduce")
    rank_lines.finish(plan, lines, clipping_lines.call(plan) if clipping_lines.ever(plan) else "")
    if _keeps_unclipped(plan):
        total = f"total{_where_double_is(plan)}.double()"
        _measure(lines, f"[{total} for total in unclipped.values()]", loss_scale_lines.divided(plan))
    elif early:
        _measure(lines, _grads(plan), loss_scale_lines.divided(plan))
    if early:
        wrong(
            plan,
            lines,
            "clip_before_unscale",
            clipping_lines.call(plan),
            "these gradients still carry the loss scale",
            1,
        )
    for call in loss_scale_lines.unscales(plan):
        lines.add(call, 1)
    if not (_keeps_unclipped(plan) or early or clips_first):
        _measure(lines, _grads(plan))
        if rank_lines.sharded(plan):
            lines.add("grad_norm = grad_norm.full_tensor()  # of the shards of all ranks", 1)
    for call in loss_scale_lines.unscales(plan):
        wrong(plan, lines, "unscale_twice", call, "GradScaler raises an error, a fixed scale is divided out twice", 1)
    if plan.ever("gradients.centralize", True):
        always_on = plan.values("gradients.centralize") == [True]
        if not always_on:
            lines.add(f"if {plan.text('gradients.centralize')}:", 1)
        depth = 1 if always_on else 2
        lines.add(f"for parameter in {plan.parameters}:  # gradient centralization (Yong 2020)", depth)
        lines.add("if parameter.ndim > 1:", depth + 1)
        lines.add(
            "parameter.grad.sub_(parameter.grad.mean(dim=tuple(range(1, parameter.ndim)), keepdim=True))", depth + 2
        )
    if plan.above("gradients.noise_std", 0):
        some = plan.ever("gradients.noise_std", 0.0)
        if some:
            lines.add(f"if {plan.text('gradients.noise_std')} > 0:", 1)
        lines.add(f"for parameter in {plan.parameters}:", 1 + some)
        noise = "torch.randn(parameter.shape, generator=gradient_noise).to(device)"
        lines.add(f"parameter.grad.add_({noise}, alpha={plan.text('gradients.noise_std')})", 2 + some)
    if rank_lines.sharded(plan):
        rank_lines.clip_shards(plan, lines)
    elif clipping_lines.ever(plan) and not clips_first:
        right(plan, lines, _CLIP_ELSEWHERE, clipping_lines.call(plan), 1)


def _update(plan: Plan, lines: Lines) -> None:
    schedule_lines.set_rate(plan, lines)
    advance = schedule_lines.advance(plan) if schedule_lines.scheduled(plan) else ""
    if not loss_scale_lines.dynamic(plan):
        lines.add("optimizer.step()", 1)
        weight_format_lines.keep(plan, lines)
        _clip_late(plan, lines)
        if advance:
            lines.add(advance, 1)
        return
    skips = _asks_whether_skipped(plan)
    if skips and not ever(plan, "never_update_scaler"):
        lines.add("scale_before = scaler.get_scale()", 1)
    around = switch(plan, "step_without_scaler")
    if around:
        mark(plan, lines, "step_without_scaler", "an overflow is not skipped", 1)
    if around == "True":
        lines.add("optimizer.step()", 1)
    elif around:
        lines.add(f"if {around}:", 1)
        lines.add("optimizer.step()", 2)
        lines.add("else:", 1)
        lines.add("scaler.step(optimizer)", 2)
    else:
        lines.add("scaler.step(optimizer)", 1)
    weight_format_lines.keep(plan, lines)
    _clip_late(plan, lines)
    if ever(plan, "never_update_scaler"):
        mark(plan, lines, "never_update_scaler", "no scaler.update(), so the scaler refuses the next step", 1)
    right(plan, lines, ("never_update_scaler",), "scaler.update()", 1)
    if skips and ever(plan, "never_update_scaler"):
        lines.add("skipped = updates[-1:] != [step]", 1)
    elif skips:
        lines.add(f"skipped = {f'not {around} and ' if around else ''}scaler.get_scale() < scale_before", 1)
    if advance:
        if skips:
            lines.add("if not skipped:", 1)
        lines.add(advance, 1 + skips)


def _asks_whether_skipped(plan: Plan) -> bool:
    """Return whether the script asks if the scaler has skipped the update."""
    asks = schedule_lines.scheduled(plan) or plan.ever("run.stop_on_nonfinite", True)
    return asks and loss_scale_lines.dynamic(plan) and not always(plan, "step_without_scaler")


def _clip_late(plan: Plan, lines: Lines) -> None:
    if clipping_lines.ever(plan):
        wrong(plan, lines, "clip_after_step", clipping_lines.call(plan), "the weights have moved already", 1)


def _tell(plan: Plan, lines: Lines, *, many: bool) -> None:
    """Add the line that prints the step, and the end of the run. The norm gets nine digits: it is a sum in float64,
    which the run adds up in another order."""
    last = "told" if sharpness_aware_lines.ever(plan) else "loss"
    host = "" if plan["run.device"] == "cpu" else ".cpu()"  # a GPU takes a mean of three in another way
    value = f"torch.stack(losses){host}.double().mean().item()" if many else f"{last}.item()"
    if rank_lines.ever(plan):
        rank_lines.tell(plan, lines, value)
    else:
        lines.add(f'print(step, {value}, f"{{grad_norm:.9g}}")', 1)
    if not plan.ever("run.stop_on_nonfinite", True):
        return
    stop = f"{plan.text('run.stop_on_nonfinite')} and " if plan.changes("run.stop_on_nonfinite") else ""
    finite = "torch.stack(losses).isfinite().all()" if many else f"{last}.isfinite()"
    skips = loss_scale_lines.dynamic(plan) and not always(plan, "step_without_scaler")
    norm = "grad_norm.isfinite()"
    if rank_lines.ever(plan) and not rank_lines.joins(plan):
        finite, norm = "told[0].isfinite()", "told[1].isfinite()"
    gradient = f"(skipped or {norm})" if skips else norm
    broken = f"not ({finite} and {gradient})"
    lines.add(f"if {stop}{broken}:", 1)
    lines.add("break", 2)


def _keeps_unclipped(plan: Plan) -> bool:
    return ever(plan, "clip_each_micro_batch") and clipping_lines.ever(plan)


def _reset_unclipped(plan: Plan, lines: Lines, depth: int, *, cleared: bool = False) -> None:
    """Add the lines that reset the unclipped sum; where zero_grad is missing, to the gradient that is left."""
    if ever(plan, "never_zero_grad") and not cleared:
        lines.add("for parameter, total in unclipped.items():", depth)
        lines.add("total.copy_(torch.zeros_like(total) if parameter.grad is None else parameter.grad)", depth + 1)
    else:
        lines.add("for total in unclipped.values():", depth)
        lines.add("total.zero_()", depth + 1)


def _measure(lines: Lines, grads: str, divided: str = "") -> None:
    """Add the norm of the true gradient, in float64, which can hold the square of any float32."""
    lines.add(f"grads = {grads}", 1)
    lines.add(f"grad_norm = nn.utils.get_total_norm(grads){divided}", 1)


def _grads(plan: Plan) -> str:
    return f"[parameter.grad{_where_double_is(plan)}.double() for parameter in {plan.parameters}]"


def _where_double_is(plan: Plan) -> str:
    return ".cpu()" if plan["run.device"] == "mps" else ""  # Apple's GPUs have no float64
