#!/usr/bin/env bash
# Makes the packages of a build, and tries them as a user does: installs the .deb into a clean root, first without its
# dependencies, runs it, removes it, and looks for what is left; unpacks the tarball and runs it.
#
#   tests/package.sh [BUILD_FOLDER]    default: build/release
#
# The clean root needs root and the network; without them this part is skipped with a message. The root is kept in
# build/package/root.tar, so that the next call downloads only the dependencies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(realpath "${1:-build/release}")
place=$(mktemp -d)
root=$place/root
cleanup() {
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  rm -rf "$place"
}
trap cleanup EXIT

fail() {
  echo "error: $1" >&2
  exit 1
}
# $1: what must occur in $2; $3: where it is from.
expect() { grep -qF -- "$1" <<<"$2" || fail "$3 lacks \"$1\": $2"; }

tests/packages.sh package || echo "Packages that the tests need cannot be installed here"
command -v dpkg-shlibdeps >/dev/null || { echo "skipped: dpkg-shlibdeps, which finds dependencies, is missing"; exit 0; }
cpack --config "$build/CPackConfig.cmake" -B "$place/packages" >"$place/cpack.txt" 2>&1 || fail "cpack: $(cat "$place/cpack.txt")"
version=$(sed -n 's/^project(spillway VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
deb=("$place"/packages/spillway_"${version}"_*.deb)
tarball=("$place"/packages/spillway-"$version"-*.tar.gz)
[[ -f ${deb[0]} && -f ${tarball[0]} ]] || fail "cpack wrote: $(ls "$place/packages")"

fields=$(dpkg-deb --field "${deb[0]}")
expect "Version: $version" "$fields" "the .deb"
for library in libc6 libstdc++6 libglpk40 liblua5.4-0 libpcre2-8-0 libsentencepiece0 libssl3 zlib1g libfmt9; do
  expect "$library" "$(sed -n 's/^Depends: //p' <<<"$fields")" "the .deb's Depends"
done
contents=$(dpkg-deb --contents "${deb[0]}" | awk '{ print $6 }')
for file in bin/spillway bin/cuda_calibrate share/man/man1/spillway.1.gz share/man/man1/cuda_calibrate.1.gz \
  share/doc/spillway/README.md share/doc/spillway/copyright share/bash-completion/completions/spillway \
  share/zsh/vendor-completions/_spillway share/fish/vendor_completions.d/spillway.fish; do
  expect "./usr/$file" "$contents" "the .deb"
done

mkdir "$place/unpacked"
tar -xzf "${tarball[0]}" -C "$place/unpacked" --strip-components=1
(cd "$place" && unpacked/bin/spillway run workload.requests=10) >"$place/result.txt"
expect "10 submitted" "$(cat "$place/result.txt")" "a run from the tarball"
for program in spillway cuda_calibrate; do
  cmp <(zcat "$place/unpacked/share/man/man1/$program.1.gz") <(cmake/manual.sh "$build/$program") ||
    fail "the man page of $program is not what its --help says"
done
echo "The packages: $(cd "$place/packages" && ls -sh ./*.deb ./*.tar.gz | xargs)"

if [[ $(id -u) -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "skipped: a clean root needs root and debootstrap"
  exit 0
fi
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
kept=build/package/root-$suite.tar
mkdir -p build/package "$root"
if [[ -f $kept ]]; then
  tar -xf "$kept" -C "$root"
elif debootstrap --variant=minbase "$suite" "$root" >"$place/debootstrap.txt" 2>&1; then
  rm -f "$root"/var/cache/apt/archives/*.deb
  tar -cf "$kept.part" -C "$root" . && mv "$kept.part" "$kept"
else
  echo "skipped: debootstrap failed: $(tail -n 1 "$place/debootstrap.txt")"
  exit 0
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
for proxy in /etc/apt/apt.conf /etc/apt/apt.conf.d/*proxy*; do
  if [[ -f $proxy ]]; then cp "$proxy" "$root/etc/apt/apt.conf.d/"; fi
done
mount -t proc proc "$root/proc" 2>/dev/null || true
cp "${deb[0]}" "$root/tmp/spillway.deb"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/tmp "$@"; }
inside apt-get update >"$place/apt.txt" 2>&1 || { echo "skipped: the clean root has no network"; exit 0; }
before=$(cd "$root" && find usr etc var/lib/dpkg/info opt srv -xdev | sort)

# Without its dependencies: dpkg names them and configures nothing; the program names the library that it lacks.
printed=$(inside dpkg -i /tmp/spillway.deb 2>&1) && fail "dpkg -i installs without the dependencies: $printed"
expect "spillway depends on libglpk40" "$printed" "dpkg -i"
expect "dependency problems - leaving unconfigured" "$printed" "dpkg -i"
printed=$(inside spillway --version 2>&1) && fail "the program runs without its libraries: $printed"
expect "error while loading shared libraries" "$printed" "the program without its libraries"
# apt-get completes the installation.
inside apt-get install --yes --no-install-recommends --fix-broken >"$place/apt.txt" 2>&1 || fail "apt-get --fix-broken: $(cat "$place/apt.txt")"
expect "spillway $version" "$(inside spillway --version)" "spillway --version"
expect "10 submitted" "$(inside spillway run workload.requests=10)" "a run in the clean root"
expect "Tesla T4" "$(inside cuda_calibrate --dry-run --assume t4-16gb)" "cuda_calibrate in the clean root"

# The packages that came with it go too, and nothing is left.
inside apt-get purge --yes --autoremove spillway >"$place/apt.txt" 2>&1 || fail "apt-get purge: $(cat "$place/apt.txt")"
after=$(cd "$root" && find usr etc var/lib/dpkg/info opt srv -xdev | sort)
left=$(comm -13 <(echo "$before") <(echo "$after") | grep -i spillway || true)
[[ -z $left ]] || fail "the package leaves: $left"
others=$(comm -13 <(echo "$before") <(echo "$after"))
[[ -z $others ]] || echo "Left by other packages: $(xargs <<<"$others" | cut -c1-300)"

# In one step, as the documentation says.
inside apt-get install --yes --no-install-recommends /tmp/spillway.deb >"$place/apt.txt" 2>&1 || fail "apt-get install: $(cat "$place/apt.txt")"
expect "10 submitted" "$(inside spillway run workload.requests=10)" "a run in the clean root"
echo "Installed, ran and removed in a clean root of Debian $suite."
