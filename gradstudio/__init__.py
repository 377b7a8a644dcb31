"""GradStudio: a flight simulator for training stability."""

__version__ = "0.1.0"
