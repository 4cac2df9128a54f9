# SPDX-License-Identifier: BSD-2-Clause
"""What a model takes and why: bytes, cycles, errors, tables, pictures."""
