"""The page Map: where training holds, over two knobs, drawn from real runs that train in processes of their own. May
use gui/widgets, gui/services and the theme; of session only map, report and what the simulator tells.
"""
