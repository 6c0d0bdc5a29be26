# SPDX-License-Identifier: Apache-2.0
"""Options of migrations from the node's configuration: its own layer, and the folder of MigrationPolicies."""

from __future__ import annotations

from pathlib import Path

from launcher.errors import InvalidRequest, InvalidSpec, Violation
from launcher.host.config import Config
from launcher.migration.compose import POLICIES
from launcher.migration.selection import policy_name
from launcher.spec.load import decode_part, load_manifests
from launcher.spec.model import MigrationPolicy, VMIMConfigurationOptions
from launcher.spec.quantity import Quantity
from launcher.spec.rules import check_options, check_policy

SECTION = "migration.options"
SUFFIXES = frozenset({".yaml", ".yml", ".json"})
HINT = "see docs/migration.md"


def node_options(config: Config) -> VMIMConfigurationOptions:
    """The options of ``[migration.options]``, by the API's names.

    Raises:
        InvalidRequest: an unknown name, a wrong type or a number out of range; all of them, by path.
    """
    options, unread = decode_part(config.migration.options, VMIMConfigurationOptions, SECTION)
    violations = (*unread, *check_options(options, SECTION))
    networks = config.migration.networks
    if options.network and options.network not in networks:
        named = ", ".join(sorted(networks)) or "none"
        message = f"no such migration network; migration.networks has {named}"
        violations = (
            *violations,
            Violation(
                field=f"{SECTION}.network",
                type="FieldValueNotFound",
                value=options.network[:80],
                message=message,
            ),
        )
    if violations:
        raise InvalidRequest(violations, hint=HINT)
    return options


def check_rules(config: Config) -> str:
    """The name of the rules that decide about convergence.

    Raises:
        InvalidRequest: there are none of that name.
    """
    name = config.migration.rules
    if name in POLICIES:
        return name
    finding = Violation(
        field="migration.rules",
        type="FieldValueNotSupported",
        value=name[:80],
        message=f"accepted are {', '.join(POLICIES)}",
    )
    raise InvalidRequest([finding], hint=HINT)


def link_bps(config: Config) -> int:
    """What the link carries, in bytes a second; 0: not known.

    Raises:
        InvalidRequest: it is no quantity, or not positive.
    """
    text = config.migration.link_bandwidth
    if not text:
        return 0
    try:
        found = Quantity(text).bytes_floor()
    except ValueError as error:
        raise _bad("migration.link_bandwidth", str(error)) from error
    if found <= 0:
        raise _bad("migration.link_bandwidth", "must be more than 0 bytes a second")
    return found


def outbound_limit(config: Config) -> int:
    """Migrations away from the node at a time: the API's option where it is given, else the node's key."""
    return node_options(config).parallel_outbound_migrations_per_node or config.migration.outbound


def read_policies(folder: str) -> tuple[MigrationPolicy, ...]:
    """All MigrationPolicies of the YAML and JSON files in ``folder``; an empty path has none. Reads files.

    Raises:
        InvalidRequest: the folder cannot be read, a file holds something else, or two have one name.
        InvalidSpec: a policy is wrong; the hint names the file.
    """
    if not folder:
        return ()
    found: dict[str, MigrationPolicy] = {}
    for path in _files(folder):
        for loaded in load_manifests(_text(path), source=str(path), judge=True):
            policy = loaded.obj
            if not isinstance(policy, MigrationPolicy):
                raise _bad(str(path), f"holds a {loaded.kind}; expected are MigrationPolicies")
            violations = check_policy(policy)
            if violations:
                raise InvalidSpec(violations, hint=f"in {path}")
            name = policy_name(policy)
            if not name:
                raise _bad(str(path), "metadata.name: required: the name of the policy")
            if name in found:
                raise _bad(str(path), f"there is a MigrationPolicy {name!r} already")
            found[name] = policy
    return tuple(found[name] for name in sorted(found))


def _files(folder: str) -> list[Path]:
    try:
        return sorted(p for p in Path(folder).iterdir() if p.suffix in SUFFIXES and p.is_file())
    except OSError as error:
        raise _bad("migration.policies_dir", f"{folder}: {error.strerror}") from error


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _bad(str(path), error.strerror or str(error)) from error


def _bad(field: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type="FieldValueInvalid", message=message)], hint=HINT)
