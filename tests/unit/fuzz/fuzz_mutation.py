# SPDX-License-Identifier: Apache-2.0
"""Manifests that went wrong in some way: known good ones, changed a few times at random. Judges nothing.

All chance comes from the ``Random`` that is handed in, so a number is enough to repeat a case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml
from fuzz_schema import keys_below, value_for

ROOT = Path(__file__).parents[3]
# Its C sister is quicker and writes the same.
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# What shows that a text became more than a text: as a tag, an attribute, an option or a file.
MARK = "pwned"

TEXTS: tuple[str, ...] = (
    "",
    " ",
    "'",
    '"',
    f"<{MARK}/>",
    f'" {MARK}="1',
    f"' {MARK}='1",
    f"'/><{MARK}/>",
    f'"/></disk><{MARK}/><disk x="',
    f"</name><{MARK}/><name>",
    f"]]><{MARK}>",
    f"<![CDATA[<{MARK}/>]]>",
    f"<!--{MARK}-->",
    f"<?{MARK}?>",
    f"&{MARK};",
    f'<!DOCTYPE d [<!ENTITY {MARK} SYSTEM "file:///etc/passwd">]>&{MARK};',
    "&lt;&#60;&#x3c;&amp;",
    f"a\n<{MARK}/>\n",
    "a\r\nb",
    "\t",
    "a\x00b",
    "\x1b[2J",
    "\x7f\x85",
    "\ud800",
    "\udfff\ud800",
    "\ufffe\uffff",
    "\ufeff",
    f"\u202e{MARK}\u2028",
    f"＜{MARK}／＞",
    "ｎａｍｅ",
    "nаme",  # the second letter is Cyrillic
    "é" * 300,
    "\U0001f4a5" * 20,
    "..",
    ".",
    "/",
    f"../../{MARK}",
    f"/../{MARK}",
    f"a/../../../{MARK}",
    f"..\\..\\{MARK}",
    f"%2e%2e%2f{MARK}",
    "/etc/shadow",
    "/dev/sda",
    "/var/lib/launcher/../../etc/shadow",
    f"a,{MARK}=1",
    f"name,readonly=off,{MARK}=on",
    f"$({MARK})",
    f"`{MARK}`",
    f"; {MARK}",
    f"-{MARK}",
    "--config",
    "%s%n",
    "{0.__class__}",
    "a" * 63,
    "a" * 64,
    "a" * 254,
    "a-" * 5000,
    "x" * 70_000,
    "A",
    "a.b",
    "-a",
    "a_b",
    "~",
    "null",
    "*a",
    "&a [*a]",
    "!!python/object:os.system",
    "<<",
    "0x10",
    "1_000",
    "0o17",
    "1:30",
    "2001-01-01",
    "NaN",
    "-.inf",
    "1e3",
    "1Gi",
    "-1Gi",
    "0",
    "9" * 5000,
    "1e999999999",
    "0.00000000000000000000000000001Gi",
    "9Ei",
    "1GiB",
    "kubevirt.io/v1",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    63,
    4096,
    65536,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**200,
    1.0,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [None],
    [[]],
    {"": ""},
    {MARK: MARK},
)


@cache
def seeds() -> tuple[Any, ...]:
    """Objects that are right: the examples and the golden manifests, smallest first."""
    paths = sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("tests/golden/*/vmi.yaml")])
    read = (item for path in paths for item in yaml.safe_load_all(path.read_text()))
    found = [item for item in read if item["apiVersion"] != "v1"]  # Secrets come beside a manifest
    return tuple(sorted(found, key=lambda item: len(json.dumps(item))))


def mutated(random: Random) -> Any:
    """One of the seeds with up to eight changes, rather few; half of all may still be right."""
    value = deepcopy(random.choice(seeds()))
    changes = CHANGES if random.random() < 0.5 else GENTLE
    for _ in range(min(8, 1 + int(random.expovariate(0.7)))):
        value = random.choice(changes)(value, random)
    return value


def written(value: Any, random: Random) -> str | bytes:
    """The object as a text: JSON or YAML, now and then with broken characters."""
    ascii_only = random.random() < 0.5
    text = json.dumps(value, ensure_ascii=ascii_only)
    if random.random() < 0.5:
        # Half characters can be escaped in JSON but have no place in YAML.
        with suppress(UnicodeEncodeError):
            text = yaml.dump(value, Dumper=DUMPER, sort_keys=False, allow_unicode=not ascii_only)
    if random.random() < 0.9:
        return text
    return _garbled(text.encode("utf-8", "surrogatepass"), random)


def _garbled(content: bytes, random: Random) -> bytes:
    pieces = (
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\n",
        b"\x00",
        b"\xff",
        b": ",
        b"- ",
        b"&a ",
        b"*a",
        b"<<: ",
        b"---\n",
    )
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content) + 1)
        length = random.choice((0, 0, 1, 3, 200))
        content = content[:at] + random.choice((b"", *pieces)) + content[at + length :]
    return content


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """All (container, key, path of the container) of an object."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield value, key, path
            yield from _places(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield value, index, path
            yield from _places(below, (*path, index))


def _place(value: Any, random: Random) -> tuple[Any, Any, tuple[Any, ...]] | None:
    places = list(_places(value))
    return random.choice(places) if places else None


def _set_text(value: Any, random: Random) -> Any:
    return _put(value, random, random.choice(TEXTS))


def _set_value(value: Any, random: Random) -> Any:
    return _put(value, random, deepcopy(random.choice(VALUES)))


def _put(value: Any, random: Random, new: Any) -> Any:
    """Put ``new`` somewhere, rather into a leaf than in place of a whole part."""
    leaves = [place for place in _places(value) if not isinstance(place[0][place[1]], dict | list)]
    place = random.choice(leaves) if leaves and random.random() < 0.8 else _place(value, random)
    if place is not None:
        place[0][place[1]] = new
    return value


def _rename(value: Any, random: Random) -> Any:
    """Give a name another text wherever it stands, so that references still hold."""
    names = [c[k] for c, k, _ in _places(value) if k in ("name", "claimName", "namespace", "uid", "serial")]
    if not names:
        return value
    old, new = random.choice(names), random.choice(TEXTS)
    for container, key, _ in list(_places(value)):
        if isinstance(old, str) and container[key] == old:
            container[key] = new
    return value


def _remove(value: Any, random: Random) -> Any:
    place = _place(value, random)
    if place is not None:
        del place[0][place[1]]
    return value


def _repeat(value: Any, random: Random) -> Any:
    """Repeat an item of a list, now and then often."""
    lists = [c[k] for c, k, _ in _places(value) if isinstance(c[k], list) and c[k]]
    if lists:
        chosen = random.choice(lists)
        chosen.extend(deepcopy(random.choice(chosen)) for _ in range(random.choice((1, 1, 2, 40))))
    return value


def _new_key(value: Any, random: Random) -> Any:
    """Use a key that nobody knows."""
    maps = [c for c, k, _ in _places(value) if isinstance(c, dict) and isinstance(k, str)]
    if maps:
        random.choice(maps)[random.choice(TEXTS)] = random.choice(VALUES)
    return value


def _add_field(value: Any, random: Random) -> Any:
    """Fill in a field of the API that the manifest does not use, mostly with something plausible."""
    open_fields = [(c[k], key, kind) for c, k, p in _places(value) for key, kind in keys_below((*p, k), c[k])]
    if open_fields:
        target, key, kind = random.choice(open_fields)
        target[key] = value_for(kind, random, TEXTS)
    return value


def _borrow(value: Any, random: Random) -> Any:
    """Take a part of another seed, into the same place or into any."""
    other = deepcopy(random.choice(seeds()))
    theirs = _place(other, random)
    if theirs is None:
        return value
    container: Any = value
    try:
        if random.random() < 0.8:
            for key in theirs[2]:
                container = container[key]
            container[theirs[1]] = theirs[0][theirs[1]]
            return value
    except (KeyError, IndexError, TypeError):
        pass
    return _put(value, random, theirs[0][theirs[1]])


def _deepen(value: Any, random: Random) -> Any:
    """Wrap a part into many levels."""
    place = _place(value, random)
    if place is not None:
        inner = place[0][place[1]]
        for _ in range(random.choice((1, 20, 100))):
            inner = [inner] if random.random() < 0.5 else {"a": inner}
        place[0][place[1]] = inner
    return value


# Changes after which a manifest may still be right.
GENTLE = (*(_add_field,) * 3, *(_borrow,) * 2, _remove)
# As often as they are listed.
CHANGES = (
    *(_set_text,) * 6,
    *(_set_value,) * 4,
    *(_rename,) * 3,
    *(_add_field,) * 10,
    *(_borrow,) * 4,
    *(_remove,) * 3,
    *(_repeat,) * 2,
    _new_key,
    _deepen,
)
