"""The forward and backward pass of a micro-batch: through autograd, or replayed from a recording (a CUDA graph on a
GPU). The flat tensors with all weights and all gradients are here too (flat.py). May use core, engine/notices.py,
engine/runtime.py and engine/torch_internals; knows neither the trainer nor the rest of a step."""
