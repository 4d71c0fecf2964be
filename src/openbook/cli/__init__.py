"""The command line: `app.py` names the commands, one file has each, imported only when it is called."""

from openbook.cli.app import main

__all__ = ["main"]
