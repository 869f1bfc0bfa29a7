#!/bin/sh
# Compares the output of `words` with what it should be.
set -eu
cd "$(dirname "$0")"

check() {
    found=$(printf '%s\n' "$1" | sh words)
    if [ "$found" != "$2" ]; then
        printf 'words "%s" printed:\n%s\n' "$1" "$found" >&2
        exit 1
    fi
}

check 'one' '1 one'
check 'b a b' '2 b
1 a'
check 'Yes, yes.' '2 yes'
echo 'all tests pass'
