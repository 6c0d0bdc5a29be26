# SPDX-License-Identifier: Apache-2.0
"""One module for each command. A module is imported only when its command runs."""
