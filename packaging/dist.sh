#!/bin/sh
# Builds the files of a release in target/dist: a static binary, man pages, completions, a Debian
# package, a Dockerfile and checksums. With the path of a binary it packages that one.
set -eu
cd "$(dirname "$0")/.."

# Every machine that runs a job downloads the binary.
bytes_max=14000000

fail() {
    echo "dist: $1" >&2
    exit 1
}

# The image has no base, does not run as root, and needs no shell.
for line in 'FROM scratch' 'USER 65534:65534' 'ENTRYPOINT ["/usr/bin/leasehold"]'; do
    grep -qxF "$line" packaging/Dockerfile || fail "packaging/Dockerfile has no line: $line"
done

if [ $# -eq 0 ]; then
    # Without --target, the flags would apply to procedural macros, which cannot be static.
    target=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS='-C target-feature=+crt-static' \
        cargo build --profile dist --locked --package leasehold-cli --target "$target"
    set -- "${CARGO_TARGET_DIR:-target}/$target/dist/leasehold"
fi

dist=target/dist
rm -rf "$dist"
mkdir -p "$dist/completions"
cp "$1" "$dist/leasehold"
cp packaging/Dockerfile "$dist"

# A binary that needs a dynamic loader would not run in an empty image.
headers=$(readelf --program-headers --wide "$dist/leasehold")
case $headers in *INTERP*) fail 'the binary is not static' ;; esac
bytes=$(stat -c %s "$dist/leasehold")
[ "$bytes" -le "$bytes_max" ] || fail "the binary has $bytes bytes, more than $bytes_max"

"$dist/leasehold" man --all "$dist/man"
"$dist/leasehold" completions bash > "$dist/completions/leasehold.bash"
"$dist/leasehold" completions zsh > "$dist/completions/_leasehold"
"$dist/leasehold" completions fish > "$dist/completions/leasehold.fish"

# The Debian package. Each file goes where Debian expects it.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
share=$tree/usr/share
install -D -m 755 "$dist/leasehold" "$tree/usr/bin/leasehold"
install -D -m 644 "$dist/completions/leasehold.bash" "$share/bash-completion/completions/leasehold"
install -D -m 644 "$dist/completions/_leasehold" "$share/zsh/vendor-completions/_leasehold"
install -D -m 644 "$dist/completions/leasehold.fish" \
    "$share/fish/vendor_completions.d/leasehold.fish"
install -D -m 644 -t "$share/man/man1" "$dist"/man/*
gzip -9n "$share/man/man1"/*
install -D -m 644 -t "$share/doc/leasehold" LICENSE-MIT LICENSE-APACHE

field() {
    cargo metadata --no-deps --format-version=1 |
        python3 -c "import json, sys
packages = json.load(sys.stdin)['packages']
print(next(p['$1'] for p in packages if p['name'] == 'leasehold-cli'))"
}
version=$(field version)
architecture=$(dpkg --print-architecture)
install -D -m 755 -t "$tree/DEBIAN" packaging/debian/postinst packaging/debian/postrm
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" \
    -e "s|@INSTALLED_SIZE@|$(((bytes + 1023) / 1024))|" -e "s|@HOMEPAGE@|$(field repository)|" \
    packaging/debian/control > "$tree/DEBIAN/control"
dpkg-deb --build --root-owner-group "$tree" "$dist/leasehold_${version}_$architecture.deb"

cd "$dist"
sums=$(find . -type f ! -name SHA256SUMS | sort | xargs sha256sum)
echo "$sums" > SHA256SUMS
echo "dist: the release is in $PWD, and the binary has $bytes bytes"
