# SPDX-License-Identifier: Apache-2.0
"""The wire: code that ``make proto`` generates from ``proto/``. Nothing here is edited, this line excepted."""
