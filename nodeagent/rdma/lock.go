package rdma

import "golang.org/x/sys/unix"

// LockableKiB is how much memory this process may lock, 0 for unlimited, or unknown. RDMA devices read and write locked memory alone.
// A container inherits the limit from its runtime, so that the agent's is that of others on the node; the capability
// IPC_LOCK does without it.
func LockableKiB() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Max == unix.RLIM_INFINITY {
		return 0
	}
	return int64(min(max(limit.Max>>10, 1), 1<<53)) // who may lock nothing may lock less than is told
}
