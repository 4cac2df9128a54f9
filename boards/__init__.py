# SPDX-License-Identifier: BSD-2-Clause
"""Boards: one file a board, and the build of a bitstream."""
