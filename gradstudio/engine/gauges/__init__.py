"""Gauges: what is measured at every step, on the CPU (every_step.py, kernels.py) or on the device (on_device.py).
Gauges that are measured on demand are in on_demand/; samples of the activations are in activations.py.
May use core, engine/models, engine/passes (the flat tensors) and engine/torch_internals; only on_demand/ may use the
trainer."""
