"""Builds the Python package's module with CMake, in build/python; see pyproject.toml."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


def version():
    """The version of the project, as CMake has it."""
    found = re.search(r"^project\(spillway VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    return found.group(1)


class CMakeBuild(build_ext):
    """Builds the module in a folder that the next build reuses."""

    def build_extension(self, ext):
        build = ROOT / "build" / "python"
        if shutil.which("cmake") is None:
            sys.exit("error: CMake is missing, which builds the module. tests/packages.sh build python installs it")
        configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DSPILLWAY_PYTHON=ON",
                     "-DSPILLWAY_TESTS=OFF", "-DSPILLWAY_BENCHMARKS=OFF", f"-DPython_EXECUTABLE={sys.executable}"]
        if not (build / "CMakeCache.txt").exists() and shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        configure += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        subprocess.run(configure, check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", str(build), "--target", "spillway_python", "--parallel", jobs], check=True)
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        (module,) = (build / "module").glob("_core*" + target.suffix)
        shutil.copy2(module, target)
        subprocess.run(["strip", "--strip-unneeded", str(target)], check=False)


# What setuptools writes goes into the build folder too, not beside the sources.
(ROOT / "build").mkdir(exist_ok=True)
setup(
    version=version(),
    ext_modules=[Extension("spillway._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    options={"egg_info": {"egg_base": "build"}, "build": {"build_base": "build/setuptools"}},
)
