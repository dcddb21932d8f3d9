# setup.sh - `packages` installs what the build needs; `nvrtc`, after it, fetches an NVRTC if the
# library finds none. Says only what it does.
# SPDX-License-Identifier: BSD-3-Clause
set -eu
BUILD=${BUILD:-build}
NVRTC_PIN=13.0.88
# of the wheels for x86_64 and aarch64
NVRTC_HASHES="--hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
    --hash=sha256:d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b"

missing=
need() { # need PACKAGE TEST...: adds the package when the test fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
header() { echo "#include <$1>" | "${CC:-gcc}" -I/usr/include/lua5.4 -E -o /dev/null -; }

install_missing() {
    [ -n "$missing" ] || return 0
    as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo"
    install="${as_root:+$as_root }apt-get install -y --no-install-recommends$missing"
    if ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! sudo -n true 2>/dev/null; }; then
        echo "setup: missing:$missing; install them with:" >&2
        echo "    sudo apt-get install -y --no-install-recommends$missing" >&2
        exit 1
    fi
    echo "setup: $install" >&2
    export DEBIAN_FRONTEND=noninteractive
    $install >/dev/null 2>&1 ||
        { ${as_root:+$as_root }apt-get update >/dev/null && $install >/dev/null; }
}

packages() {
    need gcc "${CC:-gcc}" --version
    need libc6-dev header stdio.h
    need make make --version
    need python3 python3 --version
    need liblua5.4-dev header lua.h
    need libyaml-dev header yaml.h
    need libsodium-dev header sodium.h
    need libzstd-dev header zstd.h
    install_missing
}

has_nvrtc() { WARPLOOM_CACHE=off "$BUILD/warploom" doctor | grep -q "^nvrtc  *ok "; }

nvrtc() {
    has_nvrtc && return
    if [ -n "${WARPLOOM_NVRTC:-}" ]; then
        echo "setup: WARPLOOM_NVRTC=$WARPLOOM_NVRTC is no usable NVRTC: correct or unset it" >&2
        exit 1
    fi
    need python3-pip python3 -m pip --version
    install_missing
    echo "setup: no NVRTC here: fetching nvidia-cuda-nvrtc $NVRTC_PIN into $BUILD/deps" >&2
    echo "nvidia-cuda-nvrtc==$NVRTC_PIN" $NVRTC_HASHES >"$BUILD/nvrtc.txt"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes --upgrade --target "$BUILD/deps" -r "$BUILD/nvrtc.txt" && has_nvrtc || {
        echo "setup: could not; install CUDA 12.0 or newer, or set WARPLOOM_NVRTC to a libnvrtc" >&2
        exit 1
    }
}

"$1"
