"""The plain PyTorch program with every knob in it: its files stand one below the other in a program, and so use each
other's names. Nothing imports them; they are read as text, and run with `knobs` and a `plan` (given.py).
May use core and program."""
