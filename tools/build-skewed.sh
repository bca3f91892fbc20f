#!/usr/bin/env bash
# Builds a program whose clock goes wrong: build-skewed.sh PACKAGE PROGRAM. It is as many seconds ahead of the machine's as its environment
# says in CLOCK_SKEW, a negative number for behind. What measures durations does not notice, as on a machine with a wrong clock.
#
# All of the program has to be built again, with another package time.
set -euo pipefail
package=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

time=$(go env GOROOT)/src/time/time.go
sed 's/^\tsec, nsec, mono := runtimeNow()$/&\n\tsec += skew/' "$time" > "$work/time.go"
grep -q '^	sec += skew$' "$work/time.go" || { echo "time.Now of this Go is another than the one that this script knows" >&2; exit 1; }
cat > "$work/skew.go" <<'GO'
package time

import "syscall"

// skew is by how many seconds the clock is ahead.
var skew = func() (seconds int64) {
	text, _ := syscall.Getenv("CLOCK_SKEW")
	sign := int64(1)
	for _, digit := range []byte(text) {
		if digit == '-' {
			sign = -1
			continue
		}
		seconds = 10*seconds + int64(digit-'0')
	}
	return sign * seconds
}()
GO
printf '{"Replace": {"%s": "%s", "%s": "%s"}}' "$time" "$work/time.go" "$(dirname "$time")/skew.go" "$work/skew.go" > "$work/overlay.json"
mkdir -p "$(dirname "$program")"
go build -overlay "$work/overlay.json" -ldflags "-s -w" -o "$program" "$package"
