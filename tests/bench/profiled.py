"""A service process under the standard library's profiler, from SIGUSR1 on to its end.

`python -m tests.bench.profiled FILE serve --role worker`: imports and start are left out, since
they are most of a short run and none of a long one.
"""

import cProfile
import signal
import sys
import time
from types import FrameType

from app.cli.main import main


def run(file: str, arguments: list[str]) -> None:
    """Run the command, and write what was profiled when it ends."""
    profiler = cProfile.Profile(time.process_time)  # CPU, not waiting: the machine is shared

    def begin(_number: int, _frame: FrameType | None) -> None:
        profiler.enable()

    signal.signal(signal.SIGUSR1, begin)
    try:
        main(arguments)
    finally:
        profiler.disable()
        profiler.dump_stats(file)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
