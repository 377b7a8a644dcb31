"""The gallery: every preset as a card, with a picture of its run, and what a person has finished.
May use gui/widgets, gui/services and the theme.
"""
