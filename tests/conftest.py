# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests: hypothesis sets no deadlines, for a busy machine is no defect of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("launcher", deadline=None)
settings.load_profile("launcher")
