"""Gauges: measurements of every step, on the CPU (every_step.py, kernels.py) or on the device (on_device.py). Samples
of the activations are in activations.py; measurements on demand are in engine/probes.
May use core, engine/models, engine/passes (the flat tensors) and engine/torch_internals."""
