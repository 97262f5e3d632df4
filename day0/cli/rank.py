"""`python -m day0.cli.rank`: a rank that rank 0 has started; no command for people, its job comes through a pipe."""

from __future__ import annotations

import os
import sys

from day0.errors import Day0Error, ExitCode


def main() -> int:
    """The exit status: 0 where rank 0 said stop, else that of what ended this rank; rank 0 names its log."""
    from day0.runtime.engine.follow import run
    from day0.runtime.parallel.launch import read_job

    try:
        run(read_job(sys.stdin.buffer, _end_with_parent))
    except Day0Error as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return int(error.exit_code)
    return int(ExitCode.YES)


def _end_with_parent() -> None:
    """Nobody is left to answer to: no work in flight is worth finishing."""
    os._exit(ExitCode.YES)


if __name__ == "__main__":
    sys.exit(main())
