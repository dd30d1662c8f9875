# SPDX-License-Identifier: Apache-2.0
"""Programs of cases in CuTe DSL are compiled while others run: the compiler is a process of its own, and takes as long
as the simulator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from porter.build.port_plan import PortPlan, materialize
from porter.build.trust import is_granted
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, ToolkitBuilder
from porter.verify.case import Case
from porter.verify.launching import port_problem
from porter.verify.problem import bind
from porter.verify.proving import Sizes

Task = Callable[[], object]


@contextmanager
def meanwhile(*rows: Sequence[Task]) -> Iterator[None]:
    """Each row is done in a thread, one task after the other, as far as there is time. What a task raises, who asks for
    the same is told. Behind it no thread is left, so that this process may be copied."""
    over = threading.Event()

    def do(tasks: Sequence[Task]) -> None:
        for task in tasks:
            if over.is_set():
                return
            with suppress(Exception):
                task()

    threads = [threading.Thread(target=do, args=(tasks,), daemon=True) for tasks in rows if tasks]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join()


def compilations(
    builder: ToolkitBuilder, asked: Sequence[tuple[Case, PortPlan, Sequence[Sizes]]]
) -> tuple[list[Task], list[Task]]:
    """Those of originals and those of their ports, each in the order in which sizes are asked for; none where nobody
    has said that the files of the cases may be imported."""
    if not is_granted():
        return [], []

    def original(case: Case, sizes: Sizes) -> None:
        builder.make(bind(case, sizes), case.kernel, ORIGINAL_ARCH)

    def port(case: Case, plan: PortPlan, sizes: Sizes) -> None:
        problem = bind(case, sizes)
        builder.make(port_problem(problem, plan.section), materialize(plan, problem.case.to_port), PORT_ARCH)

    every = [(case, plan, sizes) for case, plan, chosen in asked for sizes in chosen]
    return (
        [partial(original, case, sizes) for case, _, sizes in every],
        [partial(port, case, plan, sizes) for case, plan, sizes in every],
    )
