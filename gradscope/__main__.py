"""`python -m gradscope`."""

import sys

from gradscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
