#!/usr/bin/env bash
# Installs the Debian packages that are missing for a purpose. Prints first which packages and why. If nothing is
# missing, it uses neither apt nor the network.
#
#   tests/packages.sh build          packages to build the simulator
#   tests/packages.sh build test     packages to build it and its tests and benchmarks
#   tests/packages.sh lint           further packages for .ci/run
#   tests/packages.sh slurm          packages for tests/slurm.sh
#   tests/packages.sh browser        packages to test HTML reports in a browser
#   tests/packages.sh docs           packages to build the documentation
#   tests/packages.sh build python   packages to build the Python package
#   tests/packages.sh pytest         further packages for its tests and its example
#   tests/packages.sh package        packages to build a .deb and to test it in a clean root
#   tests/packages.sh shells         shells whose completions are tested
set -euo pipefail

# package|command that may replace it|purpose
packages_for() {
  case $1 in
    build)
      echo "build-essential|make|compiler and linker"
      echo "g++|g++|the C++20 compiler"
      echo "cmake|cmake|configures the build"
      echo "ninja-build|ninja|runs the build"
      echo "libboost-dev||statistics and containers"
      echo "libfmt-dev||text output"
      echo "libcli11-dev||the command line"
      echo "nlohmann-json3-dev||configurations, profiles and results"
      echo "libssl-dev||SHA-256 of the inputs"
      echo "zlib1g-dev||traces compressed with gzip"
      echo "libeigen3-dev||fits of latency models to measurements"
      echo "libglpk-dev||FlexGen's policy search and AQUA's placer"
      echo "libpcre2-dev||tokens of text, GPT-2"
      echo "liblua5.4-dev||rules of published claims"
      echo "libsentencepiece-dev||tokens of text, SentencePiece"
      echo "libjs-chart.js||charts of HTML reports"
      ;;
    test)
      echo "libgtest-dev||tests"
      echo "libgmock-dev||tests"
      echo "libbenchmark-dev||benchmarks"
      ;;
    lint)
      echo "git|git|lists the project's files"
      echo "clang-format|clang-format|checks the format"
      echo "clang-tidy|clang-tidy|checks the code"
      echo "ccache|ccache|keeps compiled objects for the next run"
      ;;
    slurm)
      echo "munge|munged|authenticates Slurm's daemons to each other"
      echo "slurmctld|slurmctld|Slurm's controller"
      echo "slurmd|slurmd|runs Slurm's jobs"
      echo "slurm-client|sbatch|submits and lists Slurm's jobs"
      ;;
    browser)
      echo "chromium|chromium|opens HTML reports without a screen"
      ;;
    docs)
      echo "python3|python3|docs/build.py, docs/check.py and docs/pictures.py"
      echo "mkdocs|mkdocs|builds the documentation"
      echo "mkdocs-material||its theme"
      ;;
    python)
      echo "python3-dev||the interpreter and its headers"
      echo "python3-venv||virtual environments"
      echo "python3-pip||installs the package"
      echo "python3-setuptools||builds the package"
      echo "python3-wheel||builds the package"
      echo "pybind11-dev||Python's interface to C++"
      echo "python3-pybind11||finds pybind11 for pip"
      echo "python3-numpy||arrays of requests"
      ;;
    pytest)
      echo "python3-pandas||tests of tables"
      echo "python3-matplotlib||the example's figure"
      echo "python3-pytest||runs the tests"
      echo "python3-jsonschema||tests results against their schema"
      ;;
    package)
      echo "dpkg-dev|dpkg-shlibdeps|finds the packages that programs need"
      echo "file|file|tells cpack which files are programs"
      echo "debootstrap|debootstrap|makes a clean root"
      echo "man-db|man|reads the man pages"
      ;;
    shells)
      echo "zsh|zsh|tests of its completion"
      echo "fish|fish|tests of its completion"
      ;;
    *)
      echo "usage: $0 build|test|lint|slurm|browser|docs|python|pytest|package|shells ..." >&2
      exit 2
      ;;
  esac
}

is_there() {  # package command
  if [[ -n $2 ]] && command -v "$2" >/dev/null; then return 0; fi
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

[[ $# -gt 0 ]] || packages_for ""
wanted=$(for purpose in "$@"; do packages_for "$purpose"; done)

if ! command -v dpkg-query >/dev/null; then
  echo "This is not Debian. Please install the equivalents of these packages: $(cut -d'|' -f1 <<<"$wanted" | xargs)"
  exit 0
fi

missing=()
while IFS='|' read -r package command reason; do
  if ! is_there "$package" "$command"; then
    [[ ${#missing[@]} -gt 0 ]] || echo "These Debian packages are missing and will be installed with apt-get:"
    printf '  %-20s %s\n' "$package" "$reason"
    missing+=("$package")
  fi
done <<<"$wanted"
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "error: installing packages needs root or sudo. Run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}" </dev/null
