"""The list of what the wheel has of others, in CycloneDX: `.dist-info/sboms/` (PEP 770).

These are the npm packages in the widgets' bundles. What the package depends on is not in the wheel:
its metadata has that. Hatchling calls this when it builds a wheel.
"""

import base64
import json
import re
import tempfile
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WIDGETS = Path("casual_mcp_nb/widgets")
BUNDLED = re.compile(r"^(@?[\w./-]+) (\d[\w.-]*) \(([\w.-]+)\)$", re.MULTILINE)
"""The line with which the licences of a bundled package begin: name, version, licence."""


def sbom(root: Path, name: str, version: str) -> dict[str, Any]:
    """Return the CycloneDX document.

    Args:
        root: The root of the source tree.
        name: The package's name.
        version: Its version.
    """
    licences = (root / WIDGETS / "static/LICENSES.txt").read_text(encoding="utf-8")
    lock = json.loads((root / WIDGETS / "frontend/package-lock.json").read_text(encoding="utf-8"))
    bundled = {each[0]: each for each in BUNDLED.findall(licences)}
    locked = {each: lock["packages"][f"node_modules/{each}"] for each in bundled}
    components = [
        component(*bundled[each], integrity=locked[each]["integrity"]) for each in bundled
    ]
    references = {each["name"]: each["bom-ref"] for each in components}
    this = f"pkg:pypi/{name}@{version}"
    dependencies = [{"ref": this, "dependsOn": sorted(references.values())}]
    for each, package in locked.items():
        needed = [references[other] for other in package.get("dependencies", ())]
        dependencies.append({"ref": references[each], "dependsOn": sorted(needed)})
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": this,
                "name": name,
                "version": version,
                "purl": this,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": components,
        "dependencies": dependencies,
    }
    # The number is that of the content, so that two builds have the same one.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document))
    return document | {"serialNumber": f"urn:uuid:{number}"}


def component(name: str, version: str, licence: str, *, integrity: str) -> dict[str, Any]:
    """Return the entry of one npm package, with the checksum of its archive on npm."""
    algorithm, _, checksum = integrity.partition("-")
    purl = f"pkg:npm/{quote(name)}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"id": licence}}],
        "hashes": [
            {
                "alg": algorithm.upper().replace("SHA", "SHA-"),
                "content": base64.b64decode(checksum).hex(),
            }
        ],
    }


class SbomHook(BuildHookInterface[Any]):
    """Adds the list to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        name = self.metadata.core.raw_name
        document = sbom(Path(self.root), name, self.metadata.version)
        path = Path(self.folder.name) / f"{name}.cdx.json"
        path.write_text(json.dumps(document, indent=2), encoding="utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.folder.cleanup()
