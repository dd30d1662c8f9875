# SPDX-License-Identifier: Apache-2.0
"""What each command is called with: its arguments, options and help, one module per command. What it does stands
in the module of the same name in `porter.cli`, which is imported when the command runs."""
