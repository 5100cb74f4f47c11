"""What pyproject.toml cannot say: the shim's sources go into the package, and its library where there is a compiler.

``native/`` is copied to ``headway/native`` of what is built, so that ``headway share build`` works from an installed
package; without a compiler the package is installed all the same, and the library is built when it is first wanted. An
editable install reads ``native/`` of the checkout and copies nothing.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "src"))

from headway.errors import ShareError  # noqa: E402  # after the path above
from headway.gpu.share.shim import build as shim  # noqa: E402


def compiler() -> str | None:
    """The compiler to build the library with, where there is one and the system can preload."""
    try:
        return shim.compiler_named() if sys.platform == "linux" else None
    except ShareError:
        return None


class BuildWithShim(build_py):
    """Python files as ever, then the shim."""

    def run(self) -> None:
        """Copy the sources; compile them, and say so where that does not work."""
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(Path(self.build_lib) / "headway", ignore_errors=True)  # what moved since would be installed twice
        super().run()
        target = Path(self.build_lib) / "headway" / "native"
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted((*(ROOT / "native").glob("*.cpp"), *(ROOT / "native").glob("*.h"))):
            shutil.copy2(file, target / file.name)
        try:
            shim.build(compiler() or shim.compiler_named(), target)
        except ShareError as error:
            self.warn(f"{error}; `headway share build` does it later")


class PlatformWheel(bdist_wheel):
    """A wheel with a library in it is one of its machine, for any Python."""

    def finalize_options(self) -> None:
        """Not pure where the library will be in it."""
        super().finalize_options()
        self.root_is_pure = self.root_is_pure and compiler() is None

    def get_tag(self) -> tuple[str, str, str]:
        """Any Python 3, no Python interface, this machine."""
        tag = super().get_tag()
        return tag if self.root_is_pure else ("py3", "none", tag[2])


setup(cmdclass={"build_py": BuildWithShim, "bdist_wheel": PlatformWheel})
