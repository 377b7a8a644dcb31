"""Exercises in the window: exercise_dialog.py loads the runs of one and takes the answers, exercise_files.py asks for
the worksheet. May use gui/services, gui/widgets and the theme; nothing of other features."""
