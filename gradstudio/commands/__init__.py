"""The commands that cost more than a few lines, one file a subject. What costs time is imported by the command that needs it."""
