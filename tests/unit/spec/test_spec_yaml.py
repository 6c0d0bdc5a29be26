# SPDX-License-Identifier: Apache-2.0
"""YAML scalars are read by what the field is, and YAML's traps do not pass."""

from __future__ import annotations

import textwrap

import pytest

from launcher.errors import InvalidSpec, Violation
from launcher.spec.load import load_vmi
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.nodes import MAX_BYTES

HEAD = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: vm
"""


def vmi(spec: str, head: str = HEAD) -> VirtualMachineInstance:
    return load_vmi(head + "spec:\n" + textwrap.indent(textwrap.dedent(spec), "  "))


def refused(text: str | bytes) -> list[Violation]:
    with pytest.raises(InvalidSpec) as caught:
        load_vmi(text)
    return list(caught.value.violations)


def refused_spec(spec: str) -> list[Violation]:
    return refused(HEAD + "spec:\n" + textwrap.indent(textwrap.dedent(spec), "  "))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", True),
        ("On", True),
        ("TRUE", True),
        ("y", True),
        ("no", False),
        ("OFF", False),
        ("false", False),
        ("n", False),
        ("!!bool no", False),
    ],
)
def test_plain_words_are_booleans_where_a_boolean_is_meant(written: str, meant: bool) -> None:
    read = vmi(f"domain: {{devices: {{disableHotplug: {written}}}}}")
    assert read.spec.domain.devices.disable_hotplug is meant


@pytest.mark.parametrize(
    "written",
    ["no", "on", "yes", "true", "0123", "1.0", "1e3", "0x1F", "2020-01-01", "1:30", ".inf", "<<", "="],
)
def test_plain_words_and_numbers_are_text_where_text_is_meant(written: str) -> None:
    read = vmi(f"domain: {{devices: {{}}, firmware: {{serial: {written}}}}}")
    assert read.spec.domain.firmware is not None
    assert read.spec.domain.firmware.serial == written


def test_map_values_and_keys_are_text() -> None:
    read = vmi("nodeSelector: {on: yes, 1: 2, 'true': '3'}\ndomain: {devices: {}}")
    assert read.spec.node_selector == {"on": "yes", "1": "2", "true": "3"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("4", 4),
        ("+4", 4),
        ("0x10", 16),
        ("0b11", 3),
        ("010", 8),
        ("0o10", 8),
        ("1_000", 1000),
        ("!!int 7", 7),
    ],
)
def test_integers_are_those_of_yaml(written: str, meant: int) -> None:
    cpu = vmi(f"domain: {{devices: {{}}, cpu: {{cores: {written}}}}}").spec.domain.cpu
    assert cpu is not None
    assert cpu.cores == meant


@pytest.mark.parametrize(
    "written", ["'4'", "4.0", "four", "1e1", "089", "0x", "_", "!!str 4", "yes", "[4]", "{a: 4}"]
)
def test_other_values_are_no_integers(written: str) -> None:
    (violation,) = refused_spec(f"domain: {{devices: {{}}, cpu: {{cores: {written}}}}}")
    assert violation.field == "spec.domain.cpu.cores"
    assert violation.type == "FieldTypeInvalid"
    assert "whole number" in violation.message


@pytest.mark.parametrize("written", ["'true'", '"no"', "!!str yes", "1", "maybe", "[]"])
def test_quoted_words_and_others_are_no_booleans(written: str) -> None:
    (violation,) = refused_spec(f"domain: {{devices: {{disableHotplug: {written}}}}}")
    assert violation.field == "spec.domain.devices.disableHotplug"
    assert violation.type == "FieldTypeInvalid"
    assert "true or false" in violation.message


@pytest.mark.parametrize(
    ("written", "meant"), [("8080", 8080), ("'8080'", "8080"), ("http", "http"), ("1.5", "1.5")]
)
def test_int_or_string_keeps_what_was_written(written: str, meant: int | str) -> None:
    probe = vmi(
        f"livenessProbe: {{tcpSocket: {{port: {written}}}}}\ndomain: {{devices: {{}}}}"
    ).spec.liveness_probe
    assert probe is not None
    assert probe.tcp_socket is not None
    assert probe.tcp_socket.port == meant


@pytest.mark.parametrize("written", ["1.5Gi", "0.5", "1e3", "'2Gi'", "3"])
def test_quantities_keep_their_text(written: str) -> None:
    memory = vmi(f"domain: {{devices: {{}}, memory: {{guest: {written}}}}}").spec.domain.memory
    assert memory is not None
    assert memory.guest is not None
    assert memory.guest.text == written.strip("'")


@pytest.mark.parametrize("written", ["", "~", "null", "Null", "NULL", "!!null ''"])
def test_null_means_absent(written: str) -> None:
    read = vmi(
        f"""\
        hostname: {written}
        networks: {written}
        nodeSelector:
          a: {written}
          b: c
        domain:
          cpu: {written}
          devices: {{}}
        """
    )
    assert read.spec.hostname is None
    assert read.spec.networks == ()
    assert read.spec.node_selector == {"b": "c"}
    assert read.spec.domain.cpu is None


def test_quoted_null_is_text() -> None:
    assert vmi("hostname: 'null'\ndomain: {devices: {}}").spec.hostname == "null"


def test_null_is_no_item_of_a_list() -> None:
    (violation,) = refused_spec("networks: [null]\ndomain: {devices: {}}")
    assert (violation.field, violation.type) == ("spec.networks[0]", "FieldTypeInvalid")


def test_a_null_is_missing_where_the_field_is_required() -> None:
    (violation,) = refused_spec("domain: {devices: null}")
    assert (violation.field, violation.type) == ("spec.domain.devices", "FieldValueRequired")


def test_empty_text_is_absent_in_an_optional_choice() -> None:
    assert vmi("dnsPolicy: ''\ndomain: {devices: {}}").spec.dns_policy is None


def test_duplicate_keys_are_refused_with_both_lines() -> None:
    (violation,) = refused_spec("domain:\n  memory: {guest: 1Gi}\n  devices: {}\n  memory: {guest: 2Gi}\n")
    assert (violation.field, violation.type) == ("spec.domain.memory", "FieldValueDuplicate")
    assert (violation.line, violation.column) == (9, 5)
    assert "line 7" in violation.message


def test_duplicate_keys_are_refused_in_parts_without_a_schema() -> None:
    head = HEAD + "  managedFields:\n  - fieldsV1: {'f:spec': {a: 1, a: 2}}\n"
    (violation,) = refused(head + "spec: {domain: {devices: {}}}\n")
    assert violation.field == "metadata.managedFields[0].fieldsV1[f:spec][a]"
    assert violation.type == "FieldValueDuplicate"


def test_parts_without_a_schema_are_read_by_their_looks() -> None:
    head = (
        HEAD
        + "  managedFields:\n  - fieldsV1: {a: yes, b: 1, c: 0.5, d: no way, e: '1', f: [null, {}], g: y}\n"
    )
    meta = load_vmi(head + "spec: {domain: {devices: {}}}\n").metadata
    assert meta is not None
    expected = {"a": True, "b": 1, "c": 0.5, "d": "no way", "e": "1", "f": [None, {}], "g": "y"}
    assert meta.managed_fields[0].fields_v1 == expected


@pytest.mark.parametrize("written", [".inf", "-.INF", ".nan", "1.5e999", "!!float 1e999"])
def test_numbers_that_are_not_finite_do_not_pass(written: str) -> None:
    head = HEAD + f"  managedFields:\n  - fieldsV1: {{a: {written}}}\n"
    (violation,) = refused(head + "spec: {domain: {devices: {}}}\n")
    assert violation.field == "metadata.managedFields[0].fieldsV1[a]"
    for spec in ("cpu: {{cores: {}}}", "memory: {{guest: {}}}"):
        assert len(refused_spec(f"domain: {{devices: {{}}, {spec.format(written)}}}")) == 1


@pytest.mark.parametrize("key", ["? [a]\n", "? {a: b}\n", "~", "!!int 1", "!!null x"])
def test_keys_must_be_text(key: str) -> None:
    violations = refused(HEAD + "spec:\n  domain: {devices: {}}\n  nodeSelector:\n    " + key + "    : x\n")
    assert violations[0].type in ("FieldTypeInvalid", "FieldValueInvalid")
    assert violations[0].line in (8, 9)


def test_merge_keys_are_refused() -> None:
    violations = refused_spec("domain: &d {devices: {}}\naffinity:\n  <<: *d\n")
    assert [v.field for v in violations] == ["spec.affinity[<<]"]
    assert "merge keys are not supported" in violations[0].message


def test_aliases_repeat_what_they_name() -> None:
    read = vmi("nodeSelector: &sel {a: b}\ndomain: {devices: {}}\n")
    head = HEAD + "  labels: &l {a: b}\n  annotations: *l\n"
    repeated = load_vmi(head + "spec: {domain: {devices: {}}}\n").metadata
    assert read.spec.node_selector == {"a": "b"}
    assert repeated is not None
    assert repeated.annotations == repeated.labels == {"a": "b"}


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
STAIRS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 500))
LONG_TEXTS = "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 100) + "]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "too many values"),
        (LONG_TEXTS, "too many values"),
        (STAIRS, "nested too deep"),
        ("- " * 70 + "a", "nested too deep"),
        ("[" * 100_000, "nested too deep"),
        ("[" + "1," * 310_000 + "]", "too many values"),
        ("---\na: 1\n" * 1001, "too many documents"),
        ("a: &x [*x]", "an alias inside of what it repeats"),
        ("a: *x", "an alias without an anchor"),
        ("a: !!timestamp 2020-01-01", "tag '!!timestamp' is not accepted"),
        ("a: !!python/object/apply:os.system [id]", "is not accepted"),
        ("a: !!binary aGk=", "tag '!!binary' is not accepted"),
        ("a: !!set {b}", "tag '!!set' is not accepted"),
        ("a: !mine b", "tag '!mine' is not accepted"),
        ("a: b: c", "not YAML"),
        ("a: [", "not YAML"),
        ("\ta: b", "not YAML"),
        ("a: 'b\x07'", "control character"),
        ("a: \0", "control character"),
        ("%YAML 3.0\n---\na: 1", "not YAML"),
        ("", "no object"),
        ("# nothing\n---\n---\nnull\n", "no object"),
        ("a: \ud800", "not UTF-8"),
        (b"a: \xff", "not UTF-8"),
        ("x" * (MAX_BYTES + 1), "4 MiB"),
        ("é" * (MAX_BYTES // 2 + 1), "4 MiB"),
        (b"x" * (MAX_BYTES + 1), "4 MiB"),
    ],
)
def test_texts_that_are_refused_as_a_whole(text: str | bytes, message: str) -> None:
    violations = refused(text)
    assert message in violations[0].message
    assert violations[0].field == "manifest"


def test_control_characters_behind_escapes_are_refused() -> None:
    violations = refused_spec('hostname: "a\\0b"\nnodeSelector: {"a\\x1bb": c}\ndomain: {devices: {}}')
    assert [(v.field, v.line) for v in violations] == [("spec.hostname", 6), ("spec.nodeSelector", 7)]
    assert violations[0].value == "a\\x00b"
    assert "U+0000" in violations[0].message
    assert "U+001B" in violations[1].message


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    text = HEAD + "spec: {domain: {devices: {}}}\n"
    assert load_vmi("\ufeff" + text) == load_vmi(b"\xef\xbb\xbf" + text.encode()) == load_vmi(text)


def test_positions_of_syntax_errors_count_characters_from_one() -> None:
    (violation,) = refused("é: 'é\x07'")
    assert (violation.line, violation.column) == (1, 6)
