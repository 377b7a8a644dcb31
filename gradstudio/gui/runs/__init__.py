"""The page Runs: the library as a list, its search, notes and tags, the comparison of runs, stored runs as overlays.
May use gui/services, gui/widgets, gui/drawing and the theme.
"""
