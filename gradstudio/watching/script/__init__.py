"""What is read off the script itself: its lines, the names that it has for things, its models and their layers.
May use core and watching/hooks.
"""
