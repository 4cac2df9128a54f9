# SPDX-License-Identifier: BSD-2-Clause
"""Compressor, compiler, golden model, driver and command line."""
