"""README.md for a package index: its relative links lead to the repository, since an index has none of its files.

A metadata hook of hatchling, named in pyproject.toml, whose `[project.urls]` say where the repository is. In the
repository itself the links stay relative, so that they lead to the files of the same commit.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(?<=\]\()(?![a-z][a-z0-9+.-]*:|#)(?:\./)?(?=[^)\s]+\))")


class ReadmeHook(MetadataHookInterface):
    """Gives the package its readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme, which pyproject.toml names as dynamic."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, metadata["urls"]["Source"]),
        }


def absolute_links(text: str, repository: str) -> str:
    """Return Markdown whose links lead to the files of the repository's main branch."""
    return RELATIVE_LINK.sub(f"{repository.rstrip('/')}/blob/main/", text)
