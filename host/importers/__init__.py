# SPDX-License-Identifier: BSD-2-Clause
"""Readers of trained networks, one file a source."""
