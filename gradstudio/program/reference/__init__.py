"""The plain PyTorch program with every knob in it: its files stand one below the other in a program, and so each uses
the names of those before it. They are read as text, and run with `knobs` and a `plan` (given.py).
May use core and program."""
