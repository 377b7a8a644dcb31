"""Exercises and exams in the window. assignment_files.py opens their files. Of an exercise, exercises_page.py lets a
person choose one and exercise_page.py takes the answers. exam_page.py takes an exam, game.py draws random ones to
play, making_dialog.py makes one of the knobs as they are set. An exam has plots of its own, so that nothing else in the
window tells what is hidden.
May use core, session, gui/services, gui/widgets, gui/plots, gui/drawing, gui/theme.py, gui/knobs/editors.py and
gui/knobs/knob_tooltip.py."""
