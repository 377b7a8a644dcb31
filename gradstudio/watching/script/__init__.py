"""Reading the script itself: its lines, its names, its models and their layers.
May use core and watching/hooks."""
