"""The gui layer: PySide6 and pyqtgraph, one panel a file, one plot a file. The only layer that imports Qt.
May use session and core; never engine. services/ holds what panels and controllers are given; commands.py lists what a
person can do; only app.py knows window.py.
"""
