# SPDX-License-Identifier: Apache-2.0
"""What instructions do to an execution, one file a family. What no file knows is not understood, never skipped."""
