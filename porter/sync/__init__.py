# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel's synchronization is right, told from what orders its events: no run, no data, no model of roles."""
