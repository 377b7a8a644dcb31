"""Every command of the window: its label, its keys, its action, and when it is possible.

`command.py`: what a command is. `file_commands.py`, `run_commands.py`, `view_commands.py`: all of them.
`command_table.py`: the menus that they make, from which tooltips of buttons and the list of keys follow.
May use core, session and gui; never gui/window.py."""
