"""Exams in the window: exam_page.py takes one, game.py draws random ones to play, making_dialog.py makes one of the
knobs as they are set, exam_files.py asks for their files. An exam has plots of its own, so that nothing else in the
window tells what is hidden.
May use core, session, gui/services, gui/widgets, gui/plots, gui/drawing, gui/theme.py, gui/knobs/editors.py and
gui/knobs/knob_tooltip.py."""
