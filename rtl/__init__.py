# SPDX-License-Identifier: BSD-2-Clause
"""Gateware of the engine; imports no amaranth itself, so that the runtime can read its formats."""
