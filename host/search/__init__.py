# SPDX-License-Identifier: BSD-2-Clause
"""Recipes found by trial: within a size, or within a loss of accuracy."""
