"""The page Memory: what one step of the experiment would take, worked out in a process of its own while the page is in
sight. May use gui/widgets, gui/services and the theme; of session only footprint and what the simulator tells.
"""
