# SPDX-License-Identifier: Apache-2.0
"""A function of many items, in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from porter.diagnostics import Code, PorterError

Tell = Callable[[int, int], None]
"""Takes how many items are done, and of how many."""
_LARGEST_CHUNK = 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def spread(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    jobs: int = 1,
    tell: Tell | None = None,
    chunk: int = _LARGEST_CHUNK,
) -> list[_Result]:
    """The function of every item, in order, in `jobs` processes if there is more than one item. Function and items are
    those of this process as they are, results and exceptions are pickled. At most `chunk` items go to a process at
    once: one, where each takes long. When it is left, no process is.

    Raises:
        PorterError: TOO_LARGE: a process was killed, as systems do that run out of memory.
    """
    if jobs <= 1 or len(items) < 2:
        return _counted(map(function, items), len(items), tell)
    chunk = max(1, min(chunk, len(items) // (4 * jobs)))
    others = set(multiprocessing.active_children())
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(jobs, len(items)), fork, initializer=_install, initargs=(function, items)) as pool:
        try:
            return _counted(pool.map(_call, range(len(items)), chunksize=chunk), len(items), tell)
        except BaseException as error:
            # Nobody waits for what the others still do.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise PorterError(Code.TOO_LARGE, what="memory (a process was killed)") from None
            raise


def _counted(results: Iterable[_Result], total: int, tell: Tell | None) -> list[_Result]:
    found = []
    for result in results:
        found.append(result)
        if tell is not None:
            tell(len(found), total)
    return found


# In the processes --------------------------------------------------------------------------------------

_installed: Any = None


def _install(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _installed
    _installed = function, items
    # An interrupt of the terminal reaches all processes; the one that asked for the work ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _call(number: int) -> Any:
    function, items = _installed
    return function(items[number])
