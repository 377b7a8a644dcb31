"""Parameters and gradients, measured where they are: by compiled loops on the host, or on their GPU.
May use core, engine, watching/hooks and watching/script."""
