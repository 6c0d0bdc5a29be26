# SPDX-License-Identifier: Apache-2.0
"""Image references, as users write them."""

from __future__ import annotations

import pytest

from launcher.storage.oci.reference import ImageReference, parse_reference

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:/srv/images:v1", ImageReference("oci", "/srv/images", "v1")),
        ("oci:/srv/images", ImageReference("oci", "/srv/images")),
        ("oci:/srv/a:b/images", ImageReference("oci", "/srv/a:b/images")),
        ("oci-archive:/srv/i.tar:v1", ImageReference("oci-archive", "/srv/i.tar", "v1")),
        ("docker://reg.example/a/b:1", ImageReference("docker", "reg.example/a/b", "1")),
        ("reg.example:5000/b", ImageReference("docker", "reg.example:5000/b")),
        (f"reg.example/a/b@{DIGEST}", ImageReference("docker", "reg.example/a/b", "", DIGEST)),
        (f"b:1@{DIGEST}", ImageReference("docker", "b", "1", DIGEST)),
    ],
)
def test_forms(text: str, expected: ImageReference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text", ["", "oci:", "oci:relative/dir", "a b", "docker://", " x", "-x/y", "a@sha256:00", "a@"]
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"absolute|expected|hexadecimal"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("text", "registry"),
    [
        ("b", "docker.io"),
        ("library/b:1", "docker.io"),
        ("localhost/b", "localhost"),
        ("reg:5000/a/b", "reg:5000"),
        ("reg.example/b", "reg.example"),
    ],
)
def test_the_registry_of_a_name(text: str, registry: str) -> None:
    assert parse_reference(text).registry == registry


def test_references_for_skopeo() -> None:
    assert parse_reference("reg.example/b").at() == "docker://reg.example/b:latest"
    assert parse_reference("reg.example/b:2").at(DIGEST) == f"docker://reg.example/b@{DIGEST}"
