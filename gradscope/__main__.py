"""The way in, of `gradscope` and of `python -m gradscope`: Ctrl-C is heard from the first moment.

Importing the commands takes a tenth of a second, which is long enough to think better of it.
"""

import os
import sys
import time
from contextlib import suppress

BEGAN = time.monotonic()


def main() -> int:
    """Run the command line and return its exit code; after Ctrl-C leave at once."""
    try:
        import signal

        from gradscope.errors import CTRL_C
        from gradscope.signals import leave_at_once

        leave_at_once()
        from gradscope.cli import main as run_command

        code = run_command(began=BEGAN)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is said: Python may just go
    except KeyboardInterrupt:
        from gradscope.errors import CTRL_C

        os.write(2, b"gradscope: error: interrupted\n")
        code = CTRL_C
    if code == CTRL_C:
        # What is half imported does not go quietly, and with torch Python's own end takes time.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody reads it any more
                stream.flush()
        os._exit(CTRL_C)
    return code


if __name__ == "__main__":
    sys.exit(main())
