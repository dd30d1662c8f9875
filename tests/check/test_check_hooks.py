# SPDX-License-Identifier: Apache-2.0
"""The hooks fit the functions that they stand for, and none that reaches shared state is left out."""

from __future__ import annotations

import inspect

from porter.sim.check.machine import HOOKS
from porter.sim.codegen import RUNTIME

# Functions with an address among their parameters or operands that touch nothing another thread could see.
PRIVATE = {
    "generic_shared", "isspace", "kept_nan", "ld_local", "st_local", "local_index", "shared_index",
    "matrix_addresses",
}  # fmt: skip
_ADDRESSES = {"operands", "addr", "address", "dst", "src", "mbar", "desc", "b_desc", "a_desc"}


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_hooks_take_what_the_functions_take() -> None:
    for name, hook in HOOKS.items():
        wanted = parameters(RUNTIME[name])
        assert len(parameters(hook)) == len(wanted), name


def test_every_function_that_takes_an_address_is_hooked() -> None:
    takes = {
        name
        for name, function in RUNTIME.items()
        if inspect.isfunction(function) and _ADDRESSES.intersection(parameters(function))
    }
    assert takes - set(HOOKS) == PRIVATE & takes
    assert {"ld_global", "st_shared", "tensor_load", "tmem_commit", "mbar_arrive"} <= takes & set(HOOKS)
