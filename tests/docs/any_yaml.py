"""`yaml`: PyYAML of this Python, or of that of ./dev docs, with which the program
then starts again; None without either."""

import os
import sys

try:
    import yaml
except ImportError:
    yaml = None
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    venv = f"{cache}/ddp/site"
    if os.path.exists(f"{venv}/bin/python3") and (
            os.path.realpath(sys.prefix) != os.path.realpath(venv)):
        os.execv(f"{venv}/bin/python3", [f"{venv}/bin/python3", "-B", *sys.argv])
