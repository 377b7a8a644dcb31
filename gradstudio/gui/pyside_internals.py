"""Undocumented behaviour of PySide6 in use, and the fallback if it is gone.

PySide6 includes a hook for `from __feature__ import`: it reads the source of each module that is imported later, to
find the word PySide6 in it, and linecache keeps that source. Nothing here, and no library in use, needs a feature. For
torch and pyqtgraph alone that is a sixth of the time of their import, and 40 MB."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

import PySide6.QtCore  # brings the hook

PARTS = ("QtCore", "QtGui", "QtWidgets", "QtSvg", "QtTest", "QtOpenGL", "QtOpenGLWidgets")  # that pyqtgraph imports

HOOK = "shibokensupport.feature"
ASKED = "_mod_uses_pyside"  # of the hook: whether the source of a module contains the word PySide6


def leave_sources_unread() -> str:
    """Make the hook treat each module as one that uses no feature. Return "", or in one line, which is also logged, why
    sources are read."""
    hook = sys.modules.get(HOOK)
    asked = getattr(hook, ASKED, None)
    try:
        if asked is _uses_no_feature or getattr(sys, "frozen", False):  # a portable build has no sources
            return ""
        if asked is not None and asked(sys.modules[__name__]) is True and asked(logging) is False:
            setattr(hook, ASKED, _uses_no_feature)
            return ""
        fault = "it behaves otherwise"
    except Exception as raised:  # a changed library can raise anything
        fault = str(raised)
    version = PySide6.__version__
    notice = f"PySide6 {version} is not as expected ({fault}): it reads the source of each module, a slower start"
    logging.getLogger(__name__).warning(notice)
    return notice


def create_classes() -> Iterator[str]:
    """Make PySide6 create its classes, and yield the name of each. It creates a class on first use. If a thread does
    that, concurrent calls of Qt in the window's own thread may crash: 7 of 120 programs of PySide6 6.10.3 did, that had
    a thread create all of them beside a window, and none that had created them before."""
    for part in PARTS:
        with suppress(ImportError):  # pyqtgraph does without some of them
            module = import_module(f"PySide6.{part}")
            for name in dir(module):
                getattr(module, name, None)
                yield name


def _uses_no_feature(_: object) -> bool:
    return False
