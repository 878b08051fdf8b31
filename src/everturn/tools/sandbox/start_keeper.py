"""Starts a keeper without importing its parent packages, which would load half of Everturn for each command.

Usage: start_keeper.py DESCRIPTOR. The descriptor's file holds ``Landlock``'s ``spec``.
"""

import os
import sys


def main() -> None:
    """Run the keeper. Never returns."""
    folder = os.path.dirname(os.path.abspath(__file__))
    tools = os.path.dirname(folder)
    places = {"everturn": os.path.dirname(tools), "everturn.tools": tools, "everturn.tools.sandbox": folder}
    for name, place in places.items():
        package = type(sys)(name)
        package.__path__ = [place]
        sys.modules[name] = package
    from everturn.tools.sandbox.keeper import main as run

    run()


if __name__ == "__main__":
    main()
