# SPDX-License-Identifier: Apache-2.0
"""The files that generated volumes consist of: cloud-init, configMap, secret, downwardAPI … Pure."""
