"""The page Code: the exported program of the knobs as they are, with the changed lines marked.
May use gui/widgets and the theme.
"""
