"""Steps of somebody's training as calls of torch: heard, written into a crash file, made again from it without the code
that made them, shrunk, and tried with fixes.
May use core, engine and session; never watching or gui. No code of a model is imported or run here.
"""
