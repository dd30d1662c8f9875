# SPDX-License-Identifier: Apache-2.0
"""`python -m porter` is `porter`."""

from porter.cli.main import main

main()
