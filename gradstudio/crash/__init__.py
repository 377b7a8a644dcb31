"""Steps of a user's training as calls of torch: observed, written into a crash file, replayed from it without the code
that made them, minimized, and tried with fixes.
May use core, engine and session; never watching or gui. No code of a model is imported or run here."""
