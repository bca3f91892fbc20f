# Why a plan (terraform show -json) is refused: a line for each reason, nothing where it may be applied.
# The arguments are addresses of resources that may do so.

def does($action): .change.actions | index($action) != null;

def reasons:
  .change.before as $before | .change.after as $after |
  if .type == "gpuplan_node_pool" and does("delete") then "takes away node pool \($before.name)" else empty end,
  if .type == "gpuplan_training_job" and ($before.status | IN("Running", "Restarting")) then
    if does("delete") then "ends job \($before.id), which runs"
    elif $after.suspend == true and $before.suspend != true then "suspends job \($before.id), which runs"
    else empty end
  else empty end,
  if does("create") or does("update") then
    if $after.allow_preemption == true then "may evict running jobs (allow_preemption)" else empty end,
    if $after.allow_disruption == true then "may take nodes or quota from running jobs (allow_disruption)" else empty end,
    if $after.placement_check == "warn" or $after.placement_check == "off" then "is not held to its placement (placement_check)" else empty end
  else empty end;

(
  .resource_changes[]?
  | select(.mode == "managed" and (.type | startswith("gpuplan_")))
  | select(.address as $address | $ARGS.positional | index($address) == null)
  | "- \(.address) \(reasons)"
),
(
  .action_invocations[]?
  | select(.type == "gpuplan_drain_nodes")
  | select(.address as $address | $ARGS.positional | index($address) == null)
  | "- \(.address) evicts what runs on nodes"
),
(
  .configuration.provider_config[]?
  | select(.name == "gpuplan")
  | .expressions.placement_check? // empty
  | select(.constant_value != "error")
  | "- provider gpuplan: placement_check is not \"error\""
)
