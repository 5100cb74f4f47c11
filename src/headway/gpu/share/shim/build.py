"""Build of the shim: find a library that was built from these sources, or compile it.

The sources come with the package (``headway/native``, copied there when it is built) or are in ``native/`` of a
checkout. Beside a library is a file with the digests of its sources and of the library itself. A library is not loaded
if either digest differs, or if other users could have written it. Needs a C++17 compiler, no CUDA toolkit.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from headway.errors import ShareError
from headway.gpu.share.shim import preload

LIBRARY = "libheadway_share.so"
DIGEST = "libheadway_share.digest"
APART = frozenset({"layout.cpp", "replay.cpp"})
"""Separate programs, for tests."""

FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-fwrapv", "-Wall", "-Wextra")
"""Compiler flags. Shared memory is not trusted: sums of its values may overflow, and then wrap."""

ALONE = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")
"""Link the C++ library statically and hidden: the program may have another one, or none."""

WHOLE = ("-O3", "-flto=auto")
"""Whole-program optimisation: the shim's code is cold at each launch, and every call is another cache line to fetch."""

_PACKAGE = Path(__file__).resolve().parents[3]


def sources() -> Path:
    """Return the folder of the shim's C++ sources."""
    for folder in (_PACKAGE / "native", _PACKAGE.parents[1] / "native"):
        if (folder / "hooks.cpp").is_file():
            return folder
    raise ShareError(f"the shim's sources are not in {_PACKAGE / 'native'}: install headway again")


def parts(folder: Path) -> list[Path]:
    """Return the source files of the library, sorted by name."""
    return sorted(file for file in folder.glob("*.cpp") if file.name not in APART)


def digest(folder: Path) -> str:
    """Return the digest of sources and flags, as 16 hexadecimal digits."""
    content = hashlib.sha256(" ".join((*FLAGS, *WHOLE)).encode())
    for file in sorted((*parts(folder), *folder.glob("*.h"))):
        content.update(f"\n{file.name}\n".encode() + file.read_bytes())
    return content.hexdigest()[:16]


def cached(wanted: str) -> Path:
    """Return the folder in this user's cache for a library of these sources."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "headway" / "native" / wanted


def find() -> Path | None:
    """Return a library built from the present sources that no other user could have changed; None: there is none."""
    wanted = digest(sources())
    for folder in (_PACKAGE / "native", cached(wanted)):
        made, stamp = folder / LIBRARY, folder / DIGEST
        if made.is_file() and stamp.is_file() and not preload.refusal(made.resolve()) and stamped(made) == wanted:
            return made.resolve()
    return None


def stamped(library: Path) -> str:
    """Return the digest of the sources that a library was built from; empty where the library was changed since."""
    words = library.with_name(DIGEST).read_text(errors="replace").split()
    return words[0] if len(words) == 2 and words[1] == preload.digest(library) else ""


def library() -> Path:
    """Return the library to preload; build it where there is none yet."""
    return find() or preload.checked(build())


def compiler_named(asked: str | None = None) -> str:
    """Return the C++ compiler to use: ``asked``, ``$CXX``, or the first that is installed."""
    candidates = [asked] if asked else [os.environ.get("CXX", ""), "g++", "c++", "clang++"]
    for candidate in filter(None, candidates):
        if path := shutil.which(candidate.split()[0]):
            return " ".join((path, *candidate.split()[1:]))
    problem = f"no C++ compiler {asked!r}" if asked else "no C++ compiler (g++, c++, clang++, or the one named by CXX)"
    raise ShareError(f"{problem}: the shim cannot be built; on Debian or Ubuntu: apt-get install g++")


def build(compiler: str | None = None, folder: Path | None = None, extra: tuple[str, ...] = ()) -> Path:
    """Compile the library into ``folder`` (this user's cache where none is given) and return its path.

    It is compiled in a temporary folder and moved in place whole: another program may be about to load it.
    """
    origin = sources()
    wanted = digest(origin)
    command = compiler_named(compiler).split()
    target = folder or cached(wanted)
    try:
        preload.make_folder(target)
        if folder is None and (why := preload.refusal(target.resolve() / DIGEST, there=False)):
            raise ShareError(f"{why}, or set XDG_CACHE_HOME to a folder of your own")
        with tempfile.TemporaryDirectory(prefix="build-", dir=target) as scratch:
            made, stamp = Path(scratch) / LIBRARY, Path(scratch) / DIGEST
            _compile(command, origin, made, extra)
            made.chmod(0o755)
            stamp.write_text(f"{wanted} {preload.digest(made)}\n")
            stamp.chmod(0o644)
            _put(made, stamp, target)
    except OSError as error:
        raise ShareError(f"cannot write the shim to {target}: {error.strerror or error}") from error
    return target / LIBRARY


def _put(made: Path, stamp: Path, target: Path) -> None:
    """Move library and digest file in place, under a lock: several processes may build at once."""
    handle = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        made.replace(target / LIBRARY)
        stamp.replace(target / DIGEST)
    finally:
        os.close(handle)


def _compile(command: list[str], origin: Path, made: Path, extra: tuple[str, ...]) -> None:
    """Compile and link; retry without whole-program optimisation, then without a static C++ library."""
    attempts: tuple[tuple[str, ...], ...] = ((*WHOLE, *ALONE), ALONE, ())
    if any(flag.startswith("-fsanitize") for flag in extra):  # a sanitizer watches the C++ library that the program has
        attempts = ((),)
    failure = ""
    for flags in attempts:
        call = [*command, *FLAGS, *flags, *extra, "-shared", "-o", str(made), *map(str, parts(origin)), "-ldl"]
        ran = subprocess.run(call, capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            return
        failure = ran.stderr.strip() or f"status {ran.returncode}"
    first = next((line for line in failure.splitlines() if "error" in line), failure.splitlines()[0])
    raise ShareError(f"{command[0]} could not build the shim: {first}")
