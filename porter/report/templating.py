# SPDX-License-Identifier: Apache-2.0
"""The templates of reports."""

from __future__ import annotations

import functools

import jinja2


@functools.cache
def environment() -> jinja2.Environment:
    """What is put into HTML is escaped; a name that a template has and its data has not is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("porter.report"),
        autoescape=lambda name: name is not None and ".html" in name,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
