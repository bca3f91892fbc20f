package acsfake

import "time"

// What public sources do not tell about the service. Each constant is one decision of
// the emulator; gpuplan must work whichever way it is in reality, and a transcript from a
// real account would confirm or correct it here.
//
// Two more are in data and code: the schema of kube-scheduler in addons.json is flat,
// with the parameters' documented names, since their nesting is not documented; and the
// codes for a header that is not signed and for a token of another access key.
const (
	// assumeNotFoundStatus: HTTP status of ErrorNodePoolNotFound, ErrorTaskNotFound and
	// AddonNotFound. The codes are seen in public clients; the status is not captured.
	assumeNotFoundStatus = 404

	// assumeReinstallCode: code of installing an add-on that is installed.
	assumeReinstallCode = "AddonAlreadyInstalled"

	// assumeUninstallCode: code of uninstalling an add-on whose supported_actions lack Uninstall.
	assumeUninstallCode = "AddonUninstallNotSupported"

	// assumePoolNamesUnique: whether the service refuses a second pool of one name. The
	// emulator takes it, the harder case for a client that recovers by name.
	assumePoolNamesUnique = false

	// assumeAbsentScalarsReset and assumeAbsentListsStay: a PUT that has a block without
	// some key. Users of the vendor's Terraform provider report both: settings that fall
	// back to defaults (aliyun/terraform-provider-alicloud#4230, #4403, #4495) and lists
	// that cannot be emptied by leaving them out (#5045, #5059).
	assumeAbsentScalarsReset = true
	assumeAbsentListsStay    = true

	// assumeDefaultsAnswered: whether the answer has what the service has decided itself, the
	// harder case: nobody asked for it, and it must be no difference.
	assumeDefaultsAnswered = true

	// assumeRoleIsFixed: ram_role_name, which the vendor's list of what a PUT takes lacks,
	// cannot be changed; absent from a PUT it stays.
	assumeRoleIsFixed = true

	// assumeNewestRemovedFirst: which nodes a smaller desired_size removes.
	assumeNewestRemovedFirst = true

	// assumeRemovalLowersSize: removing nodes by name lowers the pool's desired size by their number,
	// so that no others come in their place. An instance that is not there is passed over.
	assumeRemovalLowersSize = true

	// assumeDeletingRefusesWrites: a pool in state deleting refuses changes as one in
	// state removing_nodes does, for which it is observed.
	assumeDeletingRefusesWrites = true

	// assumeUnknownKeysRefused: scaling_group.key_name, min_size and max_size, which do not
	// exist, are an error. The service may ignore them; refusing finds the mistake.
	assumeUnknownKeysRefused = true

	// assumeClockSkew: how far the Date header may be off.
	assumeClockSkew = 15 * time.Minute

	// assumeStateAfterFailedGrowth: the pool's state when a task could not get all nodes.
	assumeStateAfterFailedGrowth = poolActive

	// Task types. "cluster_addon_install" is seen in public documents, the others are not.
	taskCreatePool       = "nodepool_create"
	taskModifyPool       = "nodepool_update"
	taskDeletePool       = "nodepool_delete"
	taskRemoveNodes      = "nodepool_remove_nodes"
	taskModifyNodeConfig = "nodepool_node_config"
	taskInstallAddon     = "cluster_addon_install"
	taskUpgradeAddon     = "cluster_addon_upgrade"
	taskUninstallAddon   = "cluster_addon_uninstall"
)
