#!/usr/bin/env bash
# Refuses a plan that ends or evicts jobs, takes away node pools, or leaves out the check of placements.
# Addresses that someone has approved may do so. Ends with 0, or with 3 and the reasons.
#
#   policy.sh PLAN.json [ADDRESS...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
plan=$1
shift

reasons=$(jq -r -f "$here/policy.jq" "$plan" --args "$@")
[ -n "$reasons" ] || exit 0
echo "The plan is refused:"
echo "$reasons"
exit 3
