# SPDX-License-Identifier: Apache-2.0
"""What is inside <devices>: one module for each kind plans it, ``assembly`` puts them together. Pure.

Imports nothing: who needs the records of ``model`` would get every planner with them, and so itself.
"""
