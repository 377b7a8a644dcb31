"""Trainings that frameworks make are watched. Each test is skipped where its framework is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gradstudio.watching import frameworks

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves


def data() -> TensorDataset:
    torch.manual_seed(0)
    return TensorDataset(torch.randn(24, 4), torch.randn(24, 2))


def test_lightning(tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)
            self.seen: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = functional.mse_loss(self.net(batch[0]), batch[1])
            self.seen.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", 3.0 + index)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = frameworks.lightning_callback(name="by Lightning")
    module = Module()
    lightning.Trainer(
        max_epochs=2, callbacks=[callback], logger=False, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        gradient_clip_val=0.5,
    ).fit(module, DataLoader(data(), batch_size=8), DataLoader(data(), batch_size=24))  # fmt: skip
    assert rows(callback.watched) == pytest.approx(module.seen, rel=1e-6) and len(module.seen) == 6
    history = run_of(callback.watched).history
    assert history.logged_as("val_loss") == ([3, 5], [3.0, 3.0])
    assert history.column("grad_norm").min() > 0.5 and history.column("clipped_norm") == pytest.approx(0.5, rel=1e-4)


def test_the_trainer_of_hugging_face(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)
            self.seen: list[float] = []

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            outputs = self.net(inputs)
            loss = functional.mse_loss(outputs, labels)
            self.seen.append(loss.item())
            return {"loss": loss, "logits": outputs}

    callback, model = frameworks.huggingface_callback(name="by the Trainer"), Model()
    samples: Any = [{"inputs": one, "labels": other} for one, other in data()]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=1, per_device_train_batch_size=8, use_cpu=True, report_to=[],
        save_strategy="epoch", eval_strategy="epoch", disable_tqdm=True, max_grad_norm=0.5,
    )  # fmt: skip
    given: Any = {"model": model, "train_dataset": samples, "eval_dataset": samples}
    transformers.Trainer(args=arguments, callbacks=[callback], **given).train()
    assert rows(callback.watched) == pytest.approx(model.seen[:3], rel=1e-6)
    run = run_of(callback.watched)
    assert run.history.logged_as("val_loss")[0] == [2] and set(run.history.logged_names) == {"val_loss"}
    arguments.num_train_epochs = 2
    again = frameworks.huggingface_callback(resume=run.id)
    transformers.Trainer(args=arguments, callbacks=[again], **given).train(resume_from_checkpoint=True)
    later = run_of(again.watched)
    assert (later.parent, later.parent_step) == (run.id, 3)
    assert later.history.column("step").tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("framework", ["accelerate", "lightning.fabric"])
def test_accelerate_and_fabric(framework: str) -> None:
    found: Any = pytest.importorskip(framework)
    model: Any = nn.Linear(4, 2)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    if framework == "accelerate":
        maker = found.Accelerator(cpu=True)
        model, optimizer = maker.prepare(model, optimizer)
    else:
        maker = found.Fabric(accelerator="cpu", devices=1)
        model, optimizer = maker.setup(model, optimizer)
    watched = frameworks.watch_prepared(model, optimizer)
    seen = []
    for inputs, labels in DataLoader(data(), batch_size=8):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(inputs), labels)
        maker.backward(loss)
        optimizer.step()
        seen.append(loss.item())
    watched.close()
    assert rows([watched]) == pytest.approx(seen, rel=1e-6)


def run_of(watched: list[Any]) -> Any:
    (one,) = watched
    (run,) = [found.run for found in one.watched_runs if found.run is not None and found.run.id == one.run]
    return run


def rows(watched: list[Any]) -> list[float]:
    """The losses of the only run."""
    return list(run_of(watched).history.column("loss"))
