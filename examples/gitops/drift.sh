#!/usr/bin/env bash
# Finds out whether a cluster is as the folder says. It changes nothing. Ends with 0 where it is,
# with 2 and what differs where it is not, and with 1 where the plan fails.
#
#   drift.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1

code=0
"$here/plan.sh" "$folder" -lock=false || code=$?
[ "$code" -eq 2 ] || exit "$code"
echo "The cluster is not as $folder says:"
jq -r '.resource_changes[] | select(.change.actions != ["no-op"]) | "- \(.address): \(.change.actions | join(", "))"' "$folder/plan.json"
exit 2
