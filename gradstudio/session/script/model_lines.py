"""The network of a script, without anything that the knobs switch off."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.script.layer_lines import layer_class, norm_momentum, sizes, stack, through, unflatten
from gradstudio.session.script.model_shape import each_step, product, shape
from gradstudio.session.script.plan import Lines, Plan
from gradstudio.session.script.sequence_model_lines import recurrent, transformer


def model(plan: Plan, lines: Lines) -> None:
    """Add the class of the network."""
    lines.add(CLASSES[str(plan["model.kind"])](plan) + "\n")


def build(plan: Plan) -> str:
    """Return the expression that makes the network."""
    return {"gan": "GAN()", "policy": "Policy()"}.get(str(plan["model.kind"]), "Network()")


def mlp(plan: Plan) -> str:
    """Return the class of an MLP; also that of the two networks of a gan, and of a policy."""
    width, kind, goes = plan["model.width"], str(plan["model.kind"]), shape(plan)
    norms = {"batch": f"nn.BatchNorm1d({width}{norm_momentum(plan)})", "layer": f"nn.LayerNorm({width})"}
    layer = layer_class(plan, "nn.Linear", f"inputs, {width}", norms)
    several = kind == "gan"
    name = {"gan": "MLP", "policy": "Policy"}.get(kind, "Network")
    alone = each_step(plan)
    inputs = "inputs" if several else goes.features if alone else product(goes.time_steps, goes.features)
    outputs = "outputs" if several else goes.outputs if alone else product(goes.answers, goes.outputs)
    flat = (
        "        x = x.flatten(1)\n"
        if not alone
        else "        steps = x.shape[:2]\n        x = x.flatten(0, 1)  # each time step by itself\n"
    )
    flat = "" if several else flat
    end = "" if several else unflatten(plan)
    return f"""{layer}class {name}(nn.Module):
    def __init__(self{", inputs, outputs" if several else ""}):
        super().__init__()
        self.hidden = {stack(plan, f"nn.Linear(size, {width})", sizes(inputs, plan))}
        self.head = nn.Linear({width}, {outputs})

    def forward(self, x):
{flat}        for layer in self.hidden:
            x = {through(plan)}
        return self.head(x){end}
"""


def gan(plan: Plan) -> str:
    goes = shape(plan)
    return (
        mlp(plan)
        + f'''

class GAN(nn.Module):
    """Scores of the real point, of the drawn one, and of the drawn one as the generator sees it."""

    def __init__(self):
        super().__init__()
        self.generator = MLP({goes.features}, {goes.features})
        self.discriminator = MLP({goes.features}, {goes.outputs})

    def forward(self, inputs):
        real, noise = inputs.unbind(1)
        drawn = self.generator(noise)
        scores = [self.discriminator(real), self.discriminator(drawn.detach())]
        self.discriminator.requires_grad_(False)  # the generator's loss does not train the discriminator
        scores.append(self.discriminator(drawn))
        self.discriminator.requires_grad_(True)
        return torch.cat(scores, 1)
'''
    )


def cnn(plan: Plan) -> str:
    width, goes = plan["model.width"], shape(plan)
    norms = {"batch": f"nn.BatchNorm2d({width}{norm_momentum(plan)})", "layer": f"nn.GroupNorm(1, {width})"}
    layer = layer_class(plan, "nn.Conv2d", f"inputs, {width}, 3, padding=1", norms)
    image = "        x = x.unsqueeze(1)  # an image of one channel\n"
    if each_step(plan):
        image = (
            "        steps = x.shape[:2]\n        x = x.flatten(0, 1).unsqueeze(1).unsqueeze(1)  # each time "
            "step is an image\n"
        )
    return f"""{layer}class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = {stack(plan, f"nn.Conv2d(size, {width}, 3, padding=1)", sizes(1, plan))}
        self.head = nn.Linear({width}, {goes.outputs if each_step(plan) else product(goes.answers, goes.outputs)})

    def forward(self, x):
{image}        for layer in self.hidden:
            x = {through(plan)}
        return self.head(x.mean((2, 3))){unflatten(plan)}
"""


CLASSES: dict[str, Callable[[Plan], str]] = {
    "mlp": mlp,
    "rnn": recurrent,
    "lstm": recurrent,
    "gru": recurrent,
    "cnn": cnn,
    "transformer": transformer,
    "gan": gan,
    "policy": mlp,
}
