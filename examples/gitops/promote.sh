#!/usr/bin/env bash
# Gives one cluster the release of another, as a change to commit. The first cluster has to be as
# its folder says: what is not applied there, or has drifted, is not promoted.
#
#   promote.sh FROM TO        promote.sh clusters/staging clusters/production
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
from=$1 to=$2

"$here/drift.sh" "$from"
cp "$from/release.json" "$to/release.json"
echo "$to has the release of $from: commit it."
