# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import PorterError


@pytest.fixture(scope="session")
def toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except PorterError as error:
        pytest.skip(str(error))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")
