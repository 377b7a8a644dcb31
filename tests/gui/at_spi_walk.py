"""Walks a window over AT-SPI as a screen reader does: run by the Python that has PyGObject, in a process of its own.

It answers each line that it reads with a line of JSON: what the program with this process id shows, an object for each
thing on view that can have the focus: its role, name and description."""

from __future__ import annotations

import json
import sys

from gi.repository import Gio, GLib

ACCESSIBLE, ROOT = "org.a11y.atspi.Accessible", "/org/a11y/atspi/accessible/root"
FOCUSABLE, SHOWING = 11, 25  # bits of a state
PATIENCE = 600_000  # ms


class Bus:
    """The bus on which programs tell screen readers what they show."""

    def __init__(self) -> None:
        session = Gio.bus_get_sync(Gio.BusType.SESSION)
        answer = session.call_sync(
            "org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress", None, None, 0, PATIENCE, None
        )
        flags = Gio.DBusConnectionFlags
        self._bus = Gio.DBusConnection.new_for_address_sync(
            answer.unpack()[0], flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION
        )

    def ask(self, name: str, path: str, interface: str, member: str, *given: object) -> object:
        sent = GLib.Variant(f"({'s' * len(given)})", given) if given else None
        return self._bus.call_sync(name, path, interface, member, sent, None, 0, PATIENCE, None).unpack()[0]

    def program(self, process: int) -> tuple[str, str] | None:
        """Return the name and the path of the program with this process id, once it is there."""
        for name, path in self.ask("org.a11y.atspi.Registry", ROOT, ACCESSIBLE, "GetChildren"):
            owner = self.ask("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetConnectionUnixProcessID", name)
            if owner == process:
                return name, path
        return None

    def _told(self, name: str, path: str, what: str) -> object:
        return self.ask(name, path, "org.freedesktop.DBus.Properties", "Get", ACCESSIBLE, what)

    def walk(self, name: str, path: str) -> list[dict]:
        """Return what can have the focus of this object and of all in it, in the order of the tree."""
        found, waiting = [], [(name, path)]
        while waiting:
            name, path = waiting.pop()
            states = self.ask(name, path, ACCESSIBLE, "GetState")
            bits = states[0] | states[1] << 32
            if not bits >> SHOWING & 1 and path != ROOT:
                continue
            if bits >> FOCUSABLE & 1:
                shown = {"role": self.ask(name, path, ACCESSIBLE, "GetRoleName")}
                found.append(shown | {what.lower(): self._told(name, path, what) for what in ("Name", "Description")})
            waiting += reversed(self.ask(name, path, ACCESSIBLE, "GetChildren"))
        return found


def main(process: int) -> None:
    bus = Bus()
    for _ in sys.stdin:
        program = bus.program(process)
        print(json.dumps(bus.walk(*program) if program else []), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
