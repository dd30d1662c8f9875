# SPDX-License-Identifier: Apache-2.0
"""What commands are tested with: engines that stand in for the one that ports, whose ports must not be kept."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def ports_are_made_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("porter.passes.ported.kept_port", lambda sources, options, port: port(sources, options))
