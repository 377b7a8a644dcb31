"""What lessons are held to: keeping a preset's promise. May use record, running and words."""
