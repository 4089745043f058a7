"""The command `dubium`, and `python -m dubium`."""

import atexit
import os
import sys

from dubium.cli import app


def main() -> None:
    """Run the command, and end the process at once: threads of native libraries can abort it while it shuts down."""
    code = 0
    try:
        app(prog_name="dubium")
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        code = end.code or 0
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more
        code = code or 1
    os._exit(code)


if __name__ == "__main__":
    main()
