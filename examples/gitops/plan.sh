#!/usr/bin/env bash
# Plans the configuration in a folder, and leaves plan.bin, which an apply takes, and plan.json there.
# The exit code is terraform's: 0 where there is nothing to do, 2 where there is, 1 where the plan fails.
#
#   plan.sh FOLDER [OPTION...]
set -euo pipefail
terraform=${TERRAFORM:-terraform}
folder=$1
shift

unset GPUPLAN_PLACEMENT_CHECK # the configuration says it, where the policy sees it
rm -f "$folder/plan.bin" "$folder/plan.json"
code=0
"$terraform" -chdir="$folder" plan -input=false -detailed-exitcode -out=plan.bin "$@" || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 2 ] || exit 1
"$terraform" -chdir="$folder" show -json plan.bin >"$folder/plan.json"
exit "$code"
