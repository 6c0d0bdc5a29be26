# SPDX-License-Identifier: Apache-2.0
"""Container images as far as disks and kernels in them matter: references and the OCI image layout."""
