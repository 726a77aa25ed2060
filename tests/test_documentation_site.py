"""`make docs` fails for what a reader would stumble over, and a package index shows links of the project that work."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / ".ci" / "mkdocs.yml"


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    recipe = re.search(r"^docs: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    line = next(line for line in recipe[1].splitlines() if "mkdocs build" in line)
    words = shlex.split(line.partition("mkdocs ")[2])
    words[words.index("--config-file") + 1] = str(config)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *words, "--site-dir", str(site)],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


class TestTheSite:
    """Every page is in the navigation and every link leads somewhere, or the command fails."""

    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        """The settings of the documentation, for two pages of which one is in the navigation."""
        text = re.sub(r"^nav:.*", "nav:\n  - index.md\n", CONFIG.read_text(), flags=re.MULTILINE | re.DOTALL)
        config = tmp_path / "mkdocs.yml"
        config.write_text(text.replace("docs_dir: ../docs", "docs_dir: docs").replace("site_dir: ../build/docs", ""))
        (tmp_path / "docs").mkdir()
        return config

    @pytest.mark.services
    def test_the_documentation_is_built(self, tmp_path: Path) -> None:
        done = build(CONFIG, tmp_path / "site")
        assert done.returncode == 0, done.stdout
        assert "WARNING" not in done.stdout
        assert (tmp_path / "site" / "how-to" / "load-a-table.html").exists()

    @pytest.mark.services
    def test_faults_are_named_and_fail(self, config: Path, tmp_path: Path) -> None:
        (tmp_path / "docs" / "index.md").write_text("# One\n\n[no page](nowhere.md) [no heading](#nowhere)\n")
        (tmp_path / "docs" / "forgotten.md").write_text("# Two\n")
        done = build(config, tmp_path / "site")
        assert done.returncode != 0
        assert "'index.md' contains a link 'nowhere.md', but the target is not found" in done.stdout
        assert "'index.md' contains a link '#nowhere', but there is no such anchor" in done.stdout
        assert 'not included in the "nav" configuration:\n  - forgotten.md' in done.stdout
        assert "Aborted with 3 warnings in strict mode!" in done.stdout


class TestThePackage:
    """What the package says of itself is complete for a reader who has nothing but its page on an index."""

    def test_it_says_where_its_pages_are(self) -> None:
        urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
        assert {"Homepage", "Documentation", "Changelog", "Source", "Issues"} == set(urls)
        assert all(url.startswith(urls["Source"]) for url in urls.values())

    def test_every_link_of_its_readme_is_absolute_and_leads_to_a_file(self) -> None:
        found = ProjectMetadata(str(ROOT), PluginManager())
        links = re.findall(r"\]\(([^)\s]+)\)", found.core.readme)
        files = f"{found.core.urls['Source']}/blob/main/"
        assert len(links) > 15
        assert found.core.readme_content_type == "text/markdown"
        for link in links:
            assert link.startswith("https://"), link
            if link.startswith(files):
                assert (ROOT / link.removeprefix(files)).is_file(), link
