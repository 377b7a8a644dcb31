"""The page Gauges: quantities that are measured on demand, each with its picture and its reading.
May use gui/widgets, gui/drawing and the theme.
"""
