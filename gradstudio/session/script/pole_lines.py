"""The pole-balancing task of a script: the environment, and `batches()`, which plays it with the model as it is."""

from __future__ import annotations

from gradstudio.session.script.plan import Plan, literal


def episodes(plan: Plan, size: str) -> str:
    """Return the lines of the task; a step plays `size` episodes, an expression."""
    horizon, factor = plan["problem.seq_len"], plan["problem.input_scale"]
    inputs, targets = "(inputs * lasted.unsqueeze(2)).to(device)", "(targets * lasted.unsqueeze(2)).to(device)"
    many = plan.above("accumulation.steps", 1)
    given = f"yield from parts({inputs}, {targets})" if many else f"yield {inputs}, {targets}"
    scaled = "" if factor == 1 else f" * {literal(factor)}"
    noise = plan["problem.noise"]
    noisy = f" + torch.randn(seen.shape, generator=noise).to(device) * {literal(noise)}" if noise else ""
    baseline = (
        "        worth = worth - (worth * lasted).sum() / lasted.sum()  # a baseline\n"
        if plan["problem.baseline"]
        else ""
    )
    shown = f"torch.from_numpy(state).float().unsqueeze(1){scaled}"
    return f'''# Pole balancing (Barto, Sutton and Anderson 1983), without friction: of each episode place, speed,
# angle and angular speed
def first_states(episodes, source):
    return 0.05 * (2 * torch.rand(episodes, 4, dtype=torch.float64, generator=source).numpy() - 1)


def moved(state, right):
    """A time step later, pushed to the right or to the left."""
    speed, angle, turning = state[:, 1], state[:, 2], state[:, 3]
    sine, cosine, mass = np.sin(angle), np.cos(angle), 1.0 + 0.1
    push = (np.where(right, 10.0, -10.0) + 0.1 * 0.5 * turning**2 * sine) / mass
    angular = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / mass))
    linear = push - 0.1 * 0.5 * angular * cosine / mass
    return state + 0.02 * np.stack([speed, linear, turning, angular], 1)


def batches():
    """Episodes played by the model as it is: states, actions, what each was worth, and 1 until the end."""
    while True:
        episodes = {size}
        inputs, action, lasted = (torch.zeros(episodes, {horizon}, *size) for size in ((4,), (), ()))
        state = first_states(episodes, source)
        model.eval()
        for at in range({horizon}):
            lasting = (abs(state[:, 0]) <= 2.4) & (abs(state[:, 2]) <= math.radians(12))
            if not lasting.any():
                break
            seen = {f"({shown})" if scaled else shown}.to(device)
{f"            seen = seen{noisy}" + chr(10) if noisy else ""}            with torch.no_grad():
                chance = torch.softmax(model(seen)[:, 0], -1)[:, 1].cpu()
            right = torch.rand(episodes, generator=source) < chance
            inputs[:, at], action[:, at], lasted[:, at] = seen[:, 0].cpu(), right, torch.from_numpy(lasting)
            state = np.where(lasting[:, None], moved(state, right.numpy()), state)
        model.train()
        remaining = lasted.flip(1).cumsum(1).flip(1)
        worth = (1 - 0.99**remaining) / (1 - 0.99)  # 1 for each step to come, discounted
{baseline}        targets = torch.stack([action, worth, lasted], 2)
        {given}


batches = batches()'''


def sample(plan: Plan) -> str:
    """Return the states after ten random pushes, for an initialization that needs data."""
    factor = plan["problem.input_scale"]
    scaled = "" if factor == 1 else f" * {literal(factor)}"
    return f"""first_states(256, at_random := torch.Generator().manual_seed(seed + 5_000_011))
for _ in range(10):
    sample = moved(sample, torch.rand(256, generator=at_random).numpy() < 0.5)
sample = torch.from_numpy(sample).float().unsqueeze(1){scaled}"""
