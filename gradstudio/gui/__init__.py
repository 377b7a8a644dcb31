"""The window: PySide6 and pyqtgraph, one panel a file, one plot a file. The only place where Qt is imported."""
