"""Exercises in the window: exercises_page.py lets a person choose one, exercise_dialog.py loads its runs and takes the
answers, exercise_files.py opens worksheets. May use core, session, gui/services, gui/widgets and gui/theme.py."""
