# SPDX-License-Identifier: Apache-2.0
"""What both ends of the wire share: statuses, Struct conversion, channels. Knows no service and no agent."""
