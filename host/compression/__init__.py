# SPDX-License-Identifier: BSD-2-Clause
"""From a float network and a recipe to a `.gossamer` file, and that file read again."""
