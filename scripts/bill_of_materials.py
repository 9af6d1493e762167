"""Write simia.cdx.json: the packages of requirements.lock as a bill of materials in CycloneDX 1.6.

Each package has its version, purl, licence (of docs/licences.md), the hashes of its files, the packages that it needs, and the machines that
need it. Packages that only an extra needs have the scope `optional`. The file has no date, so that equal locks make equal bytes.

    python -m scripts.bill_of_materials          (part of make lock; needs cyclonedx-python-lib)
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from scripts.audit import LOCK, normalised
from scripts.licences import PAGE, ROW

ROOT = LOCK.parent
BILL = ROOT / "simia.cdx.json"
SELF = "simia (pyproject.toml)"
PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: ; ([^\\\n]+?))?(?: \\)?$")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class LockedPackage:
    """A package of the lock file: `marker` says which machines need it (None: all), `needed_by` names packages of the lock."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    needed_by: frozenset[str]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(text: str) -> dict[str, LockedPackage]:
    """The packages of a lock file that `uv pip compile` wrote, by normalised name. Raises `ValueError` for one without a hash."""
    found = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
        lines = block.splitlines()
        if not lines or not (head := PACKAGE.match(lines[0])):
            continue
        hashes = tuple(HASH.findall(block))
        if not hashes:
            raise ValueError(f"{lines[0]}: no hash; run make lock")
        notes = [line.strip().removeprefix("#").strip().removeprefix("via").strip() for line in lines if "#" in line]
        needed_by = frozenset(normalised(note) if note != SELF else "simia" for note in notes if is_package(note))
        found[normalised(head[1])] = LockedPackage(normalised(head[1]), head[2], head[3], hashes, needed_by)
    return found


def is_package(note: str) -> bool:
    """Whether a line under `# via` names a package, and not a file of constraints."""
    return bool(note) and not note.startswith("-")


def find_required(packages: dict[str, LockedPackage], direct: Iterable[str]) -> set[str]:
    """The packages that these packages need, themselves included."""
    required = set(direct) & packages.keys()
    while more := {p.name for p in packages.values() if p.needed_by & required} - required:
        required |= more
    return required


def write_bill(packages: dict[str, LockedPackage], licences: dict[str, str], project: dict[str, object]) -> str:
    """The bill as text. Raises `ValueError` for a package without a licence in docs/licences.md."""
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def make_component(each: LockedPackage) -> Component:
        if each.name not in licences:
            raise ValueError(f"{each.name} is not in {PAGE.name}: run scripts/licences.py first")
        files = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(each.purl),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in each.hashes],
        )
        return Component(
            name=each.name,
            version=each.version,
            bom_ref=each.purl,
            purl=PackageURL.from_string(each.purl),
            scope=ComponentScope.REQUIRED if each.name in required else ComponentScope.OPTIONAL,
            licenses=[LicenseExpression(licences[each.name])],
            external_references=[files],
            properties=[Property(name="simia:marker", value=each.marker)] if each.marker else [],
        )

    name, version = str(project["name"]), str(project["version"])
    direct = project["dependencies"]
    assert isinstance(direct, list)
    required = find_required(packages, {read_name(each) for each in direct})
    root = Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"pkg:pypi/{name}@{version}",
        purl=PackageURL("pypi", None, name, version),
        licenses=[LicenseExpression(str(project["license"]))],
    )
    components = {each.name: make_component(each) for each in packages.values()}
    bill = Bom(components=components.values())
    bill.metadata.component = root
    for owner in [name, *packages]:
        needs = [components[each.name] for each in packages.values() if owner in each.needed_by]
        bill.register_dependency(root if owner == name else components[owner], needs)
    bill.serial_number = uuid.uuid5(
        uuid.NAMESPACE_URL, "\n".join([version, *(h for p in packages.values() for h in p.hashes)])
    )
    data = json.loads(JsonV1Dot6(bill).output_as_string())
    del data["metadata"]["timestamp"]
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def read_name(requirement: str) -> str:
    """The normalised name of a requirement, as `a-b` of `A_b[c]>=1; python_version > '3'`."""
    found = REQUIREMENT.match(requirement)
    assert found is not None
    return normalised(found[0])


def read_licences() -> dict[str, str]:
    return {name: expression for name, expression, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}


def find_errors(text: str) -> str | None:
    """What the schema of CycloneDX 1.6 finds in a bill; None where it is valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return str(error.data) if error else None


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        text = write_bill(read_lock(LOCK.read_text(encoding="utf-8")), read_licences(), project)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if error := find_errors(text):
        print(f"{BILL.name}: {error}", file=sys.stderr)
        return 1
    BILL.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
