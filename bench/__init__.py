# SPDX-License-Identifier: BSD-2-Clause
"""Measurements behind every claim, one file a benchmark (`gossamer bench`)."""
