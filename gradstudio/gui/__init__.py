"""The gui layer: PySide6 and pyqtgraph, one panel per file, one plot per file. The only layer that imports Qt.
May use session and core; never engine. services/ contains the dependencies of panels and controllers; commands/ lists
the user's commands; only app.py knows window.py."""
