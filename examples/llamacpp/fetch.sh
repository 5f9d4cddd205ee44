#!/bin/sh
# Gets llama.cpp v0.5.0 for Linux on x86-64, as shared libraries that need no
# compiler: those of an npm package, checked against its published checksum.
#
#   ./fetch.sh [DIR]     DIR: where they go; ./lib beside this script by default
#
# The registry and its certificates are those that npm is set to (registry, cafile),
# also where npm itself is missing. Needs tar with gzip, and curl, wget or npm.
# DIR appears whole or not at all; if it is there and complete, nothing is done.
set -eu

package=@node-llama-cpp/linux-x64
version=3.22.1
llama=v0.5.0
sha512=e6e0820cda9608d7da026f1a47f533c5ba381c1a4a80d17dd640873dea4a86032057638099ab6879f6ce94c8a1b2a0a21f639ddf913f7941d00856df44126e3a
list=FILES # in DIR: package and version, then what belongs to them

fail() {
	printf 'fetch.sh: %s\n' "$*" >&2
	exit 1
}

otherwise="or name a copy of llama.cpp $llama of your own with YZMA_LIB or --lib"

# setting prints npm's setting of that name, nothing if there is none.
setting() {
	if command -v npm >/dev/null 2>&1; then
		value=$(npm config get "$1" 2>/dev/null </dev/null) || value=
	else
		value=$(printenv "npm_config_$1" || sed -n "s/^$1 *= *//p" "${HOME:-}/.npmrc" 2>/dev/null | tail -n 1)
	fi
	case $value in
	null | undefined) ;;
	*) printf '%s' "$value" ;;
	esac
}

# download gets $1 as the file $2.
download() {
	cafile=$(setting cafile)
	if command -v curl >/dev/null 2>&1; then
		curl -fsSL --connect-timeout 20 --speed-limit 1000 --speed-time 60 --retry 2 \
			${cafile:+--cacert "$cafile"} -o "$2" "$1" </dev/null
	elif command -v wget >/dev/null 2>&1; then
		wget -q -T 60 -t 3 ${cafile:+--ca-certificate="$cafile"} -O "$2" "$1" </dev/null
	elif command -v npm >/dev/null 2>&1; then
		mkdir "$2.d" &&
			npm pack --silent --pack-destination "$2.d" "$package@$version" </dev/null >/dev/null &&
			mv "$2.d"/*.tgz "$2"
	else
		fail "there is no curl, wget or npm to get it with: install one of them, $otherwise"
	fi
}

# digest prints the SHA-512 of the file $1 in hex.
digest() {
	if command -v sha512sum >/dev/null 2>&1; then
		sha512sum <"$1" | cut -d ' ' -f 1
	elif command -v openssl >/dev/null 2>&1; then
		openssl dgst -sha512 -r <"$1" | cut -d ' ' -f 1
	else
		python3 -c 'import hashlib, sys; print(hashlib.sha512(sys.stdin.buffer.read()).hexdigest())' <"$1"
	fi
}

# complete says whether folder $1 holds all that this script puts there.
complete() {
	[ "$(head -n 1 "$1/$list" 2>/dev/null)" = "$package@$version" ] || return 1
	sed 1d "$1/$list" | while read -r file; do
		[ -s "$1/$file" ] || exit 1
	done
}

# unpack puts the libraries of archive $1 and their licence into the new folder $2.
unpack() {
	members=$(tar -tzf "$1" | grep -E '^package/(LICENSE|bins/linux-x64/lib[^/]*\.so)$' | grep -v '/libllama-common\.so$')
	# shellcheck disable=SC2086 # names without spaces, of an archive that was checked
	[ -n "$members" ] && mkdir "$2" "$2.all" && tar -xzof "$1" -C "$2.all" $members &&
		mv "$2.all"/package/LICENSE "$2.all"/package/bins/linux-x64/*.so "$2" &&
		ln -s "libllama.$llama.so" "$2/libllama.so" && ln -s "libggml.$llama.so" "$2/libggml.so" &&
		{ echo "$package@$version" && ls "$2"; } >"$2.list" && mv "$2.list" "$2/$list" && complete "$2"
}

# place moves folder $1 to $2, in place of nothing, an empty folder, or an older
# one of this script. mv -T: what is there must not be moved into.
place() {
	if [ -e "$2/$list" ] && ! complete "$2"; then
		mv -T "$2" "$1.old"
	fi
	if mv -T "$1" "$2" 2>/dev/null || complete "$2"; then # someone else may have been first
		return
	fi
	[ ! -e "$1.old" ] || mv -T "$1.old" "$2"
	fail "$2 cannot be made; is it there already, or the folder read-only?"
}

case $#:${1-} in
0: | 1:[!-]*) ;;
*) fail "usage: fetch.sh [DIR]" ;;
esac
dir=${1:-$(cd "$(dirname "$0")" && pwd)/lib}
dir=${dir%/}

case $(uname -s):$(uname -m) in
Linux:x86_64 | Linux:amd64) ;;
*) fail "the package is for Linux on x86-64, this is $(uname -s) on $(uname -m): get llama.cpp $llama for it, and name its folder with YZMA_LIB or --lib" ;;
esac
if complete "$dir"; then
	exit 0
fi
if [ -e "$dir" ] && [ ! -e "$dir/$list" ] && [ -n "$(ls -A "$dir")" ]; then
	fail "$dir is there, and not of this script: name another folder, or remove it"
fi
parent=$(dirname "$dir")
[ -d "$parent" ] || fail "there is no folder $parent to make $(basename "$dir") in"

work=$(mktemp -d "$parent/.fetch.XXXXXX") || fail "no temporary folder can be made in $parent"
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

registry=$(setting registry)
registry=${registry:-https://registry.npmjs.org/}
url=${registry%/}/$package/-/linux-x64-$version.tgz
download "$url" "$work/package.tgz" || fail "$url cannot be had: try again, set npm's registry to one that can be reached, $otherwise"
got=$(digest "$work/package.tgz")
[ "$got" = "$sha512" ] || fail "$url is not what was published: its SHA-512 is $got, want $sha512; try again, set npm's registry to another, $otherwise"
unpack "$work/package.tgz" "$work/lib" || fail "$url cannot be unpacked in $parent; is there room for 40 MB?"
place "$work/lib" "$dir"
