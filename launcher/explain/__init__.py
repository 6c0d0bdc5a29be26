# SPDX-License-Identifier: Apache-2.0
"""Where each element of a domain comes from, and what each field of the API does. Pure; changes nothing.

Answers are measured, not listed: a manifest is changed in one place, planned and written down again, and what
differs is what that place decides. What cannot be measured so is declared in ``declared``.
"""
