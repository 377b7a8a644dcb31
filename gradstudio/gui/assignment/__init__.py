"""Exercises and exams in the window. assignment_files.py opens their files. For an exercise, exercises_page.py shows
the choice and exercise_page.py takes the answers. exam_page.py takes an exam, game.py draws random ones to play,
making_dialog.py makes one from the current knobs. An exam has its own plots, so that nothing else in the window reveals
what is hidden.
May use core, session, gui/services, gui/widgets, gui/plots, gui/drawing, gui/theme.py, gui/knobs/editors.py and
gui/knobs/knob_tooltip.py."""
