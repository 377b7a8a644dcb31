"""Small widgets and helpers that any panel may use.
May use the theme; knows no panel.
"""
