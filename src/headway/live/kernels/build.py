"""The shim as a library on this machine: found where it was built from these very sources, else built.

The sources travel with the package (``headway/native``, copied there when it is built) or lie in ``native/`` of a
checkout. Beside a library lies what it is made of: the digest of the sources and that of the library itself. One for
which either is another, or which others could have written, is not loaded. Needs a C++17 compiler, no CUDA toolkit.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from headway.errors import ShareError
from headway.live.kernels import preload

LIBRARY = "libheadway_share.so"
DIGEST = "libheadway_share.digest"
APART = frozenset({"layout.cpp", "replay.cpp"})
"""Programs of their own, for tests."""

FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-fwrapv", "-Wall", "-Wextra")
"""How it is compiled. What stands in shared memory is not trusted: sums of it may overflow, and then they wrap."""

ALONE = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")
"""It is loaded into programs that bring another C++ library along, or none: it brings its own, unseen."""

WHOLE = ("-O3", "-flto=auto")
"""All parts as one: a program's caches are cold for us at each launch, and every function is one more line to fetch."""

_PACKAGE = Path(__file__).resolve().parents[2]


def sources() -> Path:
    """Return the folder of the shim's C++ sources."""
    for folder in (_PACKAGE / "native", _PACKAGE.parents[1] / "native"):
        if (folder / "hooks.cpp").is_file():
            return folder
    raise ShareError(f"the shim's sources are not in {_PACKAGE / 'native'}: install headway again")


def parts(folder: Path) -> list[Path]:
    """Return the files that make the library, in the order of their names."""
    return sorted(file for file in folder.glob("*.cpp") if file.name not in APART)


def digest(folder: Path) -> str:
    """Return what the library is made of, as 16 hexadecimal digits."""
    content = hashlib.sha256(" ".join((*FLAGS, *WHOLE)).encode())
    for file in sorted((*parts(folder), *folder.glob("*.h"))):
        content.update(f"\n{file.name}\n".encode() + file.read_bytes())
    return content.hexdigest()[:16]


def cached(wanted: str) -> Path:
    """Return where a library of these sources is kept for this user."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "headway" / "native" / wanted


def find() -> Path | None:
    """Return a library built from the sources as they are now, that nobody has changed or could change; or nothing."""
    wanted = digest(sources())
    for folder in (_PACKAGE / "native", cached(wanted)):
        made, stamp = folder / LIBRARY, folder / DIGEST
        if made.is_file() and stamp.is_file() and not preload.refusal(made.resolve()) and stamped(made) == wanted:
            return made.resolve()
    return None


def stamped(library: Path) -> str:
    """Return the digest of the sources that a library was built from.

    Empty where it is not the library that was built.
    """
    words = library.with_name(DIGEST).read_text(errors="replace").split()
    return words[0] if len(words) == 2 and words[1] == preload.digest(library) else ""


def library() -> Path:
    """Return the library to preload; built now where there is none yet."""
    return find() or preload.checked(build())


def compiler_named(asked: str | None = None) -> str:
    """Return the C++ compiler to use: the one asked for, ``$CXX``, or the first that is there."""
    candidates = [asked] if asked else [os.environ.get("CXX", ""), "g++", "c++", "clang++"]
    for candidate in filter(None, candidates):
        if found := shutil.which(candidate.split()[0]):
            return " ".join((found, *candidate.split()[1:]))
    named = f"no C++ compiler {asked!r}" if asked else "no C++ compiler (g++, c++, clang++, or the one named by CXX)"
    raise ShareError(f"{named}: the shim cannot be built; on Debian or Ubuntu: apt-get install g++")


def build(compiler: str | None = None, folder: Path | None = None, extra: tuple[str, ...] = ()) -> Path:
    """Compile the library into ``folder`` (this user's cache where none is given) and return its path.

    It is made in a folder of its own and appears whole or not at all: another program may be about to load it.
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
    """Move the two in place; of several who build at once one after the other."""
    handle = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        made.replace(target / LIBRARY)
        stamp.replace(target / DIGEST)
    finally:
        os.close(handle)


def _compile(command: list[str], origin: Path, made: Path, extra: tuple[str, ...]) -> None:
    """Compile and link; again with less where the compiler cannot: in parts, without a C++ library of its own."""
    ways: tuple[tuple[str, ...], ...] = ((*WHOLE, *ALONE), ALONE, ())
    if any(flag.startswith("-fsanitize") for flag in extra):  # a sanitizer watches the C++ library that the program has
        ways = ((),)
    failure = ""
    for way in ways:
        call = [*command, *FLAGS, *way, *extra, "-shared", "-o", str(made), *map(str, parts(origin)), "-ldl"]
        ran = subprocess.run(call, capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            return
        failure = ran.stderr.strip() or f"status {ran.returncode}"
    first = next((line for line in failure.splitlines() if "error" in line), failure.splitlines()[0])
    raise ShareError(f"{command[0]} could not build the shim: {first}")
